//! `touchline completions SHELL`: a shell asks the program itself what can be typed, so it completes what this version
//! has.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Result;
use clap::CommandFactory as _;
use clap_complete::CompleteEnv;
use clap_complete::env::{Bash, EnvCompleter, Fish, Zsh};

use crate::arguments::{Arguments, CompletionsArguments, Shell};

/// Names the shell that asks what can be typed.
const VARIABLE: &str = "TOUCHLINE_COMPLETE";
const NAME: &str = "touchline";

/// What bash runs beside the script of the library: a field with its value is one word of a command, and three for
/// bash, which breaks words at `=`.
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

/// Prints what the shell is to run once.
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

/// Answers a shell that asks, and ends the process then.
pub(crate) fn answer() {
    CompleteEnv::with_factory(Arguments::command).var(VARIABLE).complete();
}
