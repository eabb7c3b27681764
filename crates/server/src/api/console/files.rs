//! The files of the console, in a folder whose name is a hash of all of them.

use std::sync::LazyLock;

use hyper::StatusCode;
use hyper::header::{CACHE_CONTROL, HeaderMap, HeaderValue};

use crate::transport::http::respond::{self, HttpResponse};
use crate::web::{Assets, Site, SiteFile};

/// The placeholder in the page for the folder of the assets.
const PLACEHOLDER: &str = "__ASSETS__";
/// The HTML of the page.
const PAGE: &str = include_str!("../../../../../console/index.html");

macro_rules! files {
    ($($path:literal $content_type:literal,)*) => {
        fn files() -> Vec<SiteFile> {
            vec![$(SiteFile {
                path: $path,
                content_type: $content_type,
                body: include_bytes!(concat!("../../../../../console/", $path)),
            }),*]
        }
    };
}

files! {
    "ask.js" "text/javascript; charset=utf-8",
    "context.js" "text/javascript; charset=utf-8",
    "dom.js" "text/javascript; charset=utf-8",
    "format.js" "text/javascript; charset=utf-8",
    "icon.svg" "image/svg+xml",
    "live.js" "text/javascript; charset=utf-8",
    "main.js" "text/javascript; charset=utf-8",
    "pages/api.js" "text/javascript; charset=utf-8",
    "pages/bans.js" "text/javascript; charset=utf-8",
    "pages/channel.js" "text/javascript; charset=utf-8",
    "pages/channels.js" "text/javascript; charset=utf-8",
    "pages/configuration.js" "text/javascript; charset=utf-8",
    "pages/connection.js" "text/javascript; charset=utf-8",
    "pages/connections.js" "text/javascript; charset=utf-8",
    "pages/consumers.js" "text/javascript; charset=utf-8",
    "pages/events.js" "text/javascript; charset=utf-8",
    "pages/inbox.js" "text/javascript; charset=utf-8",
    "pages/login.js" "text/javascript; charset=utf-8",
    "pages/name.js" "text/javascript; charset=utf-8",
    "pages/overview.js" "text/javascript; charset=utf-8",
    "pages/registry.js" "text/javascript; charset=utf-8",
    "pages/statistics.js" "text/javascript; charset=utf-8",
    "pages/tokens.js" "text/javascript; charset=utf-8",
    "parts/chart.js" "text/javascript; charset=utf-8",
    "parts/dialog.js" "text/javascript; charset=utf-8",
    "parts/filter.js" "text/javascript; charset=utf-8",
    "parts/form.js" "text/javascript; charset=utf-8",
    "parts/icons.js" "text/javascript; charset=utf-8",
    "parts/json.js" "text/javascript; charset=utf-8",
    "parts/keys.js" "text/javascript; charset=utf-8",
    "parts/listing.js" "text/javascript; charset=utf-8",
    "parts/palette.js" "text/javascript; charset=utf-8",
    "parts/spark.js" "text/javascript; charset=utf-8",
    "parts/states.js" "text/javascript; charset=utf-8",
    "parts/table.js" "text/javascript; charset=utf-8",
    "parts/tail.js" "text/javascript; charset=utf-8",
    "read.js" "text/javascript; charset=utf-8",
    "route.js" "text/javascript; charset=utf-8",
    "session.js" "text/javascript; charset=utf-8",
    "settings.js" "text/javascript; charset=utf-8",
    "shell.js" "text/javascript; charset=utf-8",
    "state.js" "text/javascript; charset=utf-8",
    "watch.js" "text/javascript; charset=utf-8",
    "style.css" "text/css; charset=utf-8",
    "words.js" "text/javascript; charset=utf-8",
}

static ASSETS: LazyLock<Assets> =
    LazyLock::new(|| Assets::of(&[Site { folder: "/assets/", pages: Vec::new(), assets: files() }]));

/// Answers a request for an asset. `path`: the part after the prefix of the console.
pub(super) fn asset(path: &str, headers: &HeaderMap) -> HttpResponse {
    ASSETS.answer(path, headers).unwrap_or_else(respond::not_found)
}

/// Returns the page. Its assets are below this prefix.
pub(super) fn page(prefix: &str) -> HttpResponse {
    let first = ASSETS.paths().next().unwrap_or_default();
    let hash = first.trim_start_matches("/assets/").split('/').next().unwrap_or_default();
    let text = PAGE.replace(PLACEHOLDER, &format!("{prefix}/assets/{hash}"));
    let mut page = respond::body(StatusCode::OK, "text/html; charset=utf-8", text);
    page.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    page
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    #[test]
    fn every_file_is_served() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../console");
        let mut found = BTreeSet::new();
        let mut open = vec![root.clone()];
        while let Some(directory) = open.pop() {
            for entry in std::fs::read_dir(directory).expect("it can be read").flatten() {
                let path = entry.path();
                let name = path.strip_prefix(&root).expect("below").to_string_lossy().into_owned();
                if path.is_dir() && name != "test" {
                    open.push(path);
                } else if path.is_file() && name != "index.html" {
                    found.insert(name);
                }
            }
        }
        let served: BTreeSet<String> = files().iter().map(|file| file.path.to_owned()).collect();
        assert_eq!(found, served);
    }

    #[test]
    fn the_page_names_assets_that_are_there() {
        let page = PAGE.split('"').filter_map(|text| text.strip_prefix(PLACEHOLDER));
        let served: BTreeSet<&str> = files().iter().map(|file| file.path).collect();
        let missing: Vec<&str> = page.filter(|path| !served.contains(path.trim_start_matches('/'))).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
