//! How tests wait: fixed sleeps are rare and have a reason, short settings have a reason, and tests read metrics only
//! inside of waits.

use std::path::{Path, PathBuf};

use touchline_house::files::{report, root, sources};

/// The most fixed sleeps in all tests of Rust.
const SLEEPS_MAX: usize = 20;
/// The beginning of the comment of a fixed sleep.
const WAITS: &str = "// waits:";
/// A duration in a setting of a test that is shorter than this needs a comment, milliseconds.
const SHORT_MS: u64 = 5_000;
/// The crates whose tests pass the time as an argument.
const PURE: &[&str] = &["crates/protocol", "crates/registry", "crates/engine"];
/// The folder whose tests read metrics of a running server.
const IT: &str = "crates/server/tests/it";
/// The functions of the test kit that wait.
const WAITERS: &[&str] = &["until(", "until_eq(", "until_some(", "comes("];
/// The beginning of the comment of a metric that a test may read once.
const ONCE: &str = "// read once:";

/// The test code of all files: the path, the number of lines before it, and its text. The lab measures by time, the
/// clock tests its own waits, and this file contains examples.
fn tests() -> Vec<(PathBuf, usize, String)> {
    let is_lab = |path: &Path| path.components().any(|part| part.as_os_str() == "lab") || path.ends_with("lab.rs");
    let is_clock = |path: &Path| path.ends_with("clock/src/lib.rs");
    let is_other = |path: &Path| is_lab(path) || is_clock(path) || path.ends_with("rules/waits.rs");
    let mut found = Vec::new();
    for (path, text) in sources().into_iter().filter(|(path, _)| !is_other(path)) {
        let path = path.strip_prefix(root()).unwrap_or(&path).to_owned();
        let is_test = path.components().any(|part| part.as_os_str() == "tests") || path.ends_with("tests.rs");
        if is_test || path.starts_with("crates/testkit") {
            found.push((path, 0, text));
        } else if let Some(at) = text.find("#[cfg(test)]\nmod ") {
            found.push((path, text[..at].lines().count(), text[at..].to_owned()));
        }
    }
    found
}

/// The lines of a text that contain code for which `is_it` is true, and no comment that begins with `reason`, neither
/// on the line nor on the line before.
fn without<'t>(text: &'t str, reason: &str, is_it: impl Fn(&str) -> bool) -> Vec<(usize, &'t str)> {
    let lines: Vec<&str> = text.lines().collect();
    let has_reason = |at: usize| lines[at].contains(reason) || at > 0 && lines[at - 1].contains(reason);
    let is_broken = |at: &usize| is_it(lines[*at].split("//").next().unwrap_or_default()) && !has_reason(*at);
    (0..lines.len()).filter(is_broken).map(|at| (at + 1, lines[at].trim())).collect()
}

/// Whether a line contains a call of `sleep`.
fn sleeps(code: &str) -> bool {
    has_call(code, "sleep(")
}

#[test]
fn fixed_sleeps_are_few_and_have_a_reason() {
    let mut broken = Vec::new();
    let mut count = 0;
    for (path, before, text) in tests() {
        count += text.lines().filter(|line| sleeps(line.split("//").next().unwrap_or_default())).count();
        let lines = without(&text, WAITS, sleeps);
        broken.extend(lines.iter().map(|(line, code)| format!("{}:{} {code}", path.display(), before + line)));
    }
    report("fixed sleeps without a comment `// waits: …`", &broken);
    assert!((1..=SLEEPS_MAX).contains(&count), "{count} fixed sleeps: wait for an event, or publish a marker");
}

/// The shortest duration in seconds or milliseconds that a line writes into a field or a variable of settings.
fn short_setting(code: &str) -> Option<u64> {
    let is_other =
        ["let ", "const ", "static ", "fn ", "sleep(", "_timeout(Some("].iter().any(|word| code.contains(word));
    let durations =
        [("Duration::from_millis(", 1), ("Duration::from_secs(", 1_000)].into_iter().flat_map(|(call, unit)| {
            code.match_indices(call).filter_map(move |(at, _)| {
                let is_written = code[..at].trim_end_matches("std::time::").trim_end().ends_with(['=', ':', '(', ',']);
                let number: String =
                    code[at + call.len()..].chars().take_while(|c| c.is_ascii_digit() || *c == '_').collect();
                let is_setting =
                    is_written && (code.contains(" = ") || code[..at].trim_end_matches("std::time::").ends_with(": "));
                is_setting.then(|| number.replace('_', "").parse::<u64>().ok().map(|number| number * unit))?
            })
        });
    durations.min().filter(|ms| (1..SHORT_MS).contains(ms) && !is_other)
}

#[test]
fn a_short_duration_in_a_setting_has_a_reason() {
    let mut broken = Vec::new();
    for (path, before, text) in tests().into_iter().filter(|(path, ..)| !PURE.iter().any(|pure| path.starts_with(pure)))
    {
        let lines = without(&text, "// ", |code| short_setting(code).is_some());
        broken.extend(lines.iter().map(|(line, code)| format!("{}:{} {code}", path.display(), before + line)));
    }
    report("durations below 5 s without a comment that says why a pause of the machine does no harm", &broken);
}

