//! Checks that every command and option in the documentation exists.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::{Arg, Command, CommandFactory as _};

use crate::arguments::Arguments;

/// The commands of `touchline`, and those of `touchline-lab` as the subcommand `lab`.
fn documented() -> Command {
    Arguments::command().mut_subcommand("lab", |_| touchline_lab::LabArguments::command().name("lab"))
}

/// Options of other programs that pages name without the command.
const OTHERS: &[(&str, &str)] = &[
    ("--workspace", "an option of cargo"),
    ("--volume", "an option of docker"),
    ("--publish", "an option of docker"),
    ("--ulimit", "an option of docker"),
    ("--cacert", "an option of curl"),
    ("--max-time", "an option of curl"),
    ("--stop-timeout", "an option of docker"),
    ("--health-cmd", "an option of podman"),
];

/// Characters that end a command.
const ENDS: [char; 9] = ['`', ')', ';', '#', '>', '<', '|', '&', '"'];

/// The code of a page: the lines of its blocks and its spans. Each has the number of its line and whether it is a span.
fn code(text: &str) -> Vec<(usize, &str, bool)> {
    let mut found = Vec::new();
    let mut is_block = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_block = !is_block;
        } else if is_block {
            found.push((index + 1, line, false));
        } else {
            found.extend(line.split('`').skip(1).step_by(2).map(|span| (index + 1, span, true)));
        }
    }
    found
}

/// The commands in a piece of code. Each is the words after `touchline`, or after a wrapper for it, up to the end of
/// the command.
fn commands_of(code: &str, is_span: bool, root: &Command) -> Vec<Vec<String>> {
    let words = |rest: &str| -> Vec<String> {
        rest.split(ENDS).next().unwrap_or_default().split_whitespace().map(str::to_owned).collect()
    };
    // `touchline` may also be the name of an account, a folder or a package. Then no command follows.
    let is_start = |before: &str| before.trim_end().is_empty() || before.trim_end().ends_with(['(', ';', '&', '|']);
    let named = code.match_indices("touchline ").map(|(at, name)| (&code[..at], words(&code[at + name.len()..])));
    let is_option = |words: &[String]| words.first().is_some_and(|word| word.starts_with('-'));
    let commands = named.filter(|(before, words)| is_start(before) || !is_option(words));
    let mut found: Vec<Vec<String>> = commands.map(|(_, words)| words).collect();
    let scenarios = code.match_indices("touchline-lab ").map(|(at, name)| words(&code[at + name.len()..]));
    found.extend(scenarios.filter(|words| !words.is_empty()).map(|words| [vec!["lab".to_owned()], words].concat()));
    let of_task = |task: &str, command: &str| {
        let (_, rest) = code.split_once(task)?;
        Some([vec![command.to_owned()], words(rest)].concat())
    };
    // With --write the task runs a plan of its own, and passes nothing to the lab.
    found.extend(of_task("./x bench ", "lab").filter(|words| words.get(1).is_none_or(|word| word != "--write")));
    found.extend(of_task("./x run ", "serve"));
    found.extend(code.contains("cargo run ").then(|| of_task(" -- ", "serve")).flatten());
    let own = words(code);
    let names_option = own.get(1).is_some_and(|word| word.starts_with('-')) || own.first().is_some_and(|w| w == "lab");
    if is_span && names_option && own.first().is_some_and(|word| root.find_subcommand(word).is_some()) {
        found.push(own);
    }
    found
}

fn has_option(command: &Command, option: &str) -> bool {
    let is_named = |argument: &Arg| {
        argument.get_long().is_some_and(|long| option == format!("--{long}"))
            || argument.get_short().is_some_and(|short| option == format!("-{short}"))
    };
    command.get_arguments().any(is_named) || matches!(option, "--help" | "-h")
}

/// The first command or option that does not exist. `None` = all exist, or the words are not a command.
fn unknown(root: &Command, words: &[String]) -> Option<String> {
    let is_name = |word: &&String| word.len() > 1 && word.bytes().all(|byte| byte.is_ascii_lowercase());
    let first = words.first()?;
    let (command, rest) = match root.find_subcommand(first) {
        Some(command) => (command, &words[1..]),
        None if first.starts_with('-') => (root, words),
        None => return Some(first).filter(is_name).map(|name| format!("touchline {name}")),
    };
    let below = rest.first().and_then(|name| command.find_subcommand(name));
    if let Some(name) = rest.first().filter(is_name)
        && command.has_subcommands()
        && below.is_none()
    {
        return Some(format!("touchline {first} {name}"));
    }
    // A command may have three levels, as `events dead list`.
    let third = below.zip(rest.get(1)).and_then(|(below, name)| below.find_subcommand(name));
    let options = rest.iter().map(|word| word.split_once('=').map_or(word.as_str(), |(option, _)| option));
    // Another rule checks configuration keys.
    let mut options = options.filter(|word| word.starts_with('-') && word.len() > 1 && !word.contains('.'));
    let is_known = |option: &str| {
        let is_version = std::ptr::eq(command, root) && matches!(option, "--version" | "-V");
        is_version
            || has_option(command, option)
            || [below, third].iter().flatten().any(|lower| has_option(lower, option))
    };
    options.find(|option| !is_known(option)).map(|option| format!("touchline {first} {option}"))
}

