//! `touchline genconfig`: a small configuration with fresh secrets.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use touchline_config::keys::{KEYS, Key, OPTIONS, SCOPE_OPTIONS, ValueKind, WITHOUT_NAMESPACE};

use crate::arguments::GenconfigArguments;
use crate::secret::random_secret;

/// Prints it, or writes it to a new file that only this account can read.
pub(crate) fn run(arguments: &GenconfigArguments) -> Result<ExitCode> {
    let make = if arguments.all { configuration_with_all } else { configuration };
    let text = make(&random_secret()?, &random_secret()?);
    let Some(path) = &arguments.output else {
        write!(std::io::stdout(), "{text}")?;
        return Ok(ExitCode::SUCCESS);
    };
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .with_context(|| format!("{} can't be made", path.display()))?;
    file.write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// What the small configuration sets: path, value, and what to say of it.
const SET: [(&str, &str, &str); 6] = [
    ("http_server.port", "8000", ""),
    (
        "client.allowed_origins",
        "[\"http://localhost:3000\"]",
        "Pages that may connect: where your website is, as \"https://example.com\". \
         A page from Touchline's own host and port always may.",
    ),
    (
        "client.token.hmac_secret_key",
        "",
        "Your backend signs the tokens of its users with this text (HS256); \
         `touchline token --config <this file>` does too.",
    ),
    ("http_api.key", "", "Your backend sends this key in the header X-API-Key."),
    ("health.enabled", "true", ""),
    ("prometheus.enabled", "true", ""),
];

/// The namespace that it makes.
const NAMESPACE: &str = r#"
# Channels named "news:…". Everything that is not switched on is off.
[[channel.namespaces]]
name = "news"
allow_subscribe_for_client = true
history_size = 100
history_ttl = "1h"
force_recovery = true
"#;

fn configuration(token_secret: &str, api_key: &str) -> String {
    let mut text = String::from("# Made by `touchline genconfig`. All keys: docs/configuration.md\n");
    let mut last = "";
    for (path, value, about) in SET {
        let (section, name) = path.rsplit_once('.').unwrap_or(("", path));
        if section != last {
            text.push_str(&format!("\n[{section}]\n"));
        }
        last = section;
        text.push_str(&set(name, &secret_or(path, value, token_secret, api_key), about));
    }
    text + NAMESPACE
}

/// The same with every other key as a comment in its own table: a line that begins with # and a letter is a key, and
/// can be used without the #.
fn configuration_with_all(token_secret: &str, api_key: &str) -> String {
    let mut text = String::from(
        "# Made by `touchline genconfig --all`. Every key is here with its default: \
         take the # away before a name to set it.\n",
    );
    let mut sections: Vec<&str> = Vec::new();
    for (section, _) in KEYS.iter().filter_map(|key| key.path.rsplit_once('.')) {
        if !sections.contains(&section) {
            sections.push(section);
        }
    }
    for section in sections {
        text.push_str(&format!("\n[{section}]\n"));
        for key in KEYS.iter() {
            let Some((_, name)) = key.path.rsplit_once('.').filter(|(of, _)| *of == section) else { continue };
            match SET.iter().find(|(path, ..)| *path == key.path) {
                Some((path, value, about)) => {
                    text.push_str(&set(name, &secret_or(path, value, token_secret, api_key), about))
                }
                None => text.push_str(&comment(name, key)),
            }
        }
    }
    text.push_str(&format!("\n# Channels whose name begins with no namespace.\n[{WITHOUT_NAMESPACE}]\n"));
    OPTIONS.iter().for_each(|key| text.push_str(&comment(&key.path, key)));
    text.push_str(
        "\n# Names and groups of connections. In a scope without more nothing is allowed.\n\
         [[registry.scopes]]\nname = \"devices\"\n",
    );
    SCOPE_OPTIONS.iter().for_each(|key| text.push_str(&comment(&key.path, key)));
    text.push_str(NAMESPACE);
    let is_set = |name: &str| NAMESPACE.lines().any(|line| line.split(" = ").next() == Some(name));
    OPTIONS.iter().filter(|key| !is_set(&key.path)).for_each(|key| text.push_str(&comment(&key.path, key)));
    text
}

fn secret_or(path: &str, value: &str, token_secret: &str, api_key: &str) -> String {
    match path {
        "client.token.hmac_secret_key" => format!("{token_secret:?}"),
        "http_api.key" => format!("{api_key:?}"),
        _ => value.to_owned(),
    }
}

fn set(name: &str, value: &str, about: &str) -> String {
    let about = if about.is_empty() { String::new() } else { format!("# {about}\n") };
    format!("{about}{name} = {value}\n")
}

/// A key that is not set: what it means, and its default.
fn comment(name: &str, key: &Key) -> String {
    let value = match key.kind {
        ValueKind::Boolean | ValueKind::Integer(..) => key.default.clone(),
        ValueKind::Texts if key.default.starts_with('[') => key.default.clone(),
        ValueKind::Texts => format!("{:?}", key.default.split_whitespace().collect::<Vec<_>>()),
        _ => format!("{:?}", key.default),
    };
    format!("# {}{}\n#{name} = {value}\n", key.meaning, if key.is_ours { " (Touchline's own)" } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;
    use touchline_config::{Severity, Sources, read_to_serve};
    use touchline_server::PROBES;

    /// What `touchline check` says of a text.
    fn errors(name: &str, text: &str) -> Vec<String> {
        let path = std::env::temp_dir().join(format!("touchline-genconfig-{name}-{}.toml", std::process::id()));
        std::fs::write(&path, text).expect("the directory is writable");
        let reading = read_to_serve(&Sources { file: Some(path.clone()), ..Sources::default() }, &PROBES);
        std::fs::remove_file(path).expect("it was written");
        reading.findings.iter().filter(|finding| finding.severity == Severity::Error).map(ToString::to_string).collect()
    }

    #[test]
    fn each_key_can_be_used_by_taking_its_comment_away() {
        let all = configuration_with_all("a secret of this test, long enough for HS256", "a-key-of-twenty-bytes");
        let is_key =
            |line: &str| line.strip_prefix('#').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_alphabetic()));
        assert_eq!(errors("none", &all), Vec::<String>::new());
        let lines: Vec<&str> = all.lines().collect();
        let mut count = 0;
        for (index, line) in lines.iter().enumerate().filter(|(_, line)| is_key(line)) {
            let mut changed = lines.clone();
            changed[index] = &line[1..];
            assert_eq!(errors("one", &changed.join("\n")), Vec::<String>::new(), "{line}");
            count += 1;
        }
        let set =
            SET.len() + NAMESPACE.lines().filter(|line| line.contains(" = ") && !line.starts_with("name")).count();
        let scopes = SCOPE_OPTIONS.len();
        assert_eq!(count + set, KEYS.len() + 2 * OPTIONS.len() + scopes);
        let everything: Vec<&str> = lines.iter().map(|line| if is_key(line) { &line[1..] } else { line }).collect();
        assert_eq!(errors("all", &everything.join("\n")), Vec::<String>::new());
    }

    #[test]
    fn a_file_that_it_makes_is_for_its_owner_only_and_never_made_twice() {
        let path = std::env::temp_dir().join(format!("touchline-genconfig-file-{}.toml", std::process::id()));
        let arguments = GenconfigArguments { all: false, output: Some(path.clone()) };
        assert!(run(&arguments).is_ok());
        let mode = std::fs::metadata(&path).expect("it was made").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(run(&arguments).is_err(), "secrets that are in use are not overwritten");
        std::fs::remove_file(path).expect("it was written");
    }

    #[test]
    fn what_it_makes_is_enough_to_serve() {
        let path = std::env::temp_dir().join(format!("touchline-genconfig-{}.toml", std::process::id()));
        let secret = random_secret().expect("the system has randomness");
        std::fs::write(&path, configuration(&secret, "a-key-of-twenty-bytes")).expect("the directory is writable");
        let findings_at = |mode: u32| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("it is ours");
            let (_, findings) = read_to_serve(&Sources { file: Some(path.clone()), ..Sources::default() }, &PROBES)
                .into_result()
                .expect("no faults");
            findings
                .iter()
                .filter(|finding| finding.severity == Severity::Warning)
                .map(ToString::to_string)
                .collect::<Vec<_>>()
        };
        let warnings = findings_at(0o644);
        assert!(warnings.len() == 1 && warnings[0].starts_with("the configuration file: everybody"), "{warnings:?}");
        assert!(!warnings[0].contains(&secret));
        assert!(findings_at(0o640).is_empty() && findings_at(0o600).is_empty());
        let (configuration, findings) =
            read_to_serve(&Sources { file: Some(path.clone()), ..Sources::default() }, &PROBES)
                .into_result()
                .expect("no faults");
        std::fs::remove_file(path).expect("it was written");
        assert_eq!(configuration.settings.client.token.hmac_secret_key, secret);
        assert!(findings.iter().all(|finding| finding.severity == Severity::Note), "{findings:?}");
    }
}
