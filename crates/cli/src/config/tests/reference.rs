//! Makes `docs/configuration.md` from the tables of keys, and sees that the file in the repository is up to date.

use std::fmt::Write as _;

use super::is_up_to_date;
use crate::config::keys::{KEYS, Key, Kind, OPTIONS, SCOPE_OPTIONS};
use crate::config::unsupported::{Disposition, UNSUPPORTED, UNSUPPORTED_OPTIONS, UnsupportedKey};

const HEAD: &str = r#"# Configuration

*Made from the tables in `crates/cli/src/config/`; edit those, then run `TOUCHLINE_WRITE_DOCS=1 cargo test -p touchline up_to_date`.*

One file, the environment and flags; each wins over the one before it.

- **File**: `touchline serve --config FILE` (or `TOUCHLINE_CONFIG=FILE`), TOML or JSON by its extension. `touchline genconfig` prints a
  small one with fresh secrets, `touchline genconfig --all` adds every key as a comment, `touchline check FILE` says what is wrong with one.
  It refuses what `serve` would refuse because of the configuration itself; a port that is taken, a file or a database that cannot be opened and a
  server that is not there only a start finds.
- **Environment**: `TOUCHLINE_` and the key in capitals with `_` for `.`: `TOUCHLINE_HTTP_API_KEY`, `TOUCHLINE_CLIENT_TOKEN_HMAC_SECRET_KEY`.
  Lists are words separated by spaces, or JSON.
  `TOUCHLINE_CHANNEL_NAMESPACES='news chat'` (or a JSON list) names the namespaces; those of these names keep the options that the file gives them.
  `TOUCHLINE_CHANNEL_NAMESPACES_CHAT_HISTORY_SIZE=10` sets an option of one.
  `TOUCHLINE_REGISTRY_SCOPES` takes names or a JSON list too, but options of scopes have no variables of their own: give them in the JSON list or in the file.
  Names that begin with `CENTRIFUGO_` are read too; ours win.
- **Flags**: `--port`, `--address`, `--log-level`, `--shards`, and of `touchline serve` every key by its path: `--http_server.internal_port 9000`,
  `--health.enabled`, `--log.level=debug`. Secrets do not belong there: every account of the machine can read them.

Paths and defaults are those of Centrifugo 6 where the concept is; **own** marks the others.
A configuration of Centrifugo 6 in TOML or JSON can be used as it is.
One in YAML is refused: write it as TOML or JSON, the keys stay.
Keys that are not supported yet are left out with a warning each, and the few that would make the server stricter, or let several nodes serve apart,
are refused (the lists are below).
[guides/from-centrifugo.md](guides/from-centrifugo.md) says what else is different.

A key that nobody knows is an error that names the nearest one, in the file and among the flags.
In the environment it is a warning that does the same, and the server starts.

The TOML of this page shows keys, not whole files: where your file has the section already, write the keys into it.

A duration is text as `25s`, `1h30m`, `500ms` or `7d`; a bare number is seconds. (In Centrifugo a bare number is nanoseconds: one that comes to more
than a year is questioned. There a negative duration switches pings off; here it is left out with a warning.)
"#;

const OPTIONS_HEAD: &str = r#"
## Options of channels

Under `channel.without_namespace` for channels whose name has no namespace, and in each of `channel.namespaces`.
The name of a namespace is unique, and consists of at least two characters: letters (`a` to `z`, `A` to `Z`), digits, `-`, `_` and `.`.
A fresh file of `touchline genconfig` has the namespace `news` already: write the options there.

```toml
[[channel.namespaces]]
name = "news"                      # channels named news:…
allow_subscribe_for_client = true
history_size = 100
history_ttl = "1h"
force_recovery = true
```

Everything is off that is not switched on.
"#;

const SCOPES_HEAD: &str = r#"
## Options of scopes

The registry of names and groups (`docs/registry.md`), in each of `registry.scopes`:

```toml
[[registry.scopes]]
name = "devices"
allow_register = ["{user}/*"]      # user 42 may register 42/phone
allow_lookup_for_client = true
allow_call_for_client = true
```

Clients may do nothing that is not switched on. The server API may do everything.
"#;

const SECRETS: &str = r#"
## Secrets

`touchline serve` refuses to start unless clients can be told apart (`client.token.hmac_secret_key` or a public key) or anonymous ones are let
in on purpose (`client.allow_anonymous_connect_without_token`, `client.insecure`). Without `http_api.key` it starts, warns, and refuses every call.
`touchline serve --dev` makes secrets for one run, binds `127.0.0.1`, lets anonymous clients of this machine in, opens channels without a namespace
for reading, adds the namespace `match` and serves the demo. It fills in only what is not written.
"#;

