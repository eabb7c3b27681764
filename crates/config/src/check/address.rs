//! Checks the configured address of a backend over HTTP.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Maximum bytes of a host name, and of one label between two dots (RFC 1035 section 2.3.4).
const HOST_SIZE_MAX: usize = 253;
const LABEL_SIZE_MAX: usize = 63;
/// Maximum bytes of an address. The HTTP client accepts a little less than 64 KiB.
const ADDRESS_SIZE_MAX: usize = 8_192;

/// Checks an address that begins with `http://` or `https://`.
///
/// # Errors
/// What is wrong with the address. The text never quotes the address, because it may contain a secret.
pub(super) fn check_address(address: &str) -> Result<(), &'static str> {
    let rest = ["http://", "https://"].iter().find_map(|scheme| address.strip_prefix(scheme));
    let rest = rest.ok_or("must be http:// or https:// and a host, or nats: and a subject")?;
    if address.len() > ADDRESS_SIZE_MAX {
        return Err("is longer than 8192 bytes");
    }
    if rest.contains('#') {
        return Err("has a fragment (#…), which is never sent: remove it");
    }
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    if authority.contains('@') {
        return Err("contains a user (…@): set Authorization in headers instead, where tools do not show it");
    }
    check_authority(authority)?;
    if is_plain(path) { Ok(()) } else { Err("has characters in its path that must be escaped as %XX") }
}

/// Checks the authority of an address: a host, and a port if there is one.
fn check_authority(authority: &str) -> Result<(), &'static str> {
    let port = if let Some(bracketed) = authority.strip_prefix('[') {
        let (host, port) = bracketed.split_once(']').ok_or("has no ] after its IPv6 address")?;
        host.parse::<Ipv6Addr>().map_err(|_| "has no IPv6 address between [ and ]")?;
        if port.is_empty() { None } else { Some(port.strip_prefix(':').ok_or("has text between ] and the port")?) }
    } else {
        let (host, port) = authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port)));
        check_host(host)?;
        port
    };
    let is_port = |port: &str| {
        port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|number| number > 0)
    };
    if port.is_none_or(is_port) { Ok(()) } else { Err("has a port that is not 1 to 65535") }
}

fn check_host(host: &str) -> Result<(), &'static str> {
    if host.is_empty() {
        return Err("has no host");
    }
    let is_label = |label: &str| {
        let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        !label.is_empty() && label.len() <= LABEL_SIZE_MAX && label.bytes().all(is_of_name)
    };
    // A dot at the end marks a fully qualified name.
    let name = host.strip_suffix('.').unwrap_or(host);
    let is_number = name.rsplit('.').next().is_some_and(|last| last.bytes().all(|byte| byte.is_ascii_digit()));
    let is_host = if is_number { host.parse::<Ipv4Addr>().is_ok() } else { name.split('.').all(is_label) };
    if is_host && host.len() <= HOST_SIZE_MAX {
        Ok(())
    } else {
        Err("has a host that is neither a name nor an IP address")
    }
}

/// Whether a path and a query contain only characters that may appear there unescaped (RFC 3986 section 3.3).
fn is_plain(path: &str) -> bool {
    let bytes = path.as_bytes();
    bytes.iter().enumerate().all(|(index, byte)| match byte {
        b'%' => bytes.get(index + 1..index + 3).is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit)),
        byte => byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/?".contains(byte),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_with_a_port_and_a_path() {
        for address in [
            "http://b",
            "https://app.example.com/touchline?tenant=a%20b",
            "http://b_1.internal.:1/",
            "http://127.0.0.1:65535/x",
            "http://[::1]:8080",
            "https://[2001:db8::1]/a@b",
            "http://b?x",
        ] {
            assert_eq!(check_address(address), Ok(()), "{address}");
        }
        for (address, word) in [
            ("", "http://"),
            ("ftp://b", "http://"),
            ("HTTP://b", "http://"),
            ("grpc://b:1", "http://"),
            ("b:80", "http://"),
            ("http://", "host"),
            ("http:///x", "host"),
            ("http://:80", "host"),
            ("http://x:99999/", "port"),
            ("http://x:0/", "port"),
            ("http://x:/", "port"),
            ("http://x:80:80/", "port"),
            ("http://x:+80/", "port"),
            ("http://x:٣/", "port"),
            ("http://[::1]:70000", "port"),
            ("http://[::1]80", "port"),
            ("http://[::g]", "IPv6"),
            ("http://[::1", "]"),
            ("http://::1/", "host"),
            ("http://256.1.1.1", "host"),
            ("http://1.2.3", "host"),
            ("http://a..b", "host"),
            ("http://bücher.example", "host"),
            ("http://a b/", "host"),
            ("http://ann:secret@b/", "user"),
            ("http://b/x#top", "fragment"),
            ("http://b#top", "fragment"),
            ("http://b/a b", "%XX"),
            ("http://b/ü", "%XX"),
            ("http://b/%zz", "%XX"),
            ("http://b/x\n", "%XX"),
        ] {
            let text = check_address(address).expect_err(address);
            assert!(text.contains(word) && !text.contains("secret"), "{address}: {text}");
        }
        assert!(check_address(&format!("http://b/{}", "x".repeat(ADDRESS_SIZE_MAX))).is_err());
        assert!(check_address(&format!("http://{}", "x.".repeat(127))).is_err());
    }
}
