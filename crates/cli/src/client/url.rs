//! The URL of a server.

use std::io;
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use hyper::Uri;

/// Maximum time to connect to one address, and by default to wait for each read or write. It is also the default
/// timeout of a whole call of the server API.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);

/// The URL of a server: host, port, path, and whether it uses TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerUrl {
    /// Whether the scheme is the TLS variant.
    pub(crate) is_tls: bool,
    /// Host name or address, without brackets.
    pub(crate) host: String,
    /// The port; the default of the scheme if the URL has none.
    pub(crate) port: u16,
    /// The path and query, beginning with `/`.
    pub(crate) path: String,
}

impl ServerUrl {
    /// Parses `scheme://host[:port][/path]`, or the same with `schemes://` for TLS.
    ///
    /// # Errors
    /// When the text has another form, or contains a user.
    pub(crate) fn parse(text: &str, scheme: &str) -> Result<Self> {
        let invalid = || format!("{:?} is not a valid {scheme}:// or {scheme}s:// URL", without_password(text));
        let uri: Uri = text.parse().with_context(invalid)?;
        let is_tls = match uri.scheme_str() {
            Some(found) if found == scheme => false,
            Some(found) if found.strip_suffix('s') == Some(scheme) => true,
            _ => bail!(invalid()),
        };
        let authority = uri.authority().with_context(invalid)?;
        let host = authority.host();
        let port = match authority.as_str().strip_prefix(host).map(|rest| rest.strip_prefix(':').ok_or(rest)) {
            Some(Err("")) => 80 + u16::from(is_tls) * (443 - 80),
            Some(Ok(port)) => {
                port.parse().with_context(|| format!("{:?} has no valid port", without_password(text)))?
            }
            _ => bail!(invalid()),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() {
            bail!(invalid());
        }
        let query = uri.query().map_or(String::new(), |query| format!("?{query}"));
        let path = format!("{}{query}", uri.path());
        Ok(ServerUrl { is_tls, host, port, path })
    }

    /// `host:port` in the form of a Host header.
    pub(crate) fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// Connects to the first address that answers, without TLS.
    ///
    /// # Errors
    /// When no address answers in time.
    pub(crate) fn connect(&self) -> Result<TcpStream> {
        let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
        let addresses = (self.host.as_str(), self.port)
            .to_socket_addrs()
            .with_context(|| format!("failed to find {}", self.host))?;
        for address in addresses {
            match TcpStream::connect_timeout(&address, TIMEOUT) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    stream.set_read_timeout(Some(TIMEOUT))?;
                    stream.set_write_timeout(Some(TIMEOUT))?;
                    return Ok(stream);
                }
                Err(error) => last = error,
            }
        }
        Err(last).with_context(|| cannot_connect(self))
    }
}

/// Says what to do if a server cannot be reached.
pub(super) fn cannot_connect(url: &ServerUrl) -> String {
    format!("failed to connect to {}: see that the server runs, and that this is its http_server.port", url.authority())
}

/// The text of a URL without everything before its last `@`, which may be a password.
fn without_password(text: &str) -> String {
    let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
    match rest.rsplit_once('@') {
        Some((_, rest)) => format!("{scheme}://…@{rest}"),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_password_stands_in_the_text_of_an_error() {
        for text in [
            "http://u:secret@host",
            "ftp://u:secret@host",
            "u:secret@host",
            "http://u:p@secret@host",
            "http://secret@h:x",
        ] {
            let error = format!("{:#}", ServerUrl::parse(text, "http").expect_err(text));
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn urls_are_taken_apart() {
        let url = |is_tls, host: &str, port, path: &str| {
            Some(ServerUrl { is_tls, host: host.into(), port, path: path.into() })
        };
        for (text, expected) in [
            ("http://localhost", url(false, "localhost", 80, "/")),
            ("http://127.0.0.1:8000/api", url(false, "127.0.0.1", 8000, "/api")),
            ("http://[::1]:8000", url(false, "::1", 8000, "/")),
            ("http://[::1]", url(false, "::1", 80, "/")),
            ("http://host?x=1", url(false, "host", 80, "/?x=1")),
            ("https://host", url(true, "host", 443, "/")),
            ("https://host:8443/api", url(true, "host", 8443, "/api")),
            ("https://[::1]", url(true, "::1", 443, "/")),
            ("ws://host", None),
            ("httpss://host", None),
            ("host:80", None),
            ("http://", None),
            ("http:///path", None),
            ("http://host:port", None),
            ("http://host:", None),
            ("http://host:70000", None),
            ("http://host/a b", None),
            ("http://host/\r\nX: y", None),
            ("http://user@host", None),
            ("/path", None),
        ] {
            assert_eq!(ServerUrl::parse(text, "http").ok(), expected, "{text}");
        }
    }
}
