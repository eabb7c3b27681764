//! Bytes on the wire: the same publications to one subscriber unchanged, compressed, and as deltas.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::arguments::Options;
use crate::publisher::PublishClient;
use crate::report::{Figure, Results};
use crate::server_under_test::ServerUnderTest;
use crate::transport::ClientTransport;
use crate::wire;

const PUBLICATIONS: usize = 200;
const CHANNEL: &str = "delta:state";
/// Silence after which all bytes count as received.
const QUIET: Duration = Duration::from_millis(300);

/// One run: events of 1 KB, plain and compressed; a state of 4 KB, plain and by its changes.
pub(super) fn bytes(options: &Options, results: &mut Results) -> Result<()> {
    let server = ServerUnderTest::start(&Options { transport: ClientTransport::Deflate, ..options.clone() })?;
    let figure = |name, unit| Figure::new("bytes on the wire", name, unit);
    let (events, states): (Vec<_>, Vec<_>) = (0..PUBLICATIONS).map(|n| (event(n), state(n))).unzip();
    let of = |transport, delta, publications: &[String]| received(&server, transport, delta, publications);
    let (plain, deflated) = (of(ClientTransport::Websocket, "", &events)?, of(ClientTransport::Deflate, "", &events)?);
    let (whole, changes) = (
        of(ClientTransport::Websocket, "", &states)?,
        of(ClientTransport::Websocket, r#","delta":"fossil""#, &states)?,
    );
    results.add(figure("an event of 1 KB", "B"), plain);
    results.add(figure("the same compressed", "B"), deflated);
    results.add(figure("compressed / plain", "×").bound(0.5, 0.4), deflated / plain);
    results.add(figure("a state of 4 KB", "B"), whole);
    results.add(figure("the same as a change", "B"), changes);
    results.add(figure("change / plain", "×").bound(0.1, 0.05), changes / whole);
    Ok(())
}

/// A commentary event: text with names and numbers that differ.
fn event(number: usize) -> String {
    const VERBS: [&str; 6] =
        ["passes to", "is fouled by", "crosses for", "shoots past", "is replaced by", "heads it to"];
    let players = |salt: usize| -> String {
        let of = |n: usize| {
            let (x, y) = ((number * 37 + n * 91 + salt * 13) % 1050, (number * 53 + n * 17) % 680);
            format!(r#"{{"id":{},"x":{},"y":{},"speed":{}}}"#, n + salt * 11, x, y, (number * 7 + n * 3) % 34)
        };
        (0..9).map(of).collect::<Vec<_>>().join(",")
    };
    let verb = VERBS[number % VERBS.len()];
    format!(
        r#"{{"minute":{},"type":"play","text":"Number {} {verb} number {} near the line","home":[{}],"away":[{}]}}"#,
        number / 2,
        number % 11 + 1,
        number * 5 % 11 + 1,
        players(0),
        players(1)
    )
}

/// A table of which one row changes at a time.
fn state(number: usize) -> String {
    let row = |n: usize| {
        let points = (0..=number).filter(|round| round % 60 == n).count() * 3;
        format!(r#"{{"team":"Athletic Club {n}","played":{},"points":{points},"form":"WDLWW"}}"#, n + 20)
    };
    format!(r#"{{"league":"first","rows":[{}]}}"#, (0..60).map(row).collect::<Vec<_>>().join(","))
}

/// Bytes that one subscriber receives for each publication.
fn received(server: &ServerUnderTest, transport: ClientTransport, delta: &str, publications: &[String]) -> Result<f64> {
    let mut socket = TcpStream::connect(server.address)?;
    socket.set_read_timeout(Some(QUIET))?;
    socket.write_all(&transport.opening("lab", "/connection/websocket", CHANNEL))?;
    read_until(&mut socket, b"\r\n\r\n")?;
    socket.write_all(&wire::text(&format!(
        "{{\"id\":1,\"connect\":{{}}}}\n{{\"id\":2,\"subscribe\":{{\"channel\":\"{CHANNEL}\"{delta}}}}}"
    )))?;
    let mut answer = Vec::new();
    while read_some(&mut socket, &mut answer)? > 0 {}
    if frames(&answer) == 0 {
        bail!("the subscriber got no answer");
    }
    publish(&server.api, publications)?;
    let mut all = Vec::new();
    while read_some(&mut socket, &mut all)? > 0 {}
    if frames(&all) != publications.len() {
        bail!("{} publications came in {} frames: each should have its own", publications.len(), frames(&all));
    }
    Ok(all.len() as f64 / publications.len() as f64)
}

/// Whole frames of WebSocket with data, as a server sends them.
fn frames(mut bytes: &[u8]) -> usize {
    let mut count = 0;
    while let [first, second, rest @ ..] = bytes {
        let (length, rest) = match (second & 0x7f, rest) {
            (126, [a, b, rest @ ..]) => (usize::from(u16::from_be_bytes([*a, *b])), rest),
            (short @ 0..126, rest) => (usize::from(short), rest),
            _ => break,
        };
        let Some(behind) = rest.get(length..) else { break };
        count += usize::from(first & 0x0f <= 2);
        bytes = behind;
    }
    count
}

/// The number of bytes that were read; 0 after silence.
fn read_some(socket: &mut TcpStream, all: &mut Vec<u8>) -> Result<usize> {
    let mut scratch = [0; 64 * 1024];
    match socket.read(&mut scratch) {
        Ok(0) => bail!("the server closed the connection"),
        Ok(length) => {
            all.extend_from_slice(&scratch[..length]);
            Ok(length)
        }
        Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => Ok(0),
        Err(error) => Err(error.into()),
    }
}

fn read_until(socket: &mut TcpStream, end: &[u8]) -> Result<()> {
    let (began, mut all, mut byte) = (Instant::now(), Vec::new(), [0; 1]);
    while !all.ends_with(end) && began.elapsed() < Duration::from_secs(5) {
        socket.read_exact(&mut byte)?;
        all.extend_from_slice(&byte);
    }
    Ok(())
}

fn publish(api: &PublishClient, publications: &[String]) -> Result<()> {
    let address: SocketAddr = api.address;
    let mut socket = TcpStream::connect(address)?;
    for data in publications {
        socket.write_all(&api.call("publish", &format!(r#"{{"channel":"{CHANNEL}","data":{data}}}"#)))?;
        let (mut answer, mut some) = (Vec::new(), [0; 1_024]);
        while crate::publisher::answer(&answer)?.is_none() {
            let length = socket.read(&mut some)?;
            if length == 0 {
                bail!("the server closed the publisher's connection");
            }
            answer.extend_from_slice(&some[..length]);
        }
    }
    Ok(())
}
