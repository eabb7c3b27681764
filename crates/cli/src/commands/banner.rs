//! The few lines that greet a newcomer.

/// From where the demo can be seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// From this machine: it listens nowhere else.
    Machine,
    /// From other machines, too.
    Network,
    /// It listens for other machines, and refuses their clients.
    Refused,
}

/// Where to look, what to paste, how to stop. `base`: where clients come; `api`: where the server API is.
pub(crate) fn banner(base: &str, api: &str, key: &str, plays_match: bool, reach: Reach) -> String {
    let is_alone = reach == Reach::Machine;
    let reach = match reach {
        Reach::Machine => "Only this machine sees it; `--open-to-network` shows it to phones and other machines.",
        Reach::Network => {
            "Everybody who reaches this address can watch. The reporter's page holds the key: \
             do not share its address."
        }
        Reach::Refused => "Clients of other machines are refused; `--open-to-network` lets them in.",
    };
    let match_line = if plays_match {
        "A recorded match plays by itself, over and over; `--no-match` leaves the pitch to you."
    } else {
        "No match is played: open the reporter's page and kick off."
    };
    let header = if key.is_empty() { String::new() } else { format!(" -H 'X-API-Key: {key}'") };
    // Others would be operators: there it is switched off.
    let console = if is_alone { format!("\n    Console    {api}/admin") } else { String::new() };
    let publication = crate::demo::PUBLICATION;
    format!(
        "
  Touchline {version}, for development: everything is in memory, secrets last for this run.

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
