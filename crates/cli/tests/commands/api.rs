//! `touchline api`: any operation of a real server from a shell.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use crate::{BINARY, KEY, Server, run, text};

impl Server {
    /// Calls `touchline api` at this server.
    fn call(&self, words: &[&str]) -> Output {
        let (api, path) = (self.api(), self.path());
        let words = [&["api"], words, &["--api", &api, "--config", &path]].concat();
        run(&words)
    }
}

fn json(output: &Output) -> serde_json::Value {
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("it prints JSON")
}

#[test]
fn an_operation_is_called_and_its_result_is_printed() {
    let server = Server::start("api");
    let published = server.call(&["publish", "channel=news:a", r#"data={"goal": 1}"#]);
    assert!(published.status.success() && published.stderr.is_empty(), "{}", text(&published.stderr));
    assert!(text(&published.stdout).ends_with("offset: 1\n"), "{}", text(&published.stdout));
    let more = server.call(&["publish", "channel=news:a", "data=2", "tags={\"a\": \"b\"}", "--json"]);
    assert_eq!(json(&more)["result"]["offset"], 2);
    let history = json(&server.call(&["history", "channel=news:a", "limit=10", "--json"]));
    let found: Vec<_> = history["result"]["publications"].as_array().expect("a list").iter().collect();
    assert_eq!(
        (&found[0]["data"]["goal"], &found[1]["data"], &found[1]["tags"]["a"]),
        (&1.into(), &2.into(), &"b".into())
    );
    // A user whose name consists of digits is a text.
    let done = server.call(&["disconnect", "user=42"]);
    assert_eq!((text(&done.stdout), done.status.code()), ("done\n".to_owned(), Some(0)));
}

#[test]
fn a_whole_request_comes_from_a_word_a_file_or_a_pipe() {
    let server = Server::start("api-data");
    let request = r#"{"channel": "news:a", "data": "whole"}"#;
    let file = server.file.with_extension("request");
    std::fs::write(&file, request).expect("the temporary directory is writable");
    let at_file = format!("@{}", file.display());
    for data in [request, &at_file] {
        assert!(server.call(&["publish", "--data", data]).status.success(), "{data}");
    }
    std::fs::remove_file(&file).expect("it was written");
    let (api, path) = (server.api(), server.path());
    let words = ["api", "publish", "--data", "-", "channel=news:b", "--api", &api, "--config", &path, "--json"];
    let mut piped =
        Command::new(BINARY).args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it runs");
    piped.stdin.take().expect("the stream is piped").write_all(request.as_bytes()).expect("it reads");
    let output = piped.wait_with_output().expect("it ends");
    assert_eq!(json(&output)["result"]["offset"], 1);
    for (channel, count) in [("news:a", 2), ("news:b", 1)] {
        let history = json(&server.call(&["history", &format!("channel={channel}"), "limit=-1", "--json"]));
        assert_eq!(history["result"]["publications"].as_array().map(Vec::len), Some(count), "{channel}");
    }
    let gone = server.call(&["publish", "--data", &at_file]);
    assert_eq!(gone.status.code(), Some(1), "{}", text(&gone.stderr));
}

#[test]
fn an_error_of_the_server_has_its_number_its_remedy_and_exit_code_one() {
    let server = Server::start("api-error");
    let unknown = server.call(&["publish", "channel=nothing:here", "data=1"]);
    let said = text(&unknown.stderr);
    let expected = "touchline: error 102: unknown channel: no namespace of channel.namespaces is named \"nothing\" \
                    (UNKNOWN_CHANNEL). ";
    assert!(said.starts_with(expected), "{said}");
    assert!(said.contains("channel.namespaces"), "the remedy: {said}");
    assert_eq!((unknown.status.code(), unknown.stdout.is_empty()), (Some(1), true));
    let as_it_is = server.call(&["publish", "channel=nothing:here", "data=1", "--json"]);
    assert_eq!(as_it_is.status.code(), Some(1));
    let answer: serde_json::Value = serde_json::from_slice(&as_it_is.stdout).expect("it prints JSON");
    assert_eq!(answer["error"]["code"], 102);
    let mistyped = server.call(&["history", "channel=news:a", "limit:=\"ten\""]);
    assert_eq!((mistyped.status.code(), mistyped.stdout.is_empty()), (Some(1), true), "{}", text(&mistyped.stderr));
    let api = server.api();
    let guess = run(&["api", "info", "--api", &api, "--key", "guess"]);
    assert!(text(&guess.stderr).contains("refused the key (401)") && guess.status.code() == Some(1));
    assert!(!text(&guess.stderr).contains(KEY));
}

#[test]
fn what_was_typed_wrongly_is_told_with_the_nearest_name_and_exit_code_two() {
    for (words, expected) in [
        (&["publsh", "channel=a"][..], "publish"),
        (&["publish", "chanel=a"], "did you mean channel?"),
        (&["publish", "channel=a", "data=hello"], "data takes JSON"),
        (&["publish", "channel"], "has no value"),
        (&["publish", "--channel", "a"], "tip: fields have no hyphens: channel=VALUE"),
        (&["publish", "--data", "[]"], "--data must be a JSON object"),
        (&["history", "limit=ten"], "limit takes a whole number"),
        (&[], "Usage: touchline api"),
        (&["--list", "publish"], "cannot be used"),
    ] {
        // The command calls no server: none is running.
        let output = run(&[&["api"], words].concat());
        assert_eq!((output.status.code(), output.stdout.is_empty()), (Some(2), true), "{words:?}");
        assert!(text(&output.stderr).contains(expected), "{words:?}: {}", text(&output.stderr));
    }
}

#[test]
fn the_help_of_every_operation_is_made_from_the_table() {
    let list = run(&["api", "--list"]);
    let listed = text(&list.stdout);
    assert!(list.status.success());
    assert_eq!(listed.lines().count(), touchline_server::operations().count());
    for (operation, line) in touchline_server::operations().zip(listed.lines()) {
        let words = line.split_once(char::is_whitespace).expect("a name and a summary");
        assert_eq!((words.0, words.1.trim()), (operation.name, operation.summary));
    }
    let help = text(&run(&["api", "publish", "--help"]).stdout);
    for part in [
        "channel          text",
        "data             any JSON",
        "expires_in       a whole number",
        "`offset`, `epoch`",
        "102  unknown channel",
        "touchline api publish channel=news data='{\"headline\":\"Kick-off\"}'",
    ] {
        assert!(help.contains(part), "{part} is not in {help}");
    }
}

/// The completions that a shell gets. The call is the same as in the script for fish.
fn completed(words: &[&str]) -> String {
    let output =
        Command::new(BINARY).env("TOUCHLINE_COMPLETE", "fish").arg("--").args(words).output().expect("it runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn a_shell_completes_operations_and_their_fields() {
    let has = |found: &str, name: &str| found.lines().any(|line| line.split('\t').next() == Some(name));
    let operations = completed(&["touchline", "api", ""]);
    for operation in touchline_server::operations() {
        assert!(has(&operations, operation.name), "{} is not in {operations}", operation.name);
    }
    let fields = completed(&["touchline", "api", "publish", ""]);
    assert!(has(&fields, "channel=") && has(&fields, "skip_history=") && !has(&fields, "user="), "{fields}");
    let second = completed(&["touchline", "api", "history", "channel=a", "re"]);
    assert!(has(&second, "reverse=") && !has(&second, "channel="), "{second}");
    let values = completed(&["touchline", "api", "history", "reverse="]);
    assert!(has(&values, "reverse=true") && has(&values, "reverse=false"), "{values}");
    assert!(has(&completed(&["touchline", "ser"]), "serve"));
}

#[test]
fn the_script_of_a_shell_completes_in_that_shell() {
    for shell in ["bash", "zsh", "fish"] {
        let script = run(&["completions", shell]);
        assert!(script.status.success() && text(&script.stdout).contains("TOUCHLINE_COMPLETE"), "{shell}");
    }
    // The call that bash makes when a person presses the key. bash splits words at `=` and replaces the last part.
    let folder = std::path::Path::new(BINARY).parent().expect("a folder").display().to_string();
    let path = format!("{folder}:{}", std::env::var("PATH").unwrap_or_default());
    for (line, expected) in [
        ("touchline api publish ch", "channel=\n"),
        ("touchline api publish channel=a sk", "skip_history=\n"),
        ("touchline api history channel=a reverse=", "true\nfalse\n"),
        ("touchline api history reverse=t", "true\n"),
        ("touchline api hist", "history\nhistory_remove\n"),
    ] {
        let pressed = format!(
            "source <(touchline completions bash)
            COMP_LINE='{line}' COMP_POINT=${{#COMP_LINE}} COMP_TYPE=9
            f=$(complete -p touchline | sed 's/.*-F \\([^ ]*\\).*/\\1/'); $f touchline x y 2>/dev/null
            printf '%s\\n' \"${{COMPREPLY[@]}}\""
        );
        let output = Command::new("bash").args(["-c", &pressed]).env("PATH", &path).output().expect("bash runs");
        assert_eq!(text(&output.stdout), expected, "{line}: {}", text(&output.stderr));
    }
}

#[test]
fn the_lines_of_the_page_work_as_they_are_pasted() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("docs/reference/command-line.md")).expect("the page is there");
    let section = page.split("\n## ").find(|part| part.starts_with("Any operation")).expect("it has the section");
    let block = section.split("```sh\n").nth(1).and_then(|rest| rest.split("```").next()).expect("it has a block");
    let server = Server::start("api-page");
    let folder = server.file.with_extension("page");
    std::fs::create_dir(&folder).expect("the temporary directory is writable");
    std::fs::write(folder.join("request.json"), r#"{"data": 1}"#).expect("it is writable");
    let binaries = std::path::Path::new(BINARY).parent().expect("a folder").display().to_string();
    let mut shell = Command::new("sh");
    shell.args(["-ec", block]).current_dir(&folder).env("TOUCHLINE_CONFIG", server.path());
    shell.env("PATH", format!("{binaries}:{}", std::env::var("PATH").unwrap_or_default()));
    shell.env("TOUCHLINE_HTTP_SERVER_PORT", server.address.rsplit(':').next().expect("a port"));
    let output = shell.output().expect("sh runs");
    std::fs::remove_dir_all(&folder).expect("it was made");
    let said = text(&output.stdout);
    assert!(output.status.success() && block.lines().count() == 4, "{said} {}", text(&output.stderr));
    assert!(said.contains(r#""headline":"#) && said.contains("done\n") && said.contains("responses:"), "{said}");
}

#[test]
fn a_key_comes_from_a_file_so_that_no_list_of_processes_shows_it() {
    let server = Server::start("api-key");
    let file = server.file.with_extension("key");
    std::fs::write(&file, "the-key-of-this-test\n").expect("the temporary directory is writable");
    let info = |key: &str| {
        let mut command = Command::new(BINARY);
        command.args(["api", "info", "--api", &server.api()]).env_clear().env("TOUCHLINE_HTTP_API_KEY_FILE", key);
        command.output().expect("it runs")
    };
    let (found, missing) = (info(&file.display().to_string()), info("/no/such/key"));
    std::fs::remove_file(&file).expect("it was written");
    assert!(found.status.success(), "{}", text(&found.stderr));
    assert_eq!(missing.status.code(), Some(1), "{}", text(&missing.stderr));
}
