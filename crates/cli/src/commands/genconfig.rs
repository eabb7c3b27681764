//! `touchline genconfig`: a small configuration with fresh secrets.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::process::ExitCode;

use anyhow::{Context as _, Result};

use crate::arguments::GenconfigArguments;
use crate::config::keys::{KEYS, Key, Kind, OPTIONS, SCOPE_OPTIONS};
use crate::config::random_secret;

/// Prints it, or writes it to a new file that only this account can read.
pub(crate) fn run(arguments: &GenconfigArguments) -> Result<ExitCode> {
    let mut text = configuration(&random_secret()?, &random_secret()?);
    if arguments.all {
        text.push_str(&every_key());
    }
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

/// Every key as a comment, to be copied up into its section. The path is written whole, so that each line stands alone.
fn every_key() -> String {
    let line = |path: &str, key: &Key| {
        let value = match key.kind {
            Kind::Boolean | Kind::Integer(..) => key.default.to_owned(),
            Kind::Texts if key.default.starts_with('[') => key.default.to_owned(),
            Kind::Texts => format!("{:?}", key.default.split_whitespace().collect::<Vec<_>>()),
            _ => format!("{:?}", key.default),
        };
        format!("# {path} = {value}\n#     {}{}\n", key.meaning, if key.is_ours { " (Touchline's own)" } else { "" })
    };
    let mut text = String::from("\n# Every key, with its default.\n#\n");
    KEYS.iter().for_each(|key| text.push_str(&line(key.path, key)));
    text.push_str("#\n# Options of channel.without_namespace and of each of channel.namespaces.\n#\n");
    OPTIONS.iter().for_each(|key| text.push_str(&line(key.path, key)));
    text.push_str("#\n# Options of each of registry.scopes.\n#\n");
    SCOPE_OPTIONS.iter().for_each(|key| text.push_str(&line(key.path, key)));
    text
}

fn configuration(token_secret: &str, api_key: &str) -> String {
    format!(
        r#"# Made by `touchline genconfig`. All keys: docs/configuration.md

[http_server]
port = 8000

[client]
# Pages that may open connections, as "https://example.com"; those of the server's own host always may.
allowed_origins = []

[client.token]
# Your backend signs its users' tokens with it (HS256); `touchline token --config <this file>` does too.
hmac_secret_key = "{token_secret}"

[http_api]
# Your backend shows it to publish.
key = "{api_key}"

[health]
enabled = true

[prometheus]
enabled = true

# Channels named "news:…". Everything that is not switched on is off.
[[channel.namespaces]]
name = "news"
allow_subscribe_for_client = true
history_size = 100
history_ttl = "1h"
force_recovery = true
"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Severity, Sources, read_to_serve};
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn the_list_of_every_key_is_comments_that_hold_toml() {
        let all = every_key();
        assert!(all.lines().all(|line| line.is_empty() || line.starts_with('#')));
        let lines = all.lines().filter_map(|line| line.strip_prefix("# ")).filter(|line| line.contains(" = ") && !line.starts_with(' '));
        let mut count = 0;
        for line in lines {
            assert!(line.parse::<toml::Table>().is_ok(), "{line}");
            count += 1;
        }
        assert_eq!(count, KEYS.len() + OPTIONS.len() + SCOPE_OPTIONS.len());
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
            let (_, findings) =
                read_to_serve(&Sources { file: Some(path.clone()), ..Sources::default() }).into_result().expect("no faults");
            findings.iter().filter(|finding| finding.severity == Severity::Warning).map(ToString::to_string).collect::<Vec<_>>()
        };
        let warnings = findings_at(0o644);
        assert!(warnings.len() == 1 && warnings[0].starts_with("the configuration file: everybody"), "{warnings:?}");
        assert!(!warnings[0].contains(&secret));
        assert!(findings_at(0o640).is_empty() && findings_at(0o600).is_empty());
        let (configuration, findings) =
            read_to_serve(&Sources { file: Some(path.clone()), ..Sources::default() }).into_result().expect("no faults");
        std::fs::remove_file(path).expect("it was written");
        assert_eq!(configuration.settings.client.token.hmac_secret_key, secret);
        assert!(findings.iter().all(|finding| finding.severity == Severity::Note), "{findings:?}");
    }
}
