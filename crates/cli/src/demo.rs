//! The live match of `serve --dev`: its pages and its recording, embedded from `examples/match`.

use touchline_server::{Site, SiteFile};

/// The channel of the match.
pub(crate) const CHANNEL: &str = "match:live";

/// The recorded match, as JSON.
pub(crate) const RECORDING: &str = include_str!("../../../examples/match/matches/city-united.json");

/// An example event for the terminal, as the body of a publish request.
pub(crate) const PUBLICATION: &str =
    r#"{"channel":"match:live","data":{"type":"text","text":"Hello from the terminal"}}"#;

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JAVASCRIPT: &str = "text/javascript; charset=utf-8";

/// A file of the site, embedded from the example.
macro_rules! file {
    ($path:literal, $type:expr, $file:literal) => {
        SiteFile { path: $path, content_type: $type, body: include_bytes!(concat!("../../../examples/match/", $file)) }
    };
}

/// The site of the demo: the pages for fans and for the reporter, and their assets.
pub(crate) fn site() -> Site {
    Site {
        folder: "/demo/",
        pages: vec![file!("/", HTML, "index.html"), file!("/reporter", HTML, "reporter.html")],
        assets: vec![
            file!("style.css", CSS, "style.css"),
            file!("fan.js", JAVASCRIPT, "fan.js"),
            file!("reporter.js", JAVASCRIPT, "reporter.js"),
            file!("live.js", JAVASCRIPT, "live.js"),
            file!("match.js", JAVASCRIPT, "match.js"),
            file!("reactions.js", JAVASCRIPT, "reactions.js"),
            file!("crowd.js", JAVASCRIPT, "crowd.js"),
            file!("pulse.js", JAVASCRIPT, "pulse.js"),
            file!("view.js", JAVASCRIPT, "view.js"),
            file!("touchline.js", JAVASCRIPT, "touchline.js"),
        ],
    }
}
