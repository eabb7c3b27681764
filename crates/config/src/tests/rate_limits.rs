//! `client.rate_limit`: which values are read, and which are refused.

use super::toml;

fn found(text: &str) -> Vec<String> {
    toml(text).findings.iter().map(|finding| finding.text.clone()).filter(|text| text.contains("rate_limit")).collect()
}

#[test]
fn the_examples_of_centrifugo_are_read() {
    let text = r#"
        [client.rate_limit.client_command]
        enabled = true
        total = {enabled = true, buckets = [{interval = "1s", rate = 20}, {interval = "60s", rate = 50}]}
        default = {enabled = true, buckets = [{interval = "1s", rate = 60}]}
        publish = {enabled = true, buckets = [{interval = "1s", rate = 1}]}
        [client.rate_limit.client_command.rpc]
        enabled = true
        buckets = [{interval = "1s", rate = 10}]
        method_overrides = [{method = "update", enabled = true, buckets = [{interval = "20s", rate = 1}]}]
        [client.rate_limit.user_command]
        enabled = true
        connect = {enabled = true, buckets = [{interval = 60, rate = 5}]}
        rpc = {method_override = {update = {enabled = true, buckets = [{interval = "20s", rate = 1}]}}}
        [client.rate_limit.client_error]
        enabled = true
        total = {enabled = true, buckets = [{interval = "5s", rate = 20}]}
        [[channel.namespaces]]
        name = "chat"
    "#;
    assert_eq!(found(text), Vec::<String>::new());
    let limits = toml(text).configuration.expect("it is good").settings.client.rate_limit;
    let commands = &limits.client_command;
    assert_eq!((commands.total.buckets.0.len(), commands.publish.buckets.0[0].rate), (2, 1));
    assert_eq!(commands.rpc.method_overrides.0[0].name, "update");
    let user = &limits.user_command;
    assert_eq!(user.connect.buckets.0[0].interval.as_secs(), 60);
    assert_eq!(user.commands.rpc.method_override.0[0].buckets.0[0].interval.as_secs(), 20);
    assert!(limits.client_error.total.enabled);
}

#[test]
fn what_contradicts_itself_is_told() {
    let rate = "buckets = [{interval = \"1s\", rate = 1}]";
    for (text, expected) in [
        ("client_command = {publish = {buckets = [{interval = \"0s\", rate = 1}]}}".to_owned(), "1ms to 24h"),
        ("client_command = {publish = {buckets = [{interval = \"25h\", rate = 1}]}}".to_owned(), "1ms to 24h"),
        ("client_command = {total = {buckets = [{interval = \"1s\", rate = 1000001}]}}".to_owned(), "1 to 1000000"),
        ("user_command = {connect = {buckets = [{interval = \"1s\", rate = 0}]}}".to_owned(), "above zero"),
        (
            format!(
                "client_command = {{rpc = {{method_overrides = [{{method = \"m\", {rate}}}], \
                 method_override = {{m = {{{rate}}}}}}}}}"
            ),
            "keep one",
        ),
        (
            format!("client_command = {{history = {{namespace_overrides = [{{namespace_name = \"x\", {rate}}}]}}}}"),
            "no namespace",
        ),
        (
            format!("address_command = {{publish = {{namespace_overrides = [{{namespace_name = \"\", {rate}}}]}}}}"),
            "a name is empty",
        ),
        (
            format!(
                "user_command = {{rpc = {{method_overrides = [{{method = \"m\", {rate}}}, \
                 {{method = \"m\", {rate}}}]}}}}"
            ),
            "listed twice",
        ),
        ("client_command = {enabled = true, publish = {enabled = true}}".to_owned(), "without buckets"),
        ("client_command = {enabled = true}".to_owned(), "without an enabled block"),
        (
            format!("client_command = {{publish = {{enabled = true, {rate}}}}}"),
            "client_command.publish.enabled: has no effect while client.rate_limit.client_command.enabled is false",
        ),
        ("user_command = {rpc = {buckets = [{interval = \"1s\", rate = -1}]}}".to_owned(), "rate is -1"),
        (
            "user_command = {rpc = {buckets = [{interval = \"1s\", rate = 5000000000}]}}".to_owned(),
            "rate is 5000000000",
        ),
        ("user_command = {rpc = {buckets = [{interval = \"1s\"}]}}".to_owned(), "missing field `rate`"),
        (format!("failed_connect = {{enabled = true, refused_for = \"0s\", {rate}}}"), "nobody is refused"),
        ("on_limit = \"slow\"\nslow_wait_max = \"30s\"".to_owned(), "give up a command"),
        (
            format!(
                "escalation = {{enabled = true, refusals = 11, interval = \"10s\"}}\n\
                 client_command = {{enabled = true, total = {{enabled = true, {rate}}}}}"
            ),
            "never reached",
        ),
        ("client_error = {enabled = true}".to_owned(), "unless client_error.total is enabled"),
        ("failed_connect = {enabled = true}".to_owned(), "without buckets"),
        ("escalation = {enabled = true}".to_owned(), "no command is refused"),
        (
            format!(
                "escalation = {{enabled = true, refusals = 1, interval = 0}}\n\
                 client_command = {{enabled = true, total = {{enabled = true, {rate}}}}}"
            ),
            "1ms to 24h",
        ),
        ("on_limit = \"slow\"\nslow_wait_max = \"2h\"".to_owned(), "1ms to 1h"),
        ("client_command = {connect = {enabled = true}}".to_owned(), "unknown key"),
        ("redis_user_command = {enabled = true}".to_owned(), "user_command` has the same keys and counts on each node"),
        ("on_limit = \"wait\"".to_owned(), "expected one of \"error\", \"slow\""),
    ] {
        let found = found(&format!("[client.rate_limit]\n{text}\n"));
        assert!(found.len() == 1 && found[0].contains(expected), "{text}: {found:?}");
    }
}
