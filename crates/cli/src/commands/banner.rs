//! The banner of `serve --dev`.

use touchline_config::Location;

/// Which machines can see the demo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Only this machine: the server listens on the loopback address.
    Machine,
    /// Other machines too.
    Network,
    /// The server listens for other machines, but refuses their clients.
    Refused,
}

/// The key of the server API as the banner shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ShownKey<'k> {
    /// The server API needs no key.
    None,
    /// A key that was made for this run.
    OfThisRun(&'k str),
    /// A key that is written in this place, and is not shown.
    Written(&'k Location),
}

/// What the banner says about secrets and data.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ShownSecrets<'k> {
    pub(crate) api_key: ShownKey<'k>,
    /// Where the secret of tokens is written; `None` = it was made for this run.
    pub(crate) token_secret: Option<&'k Location>,
    /// The database of durable data, without its password; `None` = everything is in memory.
    pub(crate) kept_in: Option<&'k str>,
}

/// The text of the banner: addresses, an example command, and how to stop. `base` is the URL for clients, and `api` is
/// the URL of the server API.
pub(crate) fn banner(base: &str, api: &str, secrets: ShownSecrets<'_>, plays_match: bool, reach: Reach) -> String {
    let is_alone = reach == Reach::Machine;
    let reach = match reach {
        Reach::Machine => "Only this machine can see it; `--open-to-network` opens it to phones and other machines.",
        Reach::Network => {
            "Everybody who can reach this address can watch. The address of the reporter's page contains the key: \
             do not share it."
        }
        Reach::Refused => "Clients of other machines are refused; `--open-to-network` accepts them.",
    };
    let match_line = if plays_match {
        "A recorded match plays again and again; `--no-match` turns it off."
    } else {
        "No match is played: open the reporter's page and kick off."
    };
    // A written key stays in its place: a terminal is recorded and shared.
    let (key, header) = match secrets.api_key {
        ShownKey::None => (String::new(), String::new()),
        ShownKey::OfThisRun(key) => (key.to_owned(), format!(" -H 'X-API-Key: {key}'")),
        ShownKey::Written(place) => {
            let name = variable(place).map_or("$KEY".to_owned(), |name| format!("${name}"));
            (" (add the key)".to_owned(), format!(" -H \"X-API-Key: {name}\""))
        }
    };
    let of_secrets = about(&secrets);
    let kept =
        secrets.kept_in.map_or("everything is in memory".to_owned(), |url| format!("durable data is kept in {url}"));
    // The console is off if other machines can reach the port, because everybody would be an operator.
    let console = if is_alone { format!("\n    Console    {api}/admin") } else { String::new() };
    let publication = crate::demo::PUBLICATION;
    format!(
        "
  Touchline {version}, for development: {kept}, {of_secrets}.

    Fans       {base}/
    Reporter   {base}/reporter#key={key}{console}

  {match_line}
  {reach}
  Paste this, and every fan sees it:

    curl {api}/api/publish{header} -d '{publication}'

  Stop with Ctrl-C.

",
        version = touchline_server::VERSION,
    )
}

/// The environment variable that sets a key; `None` = a file or the command line does.
fn variable(place: &Location) -> Option<&str> {
    match place {
        Location::Variable(name) if !name.contains('.') => Some(name),
        _ => None,
    }
}

/// The end of a sentence: where the secrets come from.
fn about(secrets: &ShownSecrets<'_>) -> String {
    let key = match secrets.api_key {
        ShownKey::Written(place) => match variable(place) {
            Some(name) => format!("the API key is that of the environment variable {name}"),
            None => format!("$KEY is the http_api.key of {place}"),
        },
        _ if secrets.token_secret.is_none() => return "and secrets are valid for this run only".to_owned(),
        ShownKey::OfThisRun(_) => "the API key is valid for this run only".to_owned(),
        ShownKey::None => "the server API needs no key".to_owned(),
    };
    match secrets.token_secret {
        None => format!("{key}, and the token secret is valid for this run only"),
        Some(place) => format!("{key}, and the token secret is that of {place}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_banner_says_which_secrets_outlive_the_run() {
        let file = Location::File("t.toml".into(), Some((6, 1)));
        let variable = Location::Variable("TOUCHLINE_HTTP_API_KEY".into());
        for (api_key, token_secret, expected) in [
            (ShownKey::OfThisRun("k"), None, "in memory, and secrets are valid for this run only."),
            (
                ShownKey::OfThisRun("k"),
                Some(&file),
                "the API key is valid for this run only, and the token secret is that of t.toml:6:1.",
            ),
            (
                ShownKey::Written(&variable),
                None,
                "the API key is that of the environment variable TOUCHLINE_HTTP_API_KEY, and the token secret is valid \
                 for this run only.",
            ),
            (ShownKey::Written(&file), Some(&file), "$KEY is the http_api.key of t.toml:6:1, and the token secret"),
        ] {
            let secrets = ShownSecrets { api_key, token_secret, kept_in: None };
            let text = banner("http://h", "http://h", secrets, false, Reach::Machine);
            assert!(text.contains(expected), "{text}");
        }
        let secrets = ShownSecrets { api_key: ShownKey::Written(&file), token_secret: None, kept_in: Some("a.db") };
        let text = banner("http://h", "http://h", secrets, false, Reach::Machine);
        assert!(text.contains("durable data is kept in a.db") && text.contains("#key= (add the key)"), "{text}");
    }
}
