//! The banner of `serve --dev`.

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
    /// The key of the configuration, which is not shown.
    Configured,
}

/// The text of the banner: addresses, an example command, and how to stop. `base` is the URL for clients, and `api` is
/// the URL of the server API. `what`: whether the match plays, and whether data outlives the run.
pub(crate) fn banner(base: &str, api: &str, key: ShownKey<'_>, what: (bool, bool), reach: Reach) -> String {
    let (plays_match, keeps_data) = what;
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
    // A key of the configuration stays there: a terminal is recorded and shared.
    let (key, header, secrets) = match key {
        ShownKey::None => ("", String::new(), "secrets are valid for this run only"),
        ShownKey::OfThisRun(key) => (key, format!(" -H 'X-API-Key: {key}'"), "secrets are valid for this run only"),
        ShownKey::Configured => ("$KEY", " -H \"X-API-Key: $KEY\"".to_owned(), "the key is that of the configuration"),
    };
    let kept = if keeps_data { "durable data is kept in store.primary" } else { "everything is in memory" };
    // The console is off if other machines can reach the port, because everybody would be an operator.
    let console = if is_alone { format!("\n    Console    {api}/admin") } else { String::new() };
    let publication = crate::demo::PUBLICATION;
    format!(
        "
  Touchline {version}, for development: {kept}, and {secrets}.

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