/// The option at the beginning of a span, if it is not a configuration key.
fn bare_option(span: &str) -> Option<&str> {
    let word = span.split([' ', '=']).next().filter(|word| word.starts_with("--") && !word.contains('.'))?;
    Some(word).filter(|word| word.len() > 2)
}

/// Whether a command or one of its subcommands has an option.
fn any_has(command: &Command, option: &str) -> bool {
    let is_version = option == "--version";
    is_version || has_option(command, option) || command.get_subcommands().any(|below| any_has(below, option))
}

/// The commands and options of a page that do not exist, with their lines. Options of other programs are added to
/// `others`.
fn broken<'p>(root: &Command, text: &'p str, others: &mut BTreeSet<&'p str>) -> Vec<String> {
    let mut broken = Vec::new();
    for (line, code, is_span) in code(text) {
        let commands = commands_of(code, is_span, root);
        broken.extend(commands.iter().filter_map(|words| unknown(root, words)).map(|name| format!("{line} {name}")));
        if let Some(option) = bare_option(code).filter(|option| is_span && !any_has(root, option)) {
            if OTHERS.iter().any(|(other, _)| *other == option) {
                others.insert(option);
            } else {
                broken.push(format!("{line} {option}"));
            }
        }
    }
    broken
}

/// Adds the Markdown pages of a folder and its subfolders.
fn pages(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("the folder is there").flatten() {
        let path = entry.path();
        if path.is_dir() && !path.ends_with("node_modules") {
            pages(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
}

#[test]
fn every_command_and_option_in_the_documentation_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let names = ["README.md", "CHANGELOG.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md"];
    let mut found: Vec<PathBuf> = names.iter().map(|name| root.join(name)).collect();
    ["docs", "examples"].iter().for_each(|folder| pages(&root.join(folder), &mut found));
    let texts: Vec<String> = found.iter().map(|path| std::fs::read_to_string(path).expect("a page is text")).collect();
    let command = documented();
    let (mut broken_places, mut others, mut commands) = (Vec::new(), BTreeSet::new(), 0);
    for (path, text) in found.iter().zip(&texts) {
        let broken = broken(&command, text, &mut others);
        broken_places.extend(broken.into_iter().map(|broken| format!("{}:{broken}", path.display())));
        commands +=
            code(text).iter().map(|(_, code, is_span)| commands_of(code, *is_span, &command).len()).sum::<usize>();
    }
    assert!(commands > 80, "commands are found: {commands}");
    assert!(broken_places.is_empty(), "commands and options that do not exist:\n  {}", broken_places.join("\n  "));
    let stale: Vec<&str> = OTHERS.iter().map(|(other, _)| *other).filter(|other| !others.contains(other)).collect();
    assert!(stale.is_empty(), "no page names them: {stale:?}");
}

#[test]
fn a_command_or_an_option_that_does_not_exist_is_found() {
    let command = documented();
    let broken = |text: &str| broken(&command, text, &mut BTreeSet::new());
    for text in [
        "`touchline publish --ca x.pem -c y` and `--open-to-network`",
        "```sh\ntouchline serve --health.enabled --dev\ntouchline --version\n```",
        "```sh\ntouchline-lab fanout --preset steady --runs 3\n./x bench fanout --preset burst\n```",
        "a touchline that is --not a command, `touchline format=1`, and `touchline`",
        "`serve --dev`, `lab channels`, `migrate status`, `--workspace`, `curl --compressed`",
        "`cargo run --release -- --open-to-network`",
    ] {
        assert_eq!(broken(text), Vec::<String>::new(), "{text}");
    }
    for text in [
        "`touchline publish --nope`",
        "```\ntouchline watch a --token \"$(touchline token --usr 42)\"\n```",
        "```\ntouchline-lab fanout --presets steady\n```",
        "`touchline check -x`",
        "`touchline publsh news 1`",
        "`touchline-lab fanin`, and `touchline --versions`",
        "```\n./x bench fanout --presets burst\n```",
        "`cargo run --release -- --open-to-all`",
        "`serve --development`",
        "`lab fanin`",
        "`--open-to-all`",
    ] {
        assert!(!broken(text).is_empty(), "{text}");
    }
}
