//! The documents of the server API: `GET /api/openapi.json` and `GET /api/errors`.

use std::sync::OnceLock;

use bytes::Bytes;

use super::catalogue::Catalogue;
use super::openapi;
use super::version::VERSIONS;

/// The names of the documents: `GET /api/<name>`.
pub const DOCUMENTS: &[&str] = &[OPEN_API, ERRORS];
const OPEN_API: &str = "openapi.json";
const ERRORS: &str = "errors";

/// A document that a caller can read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Document {
    /// `openapi.json`: every operation, of one version.
    OpenApi,
    /// `errors`: every error, and the codes of disconnects and unsubscribes.
    Errors,
}

impl Document {
    /// Returns the document of this path after `/api/`; None = the document does not exist.
    pub(super) fn named(path: &str) -> Option<Self> {
        match path {
            OPEN_API => Some(Document::OpenApi),
            ERRORS => Some(Document::Errors),
            _ => None,
        }
    }

    /// Returns the document as JSON. It is made at the first request and cached.
    pub(super) fn text(self, version: u16) -> Bytes {
        static BY_VERSION: [OnceLock<Bytes>; VERSIONS.len()] = [const { OnceLock::new() }; VERSIONS.len()];
        static CATALOGUE: OnceLock<Bytes> = OnceLock::new();
        let json = |value: &dyn Fn() -> serde_json::Value| Bytes::from(value().to_string());
        match self {
            Document::OpenApi => {
                let index = VERSIONS.iter().position(|known| known.number == version).unwrap_or_default();
                BY_VERSION[index].get_or_init(|| json(&|| openapi::document(version))).clone()
            }
            Document::Errors => CATALOGUE.get_or_init(|| json(&|| serde_json::json!(Catalogue::new()))).clone(),
        }
    }
}