/// The end of the brackets that open at a place of a text.
pub(crate) fn closing(text: &str, open: usize) -> usize {
    let mut depth = 0;
    for (at, c) in text[open..].char_indices() {
        match c {
            '(' | '{' | '[' => depth += 1,
            ')' | '}' | ']' => depth -= 1,
            _ => continue,
        }
        if depth == 0 {
            return open + at;
        }
    }
    text.len()
}

/// The helpers of a text that contain one of the calls: name and place. A helper is a closure, or a function that
/// returns a value.
fn helpers(text: &str, calls: &[String]) -> Vec<(String, std::ops::Range<usize>)> {
    let functions = text.match_indices("fn ").filter_map(|(at, _)| {
        let open = at + text[at..].find(" {\n")? + 1;
        text[at..open].contains("->").then(|| (at + 3, at..closing(text, open)))
    });
    let closures = text.match_indices("let ").filter_map(|(at, _)| {
        let end = at + text[at..].find(";\n")?;
        let statement = text[at..end].split_once(" = ")?.1;
        let is_closure = statement.starts_with(['|']) || statement.starts_with("move |");
        let end = if text[at..end].contains("{\n") { closing(text, at + text[at..].find("{\n")?) } else { end };
        is_closure.then_some((at + 4, at..end))
    });
    let name = |at: usize| text[at..].split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
    let all =
        functions.chain(closures).filter(|(_, span)| calls.iter().any(|call| has_call(&text[span.clone()], call)));
    all.map(|(at, span)| (format!("{}(", name(at)), span)).collect()
}

/// The lines of a text that read metrics, neither inside of a wait nor inside of a helper.
fn hasty_reads(text: &str) -> Vec<(usize, &str)> {
    let mut calls = vec!["metric(".to_owned(), "\"/metrics\"".to_owned()];
    let mut spans: Vec<std::ops::Range<usize>> = Vec::new();
    loop {
        let found = helpers(text, &calls);
        let new: Vec<String> =
            found.iter().map(|(name, _)| name.clone()).filter(|name| !calls.contains(name)).collect();
        spans = found.into_iter().map(|(_, span)| span).chain(spans).collect();
        if new.is_empty() {
            break;
        }
        calls.extend(new);
    }
    for waiter in WAITERS {
        let open = |at: usize| at + waiter.len() - 1;
        spans.extend(text.match_indices(waiter).map(|(at, _)| at..closing(text, open(at))));
    }
    let lines = without(text, ONCE, |code| calls.iter().any(|call| has_call(code, call)));
    let starts: Vec<usize> = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
    let is_inside = |line: usize| {
        let start = starts[line - 1];
        let code = text[start..].lines().next().unwrap_or_default();
        let at = calls.iter().filter_map(|call| code.find(call.as_str())).min().unwrap_or_default();
        spans.iter().any(|span| span.contains(&(start + at)))
    };
    lines.into_iter().filter(|(line, _)| !is_inside(*line)).collect()
}

/// Whether a text contains a call as a whole word, and not SQL's `count(*)`.
fn has_call(code: &str, call: &str) -> bool {
    code.match_indices(call).any(|(at, _)| {
        let is_part = code[..at].ends_with(|c: char| c == '_' || c.is_alphanumeric());
        !is_part && !code[at + call.len()..].starts_with('*')
    })
}

#[test]
fn metrics_are_read_inside_of_waits() {
    let mut broken = Vec::new();
    for (path, _, text) in tests().into_iter().filter(|(path, ..)| path.starts_with(IT)) {
        let lines = hasty_reads(&text);
        broken.extend(lines.iter().map(|(line, code)| format!("{}:{line} {code}", path.display())));
    }
    report("metrics outside of until, until_eq, until_some and comes", &broken);
}

#[test]
fn hasty_reads_short_settings_and_sleeps_are_found() {
    let text = "\
        fn count(server: &S) -> u64 {\n    server.metric(\"a\")\n}\n\
        #[test]\nfn a() {\n    until(\"b\", || server.metric(\"b\") == 1);\n    assert_eq!(server.metric(\"c\"), 1);\n\
        \x20   assert_eq!(count(&s), 1);\n    let d = || server.metric(\"d\");\n    until_eq(1, || d());\n    d();\n\
        \x20   // read once: the value is final.\n    server.metric(\"e\");\n}\n";
    assert_eq!(hasty_reads(text).iter().map(|(line, _)| *line).collect::<Vec<_>>(), [7, 8, 11]);
    for (code, expected) in [
        ("settings.a = Duration::from_millis(300);", Some(300)),
        ("    timeout: std::time::Duration::from_secs(2),", Some(2_000)),
        ("let a = Duration::from_secs(2);", None),
        ("settings.a = Duration::from_secs(5);", None),
        ("socket.set_read_timeout(Some(Duration::from_millis(5)))", None),
    ] {
        assert_eq!(short_setting(code), expected, "{code}");
    }
    assert!(sleeps("std::thread::sleep(pause);") && !sleeps("SELECT pg_sleep(5)"));
    assert_eq!(without("// waits: why\nsleep(a);\nsleep(b);\n", WAITS, sleeps), [(3, "sleep(b);")]);
}
