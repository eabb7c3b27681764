//! Pages with their assets, as a program passes them to its server.

/// Pages, and the assets that they use.
///
/// An asset is served in a folder whose name is a hash of all assets of the site: `/demo/live.js` becomes
/// `/demo/6c1f0a9b2d47e835/live.js`. So browsers may keep it for ever, and modules can import each other by relative
/// paths. The pages keep their paths. In their text, `folder` is replaced by the folder with the hash.
///
/// ```
/// use touchline_server::{Site, SiteFile};
///
/// let site = Site {
///     folder: "/chat/",
///     pages: vec![SiteFile {
///         path: "/",
///         content_type: "text/html; charset=utf-8",
///         body: r#"<!doctype html><title>Chat</title><script type="module" src="/chat/chat.js"></script>"#.as_bytes(),
///     }],
///     assets: vec![SiteFile {
///         path: "chat.js",
///         content_type: "text/javascript; charset=utf-8",
///         body: b"document.body.append('hello')",
///     }],
/// };
/// # let _ = site;
/// ```
#[derive(Debug, Clone, Default)]
pub struct Site {
    /// The folder of the assets as the pages name it, with a `/` at both ends.
    pub folder: &'static str,
    /// The pages, each with the exact path of its request.
    pub pages: Vec<SiteFile>,
    /// The assets, each with its path within the folder.
    pub assets: Vec<SiteFile>,
}

/// One file of a site: a page or an asset.
#[derive(Debug, Clone)]
pub struct SiteFile {
    /// The path: for a page the whole path, for an asset the path within the folder.
    pub path: &'static str,
    /// The media type, including the charset.
    pub content_type: &'static str,
    /// The content of the file, uncompressed.
    pub body: &'static [u8],
}
