//! stub
pub(crate) const CHANNEL: &str = "match:live";
pub(crate) const RECORDING: &str = "{}";
pub(crate) fn pages() -> Vec<touchline_server::Page> {
    Vec::new()
}
pub(crate) fn recording() -> Option<&'static str> {
    None
}
pub(crate) fn publication_for_curl() -> String {
    String::new()
}
