//! `touchline print-config`: each value and its source.

use crate::place::{Place, text};

const YAML: &str = "\
http_server:
  port: 8001
client:
  token:
    hmac_secret_key: a secret of this test, long enough for HS256
channel:
  namespaces:
    - name: news
      history_size: 10
      history_ttl: 1h
store:
  primary:
    url: postgres://app:s3cret@db/x
";

#[test]
fn each_value_is_shown_with_its_place_and_no_secret() {
    let place = Place::new("");
    place.write("t.yaml", YAML);
    let mut command = place.command(&["print-config", "t.yaml", "--log.level", "debug"]);
    command.env("TOUCHLINE_HTTP_API_KEY", "s3cret-key-of-this-test").env("TOUCHLINE_CLIENT_CHANNEL_LIMIT", "7");
    let output = command.output().expect("the binary runs");
    let said = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let expected = [
        "channel.namespaces[news].history_size = 10  # t.yaml:9:7",
        "channel.namespaces[news].history_ttl = \"1h\"  # t.yaml:10:7",
        "channel.namespaces[news].name = \"news\"  # t.yaml:8:7",
        "client.channel_limit = 7  # TOUCHLINE_CLIENT_CHANNEL_LIMIT",
        "client.token.hmac_secret_key = (hidden)  # t.yaml:5:5",
        "http_api.key = (hidden)  # TOUCHLINE_HTTP_API_KEY",
        "http_server.port = 8001  # t.yaml:2:3",
        "log.level = \"debug\"  # --log.level",
        "store.primary.url = \"postgres://***@db/x\"  # t.yaml:13:5",
    ];
    assert_eq!(said.lines().collect::<Vec<_>>(), expected);
    let all = text(&place.run(&["print-config", "t.yaml", "--all"]).stdout);
    assert!(all.contains("http_server.backlog = 65535  # default"), "{all}");
    assert!(!all.contains("s3cret"), "{all}");
    let json = place.run(&["print-config", "t.yaml", "--json", "--all"]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).expect("it prints JSON");
    assert_eq!(json["http_server.port"], serde_json::json!({ "value": 8001, "from": "t.yaml:2:3" }));
    assert_eq!(json["health.enabled"], serde_json::json!({ "value": false, "from": "default" }));
}

#[test]
fn a_configuration_with_errors_is_shown_as_far_as_it_can_be_read() {
    let place = Place::new("");
    place.write("t.yaml", "http_server:\n  port: many\nengine_password: s3cret\n");
    let output = place.run(&["print-config", "t.yaml"]);
    assert_eq!(output.status.code(), Some(1));
    let (said, errors) = (text(&output.stdout), text(&output.stderr));
    assert!(said.contains("http_server.port = (hidden)  # t.yaml:2:3"), "{said}");
    assert!(said.contains("engine_password = (hidden)  # t.yaml:3:1"), "{said}");
    assert!(errors.contains("t.yaml:2:3: http_server.port: expected a number"), "{errors}");
    assert!(!said.contains("s3cret") && !errors.contains("s3cret"), "{said}{errors}");
}
