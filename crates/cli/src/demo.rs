//! The live match that `serve --dev` shows: its pages and its recording, embedded from `examples/match`.

use touchline_server::Page;

/// Where the match is published.
pub(crate) const CHANNEL: &str = "match:live";

/// The recorded match.
pub(crate) const RECORDING: &str = include_str!("../../../examples/match/matches/city-united.json");

/// An event to paste, as the body of a publish request.
pub(crate) const PUBLICATION: &str =
    r#"{"channel":"match:live","data":{"type":"text","text":"Hello from the terminal"}}"#;

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JAVASCRIPT: &str = "text/javascript; charset=utf-8";

/// A page of the example.
macro_rules! page {
    ($path:literal, $type:expr, $file:literal) => {
        Page {
            path: $path.to_owned(),
            content_type: $type,
            body: bytes::Bytes::from_static(include_bytes!(concat!("../../../examples/match/", $file))),
        }
    };
}

/// The pages: the fan's, the reporter's, and what they are made of.
pub(crate) fn pages() -> Vec<Page> {
    vec![
        page!("/", HTML, "index.html"),
        page!("/reporter", HTML, "reporter.html"),
        page!("/demo/style.css", CSS, "style.css"),
        page!("/demo/fan.js", JAVASCRIPT, "fan.js"),
        page!("/demo/reporter.js", JAVASCRIPT, "reporter.js"),
        page!("/demo/live.js", JAVASCRIPT, "live.js"),
        page!("/demo/match.js", JAVASCRIPT, "match.js"),
        page!("/demo/reactions.js", JAVASCRIPT, "reactions.js"),
        page!("/demo/crowd.js", JAVASCRIPT, "crowd.js"),
        page!("/demo/pulse.js", JAVASCRIPT, "pulse.js"),
        page!("/demo/view.js", JAVASCRIPT, "view.js"),
        page!("/demo/touchline.js", JAVASCRIPT, "touchline.js"),
    ]
}
