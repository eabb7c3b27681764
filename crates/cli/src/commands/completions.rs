//! `touchline completions SHELL`: the shell asks the program for completions, so they match the installed version.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Result;
use clap::CommandFactory as _;
use clap_complete::CompleteEnv;
use clap_complete::env::{Bash, EnvCompleter, Fish, Zsh};

use crate::arguments::{Arguments, CompletionsArguments, Shell};

/// The variable with the name of the shell that asks for completions.
const VARIABLE: &str = "TOUCHLINE_COMPLETE";
const NAME: &str = "touchline";

/// An addition to the library's script for bash. Bash breaks words at `=`, so a field with its value would be three
/// words instead of one.
const WORDS_OF_BASH: &str = r#"
_touchline() {
    local line="${COMP_LINE:0:COMP_POINT}" COMP_WORDS COMP_CWORD word
    read -ra COMP_WORDS <<<"$line"
    [[ $line != *[[:space:]] ]] || COMP_WORDS+=("")
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    word="${COMP_WORDS[COMP_CWORD]}"
    _clap_complete_touchline "$1" "$word" "$3"
    [[ $word != *=* ]] || COMPREPLY=("${COMPREPLY[@]#"${word%%=*}="}")
}
complete -o nospace -o bashdefault -F _touchline touchline
"#;

/// Prints the script for the shell.
pub(crate) fn run(arguments: &CompletionsArguments) -> Result<ExitCode> {
    let shell: &dyn EnvCompleter = match arguments.shell {
        Shell::Bash => &Bash,
        Shell::Zsh => &Zsh,
        Shell::Fish => &Fish,
    };
    let mut script = Vec::new();
    shell.write_registration(VARIABLE, NAME, NAME, NAME, &mut script)?;
    if arguments.shell == Shell::Bash {
        script.extend_from_slice(WORDS_OF_BASH.as_bytes());
    }
    std::io::stdout().write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}

/// If a shell asks for completions, answers it and ends the process.
pub(crate) fn answer() {
    CompleteEnv::with_factory(Arguments::command).var(VARIABLE).complete();
}
