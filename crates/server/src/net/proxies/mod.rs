//! The client behind a connection. A proxy reports the address of its client. The node believes only the proxies that
//! the settings trust.

use std::net::IpAddr;

use hyper::header::{FORWARDED, HeaderName};
use touchline_config::{BadNetwork, Networks};

use super::headers::Headers;
use super::remote::Remote;

static X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The trusted proxies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Proxies(Networks);

impl Proxies {
    /// Reads addresses and networks, IPv4 and IPv6.
    ///
    /// # Errors
    /// The first text that is neither an address nor a network.
    pub(crate) fn parse(texts: &[String]) -> Result<Self, BadNetwork> {
        Networks::parse(texts).map(Proxies)
    }

    /// Whether the node believes what a peer's requests say of their client. The peer must be a trusted proxy, and the
    /// connection its own. After a header of the PROXY protocol, the client itself writes the requests, whatever
    /// address the header names.
    pub(crate) fn may_speak(&self, peer: Remote) -> bool {
        !peer.is_introduced && self.contains(peer.address)
    }

    /// Whether no proxy is trusted. Then each client is at the other end of its own connection.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this is the address of a trusted proxy.
    pub(crate) fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(address)
    }

    /// Returns the client that has sent a request with these headers over the connection of `peer`.
    ///
    /// # Errors
    /// `X-Forwarded-For` and `Forwarded` are both present and name different clients. The client has written the header
    /// that the proxy does not write, and the node can't know which of the two it is.
    pub(crate) fn client(&self, peer: Remote, headers: &impl Headers) -> Result<Remote, Ambiguous> {
        if self.is_empty() || !self.may_speak(peer) {
            return Ok(peer);
        }
        let listed: Vec<&[u8]> = headers.values(&X_FORWARDED_FOR).collect();
        let elements: Vec<&[u8]> = headers.values(&FORWARDED).collect();
        let by_list = || {
            self.walk(peer, listed.iter().rev().flat_map(|line| line.rsplit(|byte| *byte == b',')).map(bare_address))
        };
        let by_elements =
            || self.walk(peer, elements.iter().rev().flat_map(|line| SplitBack::at(line, b',')).map(forwarded_for));
        match (listed.is_empty(), elements.is_empty()) {
            (_, true) => Ok(by_list()),
            (true, false) => Ok(by_elements()),
            (false, false) => Some(by_list()).filter(|remote| *remote == by_elements()).ok_or(Ambiguous),
        }
    }

    /// Walks the hops, the nearest first, as long as a trusted proxy reports the next hop. A malformed hop ends the
    /// walk, because any client may have written the rest.
    fn walk(&self, peer: Remote, hops: impl Iterator<Item = Option<IpAddr>>) -> Remote {
        // A proxy that reports no client may forward for a client on any machine.
        let mut client = Remote { is_loopback: false, ..peer };
        for hop in hops {
            let Some(address) = hop else {
                client.is_loopback = false;
                break;
            };
            // Only a proxy on this machine can know that its client is on this machine too.
            client = Remote::of(address);
            client.is_loopback &= peer.is_loopback;
            if !self.contains(address) {
                break;
            }
        }
        client
    }
}

/// The headers of a request name two different clients; see [`Proxies::client`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ambiguous;

/// The address in a text that a proxy has written: bare, with a port, or in brackets.
fn bare_address(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?.trim_matches([' ', '\t']);
    if let Some(rest) = text.strip_prefix('[') {
        let (address, port) = rest.split_once(']')?;
        let is_whole = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
        return address.parse().ok().filter(|_| is_whole).map(IpAddr::V6);
    }
    match text.split_once(':') {
        Some((address, port)) if is_port(port) => address.parse().ok().map(IpAddr::V4),
        _ => text.parse().ok(),
    }
}

fn is_port(text: &str) -> bool {
    (1..=5).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The address in one element of `Forwarded` (RFC 7239 section 4). None = there is none, there are two, or it is
/// hidden.
fn forwarded_for(element: &[u8]) -> Option<IpAddr> {
    let mut found = None;
    for pair in SplitBack::at(element, b';') {
        let pair = pair.trim_ascii();
        let equals = pair.iter().position(|byte| *byte == b'=')?;
        let (name, value) = (&pair[..equals], &pair[equals + 1..]);
        if name.eq_ignore_ascii_case(b"for") {
            let value = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value);
            let address = bare_address(value)?;
            if found.replace(address).is_some() {
                return None;
            }
        }
    }
    found
}

/// The parts of a text between separators that are not in quotes, from the right. An unclosed quote further left must
/// not swallow what a proxy has added.
struct SplitBack<'a> {
    rest: Option<&'a [u8]>,
    separator: u8,
}

impl<'a> SplitBack<'a> {
    fn at(text: &'a [u8], separator: u8) -> Self {
        SplitBack { rest: Some(text), separator }
    }
}

impl<'a> Iterator for SplitBack<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest?;
        let mut is_quoted = false;
        for (at, byte) in rest.iter().enumerate().rev() {
            // Only before quotes, because a check at every byte would be quadratic in a text of backslashes.
            if *byte == b'"' {
                is_quoted ^= !is_escaped(&rest[..at]);
            } else if *byte == self.separator && !is_quoted {
                self.rest = Some(&rest[..at]);
                return Some(&rest[at + 1..]);
            }
        }
        self.rest = None;
        Some(rest)
    }
}

/// Whether a backslash escapes the byte after this text. Each run of backslashes is read once, because a run ends at
/// the next quote.
fn is_escaped(before: &[u8]) -> bool {
    before.iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1
}

#[cfg(test)]
mod tests;
