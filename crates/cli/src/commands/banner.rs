//! The few lines that greet a newcomer.

/// Where to look, what to paste, how to stop.
pub(crate) fn banner(base: &str, key: &str, plays_match: bool) -> String {
    let match_line = if plays_match {
        "A recorded match plays by itself, over and over; `--no-match` leaves the pitch to you."
    } else {
        "No match is played: open the reporter's page and kick off."
    };
    let header = if key.is_empty() { String::new() } else { format!(" -H 'X-API-Key: {key}'") };
    let publication = crate::demo::PUBLICATION;
    format!(
        "
  Touchline {version}, for development: everything is in memory, secrets last for this run.

    Fans       {base}/
    Reporter   {base}/reporter#key={key}

  {match_line}
  Paste this, and every fan sees it:

    curl {base}/api/publish{header} -d '{publication}'

  Stop with Ctrl-C.

",
        version = touchline_server::VERSION,
    )
}
