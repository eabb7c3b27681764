//! HTTP/2 by hand (RFC 9113): frames, heads without compression, WebSockets over streams (RFC 8441), and the windows
//! for the bytes that the test sends.

use std::collections::HashMap;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::http;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const WINDOW: i64 = 65_535;

/// One frame from the server.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

pub(crate) struct Two {
    pub(crate) socket: TcpStream,
    read: Vec<u8>,
    unsent: Vec<u8>,
    /// The number of bytes that the test may still send: for the connection (0), and for each stream.
    windows: HashMap<u32, i64>,
    initial: i64,
    /// The server has ended the connection.
    pub(crate) is_over: bool,
}

/// The bytes of an HTTP/2 frame.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
    out
}

/// The bytes of one HTTP/2 setting.
pub(crate) fn setting(number: u16, value: u32) -> Vec<u8> {
    [&number.to_be_bytes()[..], &value.to_be_bytes()].concat()
}

/// A block of header fields. Each is a literal that is not added to the table. Texts are shorter than 127 bytes.
pub(crate) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in fields {
        out.push(0);
        for text in [name, value] {
            out.push(text.len() as u8);
            out.extend_from_slice(text.as_bytes());
        }
    }
    out
}

/// The fields of a plain GET.
pub(crate) fn get(path: &str) -> Vec<u8> {
    block(&[(":method", "GET"), (":scheme", "http"), (":authority", "127.0.0.1"), (":path", path)])
}

impl Two {
    /// Opens a connection and sends its settings. `window`: the bytes that the server may send on each stream.
    pub(crate) fn open(address: SocketAddr, window: u32) -> Self {
        let mut socket = http::narrow_socket(address);
        let settings = [setting(2, 0), setting(4, window)].concat();
        socket.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &settings)].concat()).expect("the server reads");
        let windows = HashMap::from([(0, WINDOW)]);
        let mut two = Two { socket, read: Vec::new(), unsent: Vec::new(), windows, initial: WINDOW, is_over: false };
        let end = Instant::now() + touchline_testkit::PATIENCE;
        while two.next(Duration::from_secs(1)).is_some_and(|frame| frame.kind != SETTINGS) && Instant::now() < end {}
        two
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.is_over |= self.socket.write_all(bytes).is_err();
    }

    /// Opens a WebSocket on a stream.
    pub(crate) fn websocket(&mut self, stream: u32) {
        let fields = block(&[
            (":method", "CONNECT"),
            (":protocol", "websocket"),
            (":scheme", "http"),
            (":authority", "127.0.0.1"),
            (":path", "/connection/websocket"),
            ("sec-websocket-version", "13"),
        ]);
        self.send(&frame(HEADERS, END_HEADERS, stream, &fields));
        self.windows.insert(stream, self.initial);
    }

    /// The next frame. `None`: the end, or nothing arrived in time. The call answers settings and pings, and notes
    /// windows.
    pub(crate) fn next(&mut self, patience: Duration) -> Option<Frame> {
        let end = Instant::now() + patience;
        let mut some = [0; 16 * 1024];
        loop {
            if let Some(frame) = self.take() {
                return Some(frame);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || self.is_over {
                return None;
            }
            let _ = self.socket.set_read_timeout(Some(left.max(Duration::from_millis(1))));
            match self.socket.read(&mut some) {
                Ok(0) => self.is_over = true,
                Ok(length) => self.read.extend_from_slice(&some[..length]),
                Err(error) => self.is_over |= !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
            }
        }
    }

    /// The next frame in the bytes that have been read, if it is complete.
    fn take(&mut self) -> Option<Frame> {
        let length = u32::from_be_bytes([0, *self.read.first()?, *self.read.get(1)?, *self.read.get(2)?]) as usize;
        if self.read.len() < 9 + length {
            return None;
        }
        let stream = u32::from_be_bytes([self.read[5], self.read[6], self.read[7], self.read[8]]) & 0x7fff_ffff;
        let frame =
            Frame { kind: self.read[3], flags: self.read[4], stream, payload: self.read[9..9 + length].to_vec() };
        self.read.drain(..9 + length);
        match frame.kind {
            SETTINGS if frame.flags & ACK == 0 => {
                for setting in frame.payload.chunks_exact(6).filter(|setting| setting[..2] == [0, 4]) {
                    let value = i64::from(u32::from_be_bytes([setting[2], setting[3], setting[4], setting[5]]));
                    self.windows
                        .iter_mut()
                        .filter(|(stream, _)| **stream != 0)
                        .for_each(|(_, window)| *window += value - self.initial);
                    self.initial = value;
                }
                self.unsent.extend(self::frame(SETTINGS, ACK, 0, &[]));
            }
            PING if frame.flags & ACK == 0 => self.unsent.extend(self::frame(PING, ACK, 0, &frame.payload)),
            WINDOW_UPDATE if length == 4 => {
                let more = u32::from_be_bytes([frame.payload[0], frame.payload[1], frame.payload[2], frame.payload[3]]);
                *self.windows.entry(stream).or_insert(0) += i64::from(more & 0x7fff_ffff);
            }
            _ => {}
        }
        Some(frame)
    }

    /// Sends the same bytes on all streams as fast as windows and socket allow. Returns the number of bytes sent.
    pub(crate) fn flood(&mut self, streams: &[u32], bytes: &[u8], lasting: Duration) -> u64 {
        let (began, mut sent) = (Instant::now(), 0);
        while began.elapsed() < lasting && !self.is_over {
            for stream in streams {
                let window = self.windows.get(&0).min(self.windows.get(stream)).copied().unwrap_or(0);
                if self.unsent.is_empty() && window >= bytes.len() as i64 {
                    self.unsent = frame(DATA, 0, *stream, bytes);
                    sent += bytes.len() as u64;
                    for stream in [&0, stream] {
                        self.windows.entry(*stream).and_modify(|window| *window -= bytes.len() as i64);
                    }
                }
                self.write_some();
            }
            while self.next(Duration::from_millis(if self.unsent.is_empty() { 0 } else { 1 })).is_some() {}
            let _ = self.socket.set_nonblocking(true);
            let mut some = [0; 16 * 1024];
            while let Ok(length @ 1..) = self.socket.read(&mut some) {
                self.read.extend_from_slice(&some[..length]);
            }
            let _ = self.socket.set_nonblocking(false);
        }
        sent
    }

    fn write_some(&mut self) {
        let _ = self.socket.set_nonblocking(true);
        match self.socket.write(&self.unsent) {
            Ok(length) => drop(self.unsent.drain(..length)),
            Err(error) => self.is_over |= error.kind() != ErrorKind::WouldBlock,
        }
        let _ = self.socket.set_nonblocking(false);
    }
}
