//! `touchline explain`: the steps of a decision, and the exit status.

use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

use super::{CONFIGURATION, run, text};

/// Runs `explain` on the configuration of the tests, with a backend for hooks.
fn explain(arguments: &[&str]) -> (Option<i32>, String) {
    // Tests run at the same time with the same arguments, so each call has a number.
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let number = CALLS.fetch_add(1, Ordering::Relaxed);
    let name = format!("touchline-commands-{}-explain-{number}.toml", std::process::id());
    let file = std::env::temp_dir().join(name);
    let hooks =
        "channel.proxy.publish.endpoint = \"http://ann:secret@127.0.0.1:9/publish?key=1\"\n".replace("ann:secret@", "");
    let (keys, namespaces) = CONFIGURATION.split_once("[[").expect("it has namespaces");
    let more = "[[channel.namespaces]]\nname = \"chat\"\npublish_proxy_enabled = true\n";
    std::fs::write(&file, format!("{keys}{hooks}[[{namespaces}{more}")).expect("the directory is writable");
    let path = file.display().to_string();
    let output = run(&[&["explain", "--config", &path], arguments].concat());
    let _ = std::fs::remove_file(&file);
    (output.status.code(), text(&output.stdout) + &text(&output.stderr))
}

#[test]
fn the_last_step_decides_and_the_exit_status_says_what() {
    let cases: &[(&[&str], i32, &str)] = &[
        (&["--user", "42", "--action", "subscribe", "--channel", "news:1"], 0, "\nallowed\n"),
        (&["--user", "42", "--action", "subscribe", "--channel", "quiet:1"], 1, "refused with error 103"),
        (&["--user", "42", "--action", "subscribe", "--channel", "none:1"], 1, "refused with error 102"),
        (&["--user", "42", "--action", "publish", "--channel", "news:1"], 1, "refused with error 103"),
        (&["--user", "42", "--action", "publish", "--channel", "chat:1"], 3, "channel.proxy.publish"),
        (&["--user", "42", "--action", "rpc", "--method", "mine"], 1, "refused with error 108"),
        (&["--action", "connect"], 1, "refused with disconnect 35"),
        (&["--action", "connect", "--user", "42"], 1, "refused with disconnect 35"),
        (&["--action", "connect", "--token", "nonsense"], 1, "refused with disconnect 3500"),
    ];
    for (arguments, status, expected) in cases {
        let (code, said) = explain(arguments);
        assert_eq!(code, Some(*status), "{arguments:?}: {said}");
        assert!(said.contains(expected) && said.starts_with(" 1. "), "{arguments:?}: {said}");
        assert!(!said.contains("a secret of this test") && !said.contains("key=1"), "a secret is shown: {said}");
    }
}

#[test]
fn caps_of_a_token_open_a_channel() {
    let secret = super::SECRET;
    let claims = r#"{"caps": [{"channels": ["quiet:*"], "match": "wildcard", "allow": ["sub", "pub"]}]}"#;
    let output = run(&["token", "--user", "42", "--secret", secret, "--claims", claims]);
    let token = text(&output.stdout);
    for action in ["subscribe", "publish"] {
        let (code, said) = explain(&["--token", token.trim(), "--action", action, "--channel", "quiet:1"]);
        assert!(code == Some(0) && said.contains("caps of the connection"), "{action}: {said}");
    }
    let (code, said) = explain(&["--token", token.trim(), "--action", "history", "--channel", "quiet:1"]);
    assert_eq!(code, Some(1), "{said}");
}

#[test]
fn the_steps_are_json_too() {
    let (code, said) = explain(&["--user", "42", "--action", "publish", "--channel", "chat:1", "--json"]);
    let json: Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(
        (code, &json["verdict"]["says"], &json["verdict"]["hook"]),
        (Some(3), &"asks".into(), &"publish".into())
    );
    assert!(json["steps"].as_array().is_some_and(|steps| steps.len() > 2), "{json}");
}

#[test]
fn what_is_missing_is_told() {
    for (arguments, cause) in [
        (&["--user", "42", "--action", "publish"][..], "--channel is missing"),
        (&["--user", "42", "--action", "rpc"], "--method is missing"),
        (&["--user", "42", "--action", "rpc", "--method", "a", "--data", "{"], "--data is not JSON"),
        (&["--user", "4\n2", "--action", "rpc", "--method", "a"], "--user has control characters"),
        (&["--user", "42"], "--action"),
    ] {
        let (code, said) = explain(arguments);
        assert!(code == Some(2) && said.contains(cause), "{arguments:?}: {code:?} {said}");
    }
    let output = run(&["explain", "--config", "/no/such/file.toml", "--action", "connect"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
}

#[test]
fn it_says_what_it_does_not_know() {
    let (_, said) = explain(&["--user", "42", "--action", "subscribe", "--channel", "news:1"]);
    assert!(
        said.ends_with("\nexplain calls no backend, and does not know bans, rates or other connections.\n"),
        "{said}"
    );
}
