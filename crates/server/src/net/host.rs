//! The host of a request (RFC 9112 section 3.2), and whether this node serves it: `http_server.allowed_hosts`. The
//! owner of a page can point the page's own name at this node's address. Requests of the page then have that name as
//! their host, so a list of names refuses them.

use std::net::IpAddr;

use hyper::header::HOST;
use touchline_engine::wildcard;

use crate::net::headers::Headers;

/// Why a host is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HostRefusal {
    /// The request has no `Host`, or more than one, or the host is not valid.
    Malformed,
    /// The host is not in `http_server.allowed_hosts`.
    NotAllowed,
}

/// Why a request is refused, for the log.
pub(crate) const NOT_ALLOWED: &str = "the host of the request is not in http_server.allowed_hosts";

/// Checks the host of a request. `target`: the authority of the request's target. If there are both, both must be
/// allowed. `is_needed`: whether the request must have a `Host`.
///
/// # Errors
/// [`HostRefusal`] says why the host is refused.
pub(crate) fn check(
    headers: &impl Headers,
    target: Option<&str>,
    is_needed: bool,
    allowed: &[String],
) -> Result<(), HostRefusal> {
    let mut fields = headers.values(&HOST);
    let field = fields.next();
    if fields.next().is_some() || is_needed && field.is_none() {
        return Err(HostRefusal::Malformed);
    }
    if field.is_some_and(|host| !host.iter().all(|byte| IS_OF_HOST[usize::from(*byte)])) {
        return Err(HostRefusal::Malformed);
    }
    if allowed.is_empty() {
        return Ok(());
    }
    let field = field.and_then(|host| std::str::from_utf8(host).ok());
    let is_told = target.is_some() || field.is_some();
    let are_allowed = [target, field].into_iter().flatten().all(|host| is_allowed(host, allowed));
    if are_allowed && is_told { Ok(()) } else { Err(HostRefusal::NotAllowed) }
}

/// Which bytes may be part of a host with or without a port, by their numbers; the host may be empty.
static IS_OF_HOST: [bool; 256] = {
    let mut known = [false; 256];
    let mut byte = 0;
    while byte < known.len() {
        known[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let marks = b"-._~%!$&'()*+;=:[]";
    let mut index = 0;
    while index < marks.len() {
        known[marks[index] as usize] = true;
        index += 1;
    }
    known
};

/// Whether the list contains this host, with or without its port. Every list contains all IP addresses.
fn is_allowed(host: &str, allowed: &[String]) -> bool {
    let host = host.to_ascii_lowercase();
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host.as_str(),
    };
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    address.parse::<IpAddr>().is_ok()
        || allowed
            .iter()
            .map(|pattern| pattern.to_ascii_lowercase())
            .any(|pattern| [name, &host].iter().any(|t| wildcard::matches(&pattern, t)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(hosts: &[&str], target: Option<&str>, allowed: &[&str]) -> Result<(), HostRefusal> {
        let headers: Vec<_> =
            hosts.iter().map(|host| httparse::Header { name: "Host", value: host.as_bytes() }).collect();
        let allowed: Vec<String> = allowed.iter().map(|host| (*host).to_owned()).collect();
        check(&&headers[..], target, true, &allowed)
    }

    #[test]
    fn a_request_has_one_host() {
        assert_eq!(checked(&["live.test"], None, &[]), Ok(()));
        assert_eq!(checked(&["live.test:8000"], None, &[]), Ok(()));
        assert_eq!(checked(&[""], None, &[]), Ok(()));
        for hosts in [&[][..], &["a", "b"], &["a", "a"], &["a, b"], &["a/b"], &["u@a"], &["a b"], &["\u{e4}"]] {
            assert_eq!(checked(hosts, None, &[]), Err(HostRefusal::Malformed), "{hosts:?}");
        }
    }

    #[test]
    fn a_list_of_hosts_holds_names_and_every_address() {
        let allowed = ["localhost", "*.live.test", "one.test:8000"];
        for host in [
            "localhost",
            "LOCALHOST:1",
            "a.live.test",
            "127.0.0.1:8000",
            "[::1]:8000",
            "[::1]",
            "192.0.2.1",
            "one.test:8000",
        ] {
            assert_eq!(checked(&[host], None, &allowed), Ok(()), "{host}");
        }
        for host in
            ["evil.test", "localhost.evil.test", "live.test.evil", "one.test", "one.test:80", "127.0.0.1.evil.test", ""]
        {
            assert_eq!(checked(&[host], None, &allowed), Err(HostRefusal::NotAllowed), "{host}");
        }
        assert_eq!(
            checked(&["localhost"], Some("evil.test"), &allowed),
            Err(HostRefusal::NotAllowed),
            "the target counts"
        );
    }
}