#[test]
fn the_reference_is_up_to_date() {
    is_up_to_date("docs/configuration.md", &reference());
}

fn reference() -> String {
    let mut text = HEAD.to_owned();
    let mut section = "";
    for key in KEYS {
        let (of_key, _) = key.path.split_once('.').expect("every key is in a section");
        if of_key != section {
            section = of_key;
            let _ = write!(text, "\n## `{section}`\n");
            heading(&mut text);
        }
        row(&mut text, key);
    }
    text.push_str(OPTIONS_HEAD);
    heading(&mut text);
    OPTIONS.iter().for_each(|key| row(&mut text, key));
    text.push_str(SCOPES_HEAD);
    heading(&mut text);
    SCOPE_OPTIONS.iter().for_each(|key| row(&mut text, key));
    text.push_str(SECRETS);
    unsupported_keys(&mut text);
    text
}

fn heading(text: &mut String) {
    text.push_str("\n| key | type | default | meaning |\n|---|---|---|---|\n");
}

fn row(text: &mut String, key: &Key) {
    let kind = match key.kind {
        Kind::Duration => "duration".to_owned(),
        Kind::Boolean => "boolean".to_owned(),
        Kind::Integer(least, most) if most >= u64::from(u32::MAX) => format!("number from {least}"),
        Kind::Integer(least, most) => format!("number, {least} … {most}"),
        Kind::Optional(least, most) => format!("number, {least} … {most}, or empty"),
        Kind::Choice(words) => {
            words.iter().filter(|word| !word.is_empty()).map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
        }
        Kind::Secret => "secret".to_owned(),
        Kind::Pem => "PEM".to_owned(),
        Kind::Texts => "list of texts".to_owned(),
        Kind::Text | Kind::Pattern => key.kind.name(),
    };
    let default = if key.default.is_empty() { String::new() } else { format!("`{}`", key.default) };
    let own = if key.is_ours { " **own**" } else { "" };
    let _ = writeln!(text, "| `{}`{own} | {kind} | {default} | {} |", key.path, key.meaning);
}

fn unsupported_keys(text: &mut String) {
    text.push_str("\n## Keys of Centrifugo 6 that are not supported yet\n\nLeft out with a warning, each with all beneath it:\n\n");
    let all = || {
        UNSUPPORTED
            .iter()
            .map(|unsupported_key| (String::new(), unsupported_key))
            .chain(UNSUPPORTED_OPTIONS.iter().map(|unsupported_key| ("option ".to_owned(), unsupported_key)))
    };
    list(text, all(), |disposition| match disposition {
        Disposition::LeftOut(consequence) => Some(consequence),
        _ => None,
    });
    text.push_str("\nRefused:\n\n");
    list(text, all(), |disposition| match disposition {
        Disposition::Refused(reason) => Some(reason),
        _ => None,
    });
    text.push_str("- `client.proxy.connect` beside clients without a token (`client.allow_anonymous_connect_without_token`, `client.insecure`): they would get in without asking the backend\n");
    text.push_str("- without a cluster (`cluster.engine`), an `engine.type` other than `memory`; `broker`, `presence_manager`, `map_broker` or `controller` that are enabled with another `type`; and `brokers`, `presence_managers` or `map_brokers` with an entry: nodes would serve apart. With a cluster they are left out with a warning\n");
    text.push_str("- options `subscribe_proxy_enabled`, `subscribe_stream_proxy_enabled` and `publish_proxy_enabled` beside an `allow_…` permission that would then hold without asking the backend\n");
    text.push_str("\nLeft out in silence, because they change nothing here:\n\n");
    list(text, all(), |disposition| if disposition == Disposition::Ignored { Some("") } else { None });
}

/// Keys that are refused where leaving them out would split a cluster or open a door.
const ALSO_REFUSED: [&str; 12] = [
    "client.proxy",
    "engine",
    "broker",
    "brokers",
    "presence_manager",
    "presence_managers",
    "map_broker",
    "map_brokers",
    "controller",
    "subscribe_proxy_enabled",
    "subscribe_stream_proxy_enabled",
    "publish_proxy_enabled",
];

fn list<'a>(
    text: &mut String,
    all: impl Iterator<Item = (String, &'a UnsupportedKey)>,
    take: fn(Disposition) -> Option<&'static str>,
) {
    for (prefix, unsupported_key) in all {
        if let Some(note) = take(unsupported_key.disposition) {
            let note = if note.is_empty() { String::new() } else { format!(": {note}") };
            let also =
                if ALSO_REFUSED.contains(&unsupported_key.path) { " (in one case refused, see below)" } else { "" };
            let _ = writeln!(text, "- {prefix}`{}`{also}{note}", unsupported_key.path);
        }
    }
}
