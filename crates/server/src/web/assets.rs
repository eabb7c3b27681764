//! The files of sites, ready to be served. They are compressed once. Their hash names them and serves as their
//! validator.

use std::io::Write;

use aws_lc_rs::digest::{Context, SHA256, digest};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use hashbrown::HashMap;
use http_body_util::Full;
use hyper::header::{CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG, HeaderMap, HeaderValue, IF_NONE_MATCH, VARY};
use hyper::{Response, StatusCode};

use super::coding::accepts_gzip;
use super::site::{Site, SiteFile};

/// How many bytes of a hash are used: 64 bits.
const HASH_SIZE: usize = 8;
/// Smaller files are not compressed, in bytes, because they fit one packet.
const COMPRESSED_MIN: usize = 1_024;
/// For a page: a browser asks each time whether its copy is current.
const ASK: HeaderValue = HeaderValue::from_static("no-cache");
/// For an asset: the content under this name never changes.
const KEEP: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");

/// The files of all sites, by the paths of their requests.
#[derive(Debug, Default)]
pub(crate) struct Assets {
    files: HashMap<String, Asset>,
    /// A path that cannot be served as the program wants it, and the reason; None = there is no such path.
    fault: Option<(String, &'static str)>,
}

/// One file, in each coding in which it is served.
#[derive(Debug)]
struct Asset {
    content_type: HeaderValue,
    cache_control: HeaderValue,
    plain: Coded,
    /// The compressed form; None = it is not smaller.
    gzip: Option<Coded>,
}

/// A file in one coding.
#[derive(Debug)]
struct Coded {
    body: Bytes,
    etag: HeaderValue,
}

impl Assets {
    /// Prepares the files of these sites.
    pub(crate) fn of(sites: &[Site]) -> Self {
        let mut assets = Assets::default();
        for site in sites {
            let is_folder = site.folder.len() > 2 && site.folder.starts_with('/') && site.folder.ends_with('/');
            if !is_folder {
                assets.fault = Some((site.folder.to_owned(), "is not a folder for assets, such as /app/"));
                continue;
            }
            let folder = format!("{}{}/", site.folder, hash_of(&site.assets));
            for file in &site.assets {
                let body = Bytes::from_static(file.body);
                assets.insert(format!("{folder}{}", file.path), Asset::new(file.content_type, KEEP, body));
            }
            for page in &site.pages {
                let body = replaced(page.body, site.folder, &folder);
                assets.insert(page.path.to_owned(), Asset::new(page.content_type, ASK, body));
            }
        }
        assets
    }

    fn insert(&mut self, path: String, asset: Asset) {
        if self.files.insert(path.clone(), asset).is_some() {
            self.fault = Some((path, "is that of two pages or assets"));
        }
    }

    /// A path that cannot be served as the program wants it, and the reason; `None` = all paths can be served.
    pub(crate) fn fault(&self) -> Option<(&str, &'static str)> {
        self.fault.as_ref().map(|(path, why)| (path.as_str(), *why))
    }

    /// Whether there is a file at this path.
    pub(super) fn has(&self, path: &str) -> bool {
        self.files.contains_key(path)
    }

    /// The paths of the files, in any order.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        self.files.keys().map(String::as_str)
    }

    /// The answer to a request for the file at this path; None = there is no file.
    pub(crate) fn answer(&self, path: &str, headers: &HeaderMap) -> Option<Response<Full<Bytes>>> {
        self.files.get(path).map(|asset| asset.answer(headers))
    }
}

impl Asset {
    fn new(content_type: &'static str, cache_control: HeaderValue, body: Bytes) -> Self {
        let tag = short_hex(digest(&SHA256, &body).as_ref());
        let gzip = compressed(&body).map(|body| Coded { body, etag: quoted(&format!("{tag}-gzip")) });
        let content_type = HeaderValue::from_static(content_type);
        Asset { content_type, cache_control, plain: Coded { body, etag: quoted(&tag) }, gzip }
    }

    fn answer(&self, headers: &HeaderMap) -> Response<Full<Bytes>> {
        let coded = self.gzip.as_ref().filter(|_| accepts_gzip(headers));
        let (coded, is_compressed) = coded.map_or((&self.plain, false), |coded| (coded, true));
        let is_known = is_known(headers, &coded.etag);
        let mut response = Response::new(Full::new(if is_known { Bytes::new() } else { coded.body.clone() }));
        let fields = response.headers_mut();
        fields.insert(CACHE_CONTROL, self.cache_control.clone());
        fields.insert(ETAG, coded.etag.clone());
        if self.gzip.is_some() {
            fields.insert(VARY, HeaderValue::from_static("accept-encoding"));
        }
        if is_known {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            return response;
        }
        fields.insert(CONTENT_TYPE, self.content_type.clone());
        if is_compressed {
            fields.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        response
    }
}

/// The hash of files together with their paths.
fn hash_of(files: &[SiteFile]) -> String {
    let mut hash = Context::new(&SHA256);
    for SiteFile { path, body, .. } in files {
        for part in [path.as_bytes(), body] {
            hash.update(&(part.len() as u64).to_be_bytes());
            hash.update(part);
        }
    }
    short_hex(hash.finish().as_ref())
}

fn short_hex(hash: &[u8]) -> String {
    hash.iter().take(HASH_SIZE).map(|byte| format!("{byte:02x}")).collect()
}

fn quoted(tag: &str) -> HeaderValue {
    HeaderValue::try_from(format!("\"{tag}\"")).unwrap_or_else(|_| HeaderValue::from_static("\"\""))
}

/// Replaces the folder of the assets in a page by the folder with the hash.
fn replaced(page: &'static [u8], folder: &str, hashed: &str) -> Bytes {
    match std::str::from_utf8(page) {
        Ok(text) if !folder.is_empty() => text.replace(folder, hashed).into(),
        _ => Bytes::from_static(page),
    }
}

/// Compresses a body; None = the result would not be smaller.
fn compressed(body: &Bytes) -> Option<Bytes> {
    if body.len() < COMPRESSED_MIN {
        return None;
    }
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(body).ok()?;
    encoder.finish().ok().filter(|smaller| smaller.len() < body.len()).map(Bytes::from)
}

/// Whether the client already has the form with this tag (RFC 9110 section 13.1.2: the comparison is weak).
fn is_known(headers: &HeaderMap, etag: &HeaderValue) -> bool {
    let tags = headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    let bare = |tag: &str| tag.trim().strip_prefix("W/").unwrap_or(tag.trim()).to_owned();
    tags.flat_map(|tags| tags.split(',')).map(bare).any(|tag| tag == "*" || tag.as_bytes() == etag.as_bytes())
}
