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
    // A written key stays in its place: a terminal is recorded and shared.
    let of_this_run = || "secrets are valid for this run only".to_owned();
    let (key, header, secrets) = match key {
        ShownKey::None => (String::new(), String::new(), of_this_run()),
        ShownKey::OfThisRun(key) => (key.to_owned(), format!(" -H 'X-API-Key: {key}'"), of_this_run()),
        ShownKey::Written(place) => {
            let name = match place {
                Location::Variable(name) if !name.contains('.') => format!("${name}"),
                _ => "$KEY".to_owned(),
            };
            (name.clone(), format!(" -H \"X-API-Key: {name}\""), format!("{name} is the http_api.key of {place}"))
        }
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
