//! The PROXY protocol (HAProxy, version 1 and 2). At the beginning of a connection, a proxy sends the address of the
//! client for which it has opened the connection.

use std::net::IpAddr;

use proxy_header::{ParseConfig, ProxyHeader};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::TcpStream;

use crate::net::remote::Remote;

/// The longest header of version 1, in bytes, including the end of the line.
const TEXT_MAX: usize = 107;
/// The longest header of version 2, in bytes, including its contents besides addresses (TLVs). A header with a
/// certificate's name has some hundred bytes.
const BINARY_MAX: usize = 2_048;
/// The first bytes of the versions.
const TEXT_BEGINS: &[u8] = b"PROXY ";
const BINARY_BEGINS: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// The size of the part of version 2 before the part whose length it contains, in bytes.
const BINARY_HEAD: usize = BINARY_BEGINS.len() + 4;
// The longest addresses of the specification, those of two Unix sockets (216 bytes), are not too long.
const _: () = assert!(BINARY_HEAD + 216 <= BINARY_MAX);

/// Reads the header from a socket, and no byte after it. None = there is no header, or the socket has ended.
pub(crate) async fn read(socket: &mut TcpStream, proxy: IpAddr) -> Option<Remote> {
    let mut header = vec![0; BINARY_BEGINS.len()];
    socket.read_exact(&mut header).await.ok()?;
    if header == BINARY_BEGINS {
        read_binary(socket, &mut header).await?;
    } else if header.starts_with(TEXT_BEGINS) {
        read_line(socket, &mut header).await?;
    } else {
        return None;
    }
    parse(&header, proxy)
}

async fn read_binary(socket: &mut (impl AsyncRead + Unpin), header: &mut Vec<u8>) -> Option<()> {
    header.resize(BINARY_HEAD, 0);
    socket.read_exact(&mut header[BINARY_BEGINS.len()..]).await.ok()?;
    let rest = u16::from_be_bytes([header[BINARY_HEAD - 2], header[BINARY_HEAD - 1]]);
    let length = Some(BINARY_HEAD + usize::from(rest)).filter(|length| *length <= BINARY_MAX)?;
    header.resize(length, 0);
    socket.read_exact(&mut header[BINARY_HEAD..]).await.ok()?;
    Some(())
}

/// Takes the bytes up to the end of the line. Later bytes stay in the socket.
async fn read_line(socket: &mut TcpStream, header: &mut Vec<u8>) -> Option<()> {
    let mut room = [0; TEXT_MAX];
    while header.len() < TEXT_MAX {
        let seen = socket.peek(&mut room[header.len()..]).await.ok().filter(|seen| *seen > 0)?;
        let seen = &room[header.len()..header.len() + seen];
        let end = seen.iter().position(|byte| *byte == b'\n');
        let (from, taken) = (header.len(), end.map_or(seen.len(), |at| at + 1));
        header.resize(from + taken, 0);
        socket.read_exact(&mut header[from..]).await.ok()?;
        if end.is_some() {
            return Some(());
        }
    }
    None
}

/// Parses a whole header; None = it is malformed.
fn parse(header: &[u8], proxy: IpAddr) -> Option<Remote> {
    let config = ParseConfig { include_tlvs: false, ..ParseConfig::default() };
    let (parsed, length) = ProxyHeader::parse(header, config).ok()?;
    if length != header.len() {
        return None;
    }
    Some(match parsed.proxied_address() {
        Some(addresses) => Remote::introduced_by(proxy, addresses.source.ip()),
        None => Remote::unknown_behind(proxy),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROXY: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));

    fn binary(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let head = [BINARY_BEGINS, &[command, family], &(rest.len() as u16).to_be_bytes()].concat();
        [&head[..], rest].concat()
    }

    /// The address of the client; `-` = the proxy's own; None = refused.
    fn read_of(header: &[u8]) -> Option<String> {
        let remote = parse(header, PROXY)?;
        assert!(remote.is_introduced, "what comes behind the header is the client's own");
        Some(if remote == Remote::unknown_behind(PROXY) { "-".into() } else { remote.address.to_string() })
    }

    #[test]
    fn lines_tell_the_client() {
        for (line, client) in [
            ("PROXY TCP4 203.0.113.9 10.0.0.2 51234 443\r\n", Some("203.0.113.9")),
            ("PROXY TCP6 2001:db8::1 fd00::1 51234 443\r\n", Some("2001:db8::1")),
            ("PROXY TCP6 ::ffff:203.0.113.9 ::1 51234 443\r\n", Some("203.0.113.9")),
            ("PROXY UNKNOWN\r\n", Some("-")),
            ("PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n", Some("-")),
            ("PROXY TCP4 203.0.113.9 10.0.0.2 51234 443\n", None),
            ("PROXY TCP4 203.0.113.999 10.0.0.2 51234 443\r\n", None),
            ("PROXY TCP4 203.0.113.9 10.0.0.2 51234 70000\r\n", None),
            ("PROXY TCP4 203.0.113.9\r\n", None),
            ("PROXY TCP4 2001:db8::1 fd00::1 1 2\r\n", None),
            ("PROXY UDP4 203.0.113.9 10.0.0.2 51234 443\r\n", None),
            ("PROXY \r\n", None),
        ] {
            assert_eq!(read_of(line.as_bytes()).as_deref(), client, "{line:?}");
        }
    }

    #[test]
    fn binary_headers_tell_the_client() {
        let four = [&[203, 0, 113, 9, 10, 0, 0, 2][..], &[0, 1, 0, 2]].concat();
        let six = [[0x20; 16], [0xfd; 16]].concat();
        assert_eq!(read_of(&binary(0x21, 0x11, &four)).as_deref(), Some("203.0.113.9"));
        assert_eq!(
            read_of(&binary(0x21, 0x11, &[&four[..], &[4, 0, 1, 0]].concat())).as_deref(),
            Some("203.0.113.9"),
            "with TLVs"
        );
        let six = [&six[..], &[0, 1, 0, 2]].concat();
        assert_eq!(read_of(&binary(0x21, 0x21, &six)).as_deref(), Some("2020:2020:2020:2020:2020:2020:2020:2020"));
        assert_eq!(read_of(&binary(0x20, 0x00, &[])).as_deref(), Some("-"), "LOCAL");
        assert_eq!(read_of(&binary(0x20, 0x11, &four)).as_deref(), Some("-"), "LOCAL, whatever else it says");
        assert_eq!(read_of(&binary(0x21, 0x00, &[])).as_deref(), Some("-"), "of no family");
        assert_eq!(read_of(&binary(0x21, 0x31, &[1; 216])).as_deref(), Some("-"), "a path");
        assert_eq!(read_of(&binary(0x21, 0x11, &four[..11])), None, "too short for its addresses");
        assert_eq!(read_of(&binary(0x31, 0x11, &four)), None, "another version");
        assert_eq!(read_of(&binary(0x22, 0x11, &four)), None, "another command");
        assert_eq!(read_of(&binary(0x21, 0x41, &four)), None, "another family");
    }
}
