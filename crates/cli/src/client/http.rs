//! A small blocking HTTP/1.1 client: one POST on one connection, for the server API of a Touchline nearby.

use std::io::{self, BufRead, BufReader, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

/// Time to connect, and to wait for each piece of an answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Largest head of an answer, bytes.
const HEAD_LEN_MAX: u64 = 64 * 1024;
/// Largest body of an answer, bytes.
const BODY_LEN_MAX: u64 = 64 * 1024 * 1024;

/// The address of a server, and a path on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HttpUrl {
    /// Host name or address, without brackets.
    pub(crate) host: String,
    /// Its port.
    pub(crate) port: u16,
    /// The path and query, beginning with `/`.
    pub(crate) path: String,
}

impl HttpUrl {
    /// Parses `scheme://host[:port][/path]`.
    ///
    /// # Errors
    /// When the text is something else; for the scheme with TLS, a text that says so.
    pub(crate) fn parse(text: &str, scheme: &str) -> Result<Self> {
        let Some(rest) = text.strip_prefix(scheme).and_then(|rest| rest.strip_prefix("://")) else {
            if text.starts_with(&format!("{scheme}s://")) {
                bail!(
                    "{scheme}s:// is not supported yet: \
                     reach the server itself by {scheme}://, \
                     or go through a local TLS tunnel"
                );
            }
            bail!("{text:?} is not a valid {scheme}:// URL");
        };
        let at = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(at);
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, port.parse().with_context(|| format!("{text:?} has no valid port"))?)
            }
            _ => (authority, 80),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let is_clean = |text: &str| text.bytes().all(|b| b.is_ascii_graphic());
        if host.is_empty() || host.contains('@') || !is_clean(host) || !is_clean(path) {
            bail!("{text:?} is not a valid {scheme}:// URL");
        }
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        Ok(HttpUrl { host: host.to_owned(), port, path })
    }

    /// `host:port` as a Host header has it.
    pub(crate) fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// Connects to the first address that answers.
    ///
    /// # Errors
    /// When none does, in time.
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
        Err(last).with_context(|| format!("failed to connect to {}", self.authority()))
    }
}

/// An answer.
#[derive(Debug)]
pub(crate) struct HttpReply {
    /// The status code.
    pub(crate) status: u16,
    /// The body.
    pub(crate) body: Vec<u8>,
}

/// Posts JSON, with the key if there is one.
///
/// # Errors
/// When no server answers, or the answer is not HTTP.
pub(crate) fn post(url: &HttpUrl, key: &str, body: &[u8]) -> Result<HttpReply> {
    let mut stream = url.connect()?;
    let key = if key.is_empty() { String::new() } else { format!("X-API-Key: {key}\r\n") };
    let head = format!(
        "POST {} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         {key}Connection: close\r\n\r\n",
        url.path,
        url.authority(),
        body.len()
    );
    let mut request = head.into_bytes();
    request.extend_from_slice(body);
    stream.write_all(&request).with_context(|| format!("failed to send to {}", url.authority()))?;
    read_answer(BufReader::new(stream)).with_context(|| format!("failed to read the answer of {}", url.authority()))
}

/// Reads a whole answer whose length is given by `Content-Length` or by the end of the connection.
fn read_answer(mut input: impl BufRead) -> Result<HttpReply> {
    let mut head = (&mut input).take(HEAD_LEN_MAX);
    let status = read_status(&read_line(&mut head)?)?;
    let mut length = BODY_LEN_MAX + 1;
    let mut is_length_known = false;
    loop {
        let line = read_line(&mut head)?;
        if line.is_empty() {
            break;
        }
        let Some((name, value)) = line.split_once(':') else { bail!("a header without a colon") };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().context("no good content-length")?;
            is_length_known = true;
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            bail!("an answer in chunks, which no Touchline sends");
        }
    }
    let mut body = Vec::new();
    input.take(length).read_to_end(&mut body)?;
    if body.len() as u64 > BODY_LEN_MAX {
        bail!("an answer over {BODY_LEN_MAX} bytes");
    }
    if is_length_known && (body.len() as u64) < length {
        bail!("the answer broke off");
    }
    Ok(HttpReply { status, body })
}

/// The status code of a status line.
pub(crate) fn read_status(line: &str) -> Result<u16> {
    let code = line.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5)).and_then(|code| code.parse().ok());
    code.context("the other end is not an HTTP server")
}

/// One line of a head, without its end.
pub(crate) fn read_line(head: &mut impl BufRead) -> Result<String> {
    let mut line = Vec::new();
    head.read_until(b'\n', &mut line)?;
    if line.pop() != Some(b'\n') {
        bail!("the answer broke off, or its head is too long");
    }
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    String::from_utf8(line).context("the head of the answer is not UTF-8")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        let url = |host: &str, port, path: &str| Some(HttpUrl { host: host.into(), port, path: path.into() });
        for (text, expected) in [
            ("http://localhost", url("localhost", 80, "/")),
            ("http://127.0.0.1:8000/api", url("127.0.0.1", 8000, "/api")),
            ("http://[::1]:8000", url("::1", 8000, "/")),
            ("http://[::1]", url("::1", 80, "/")),
            ("http://host?x=1", url("host", 80, "/?x=1")),
            ("https://host", None),
            ("host:80", None),
            ("http://", None),
            ("http://host:port", None),
            ("http://host/a b", None),
            ("http://host/\r\nX: y", None),
            ("http://user@host", None),
        ] {
            assert_eq!(HttpUrl::parse(text, "http").ok(), expected, "{text}");
        }
        let error = HttpUrl::parse("https://host", "http").expect_err("TLS is not spoken").to_string();
        assert!(error.contains("https:// is not supported yet"), "{error}");
    }

    #[test]
    fn answers_are_read_to_their_length() {
        let answer = |text: &str| {
            read_answer(text.as_bytes()).map(|a| (a.status, String::from_utf8_lossy(&a.body).into_owned())).ok()
        };
        for (text, expected) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}more", Some((200, "{}".to_owned()))),
            ("HTTP/1.0 401 No\r\n\r\nto the end", Some((401, "to the end".to_owned()))),
            ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", None),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", None),
            ("HTTP/1.1 200 OK\r\nContent-", None),
            ("SSH-2.0-OpenSSH\r\n\r\n", None),
            ("", None),
        ] {
            assert_eq!(answer(text), expected, "{text:?}");
        }
    }
}
