//! HTTP/2: floods of control frames, heads without an end, streams that are reset, and connections that wait.

use std::time::Duration;

use crate::support::server::Server;
use crate::support::two::{
    self, ACK, CONTINUATION, END_HEADERS, END_STREAM, GOAWAY, HEADERS, RST_STREAM, SETTINGS, Two, WINDOW_UPDATE,
};
use crate::support::watch::Watch;
use crate::support::websocket::flood;
use crate::support::{FLOOD, MIB, alone};

const SLACK: u64 = 24 * MIB;
const WINDOW: u32 = 65_535;

/// Sends the same bytes on four connections at full speed.
fn frames(name: &'static str, bytes: &[u8]) {
    let _alone = alone();
    let server = Server::start();
    let sockets: Vec<_> = (0..4).map(|_| Two::open(server.address, WINDOW).socket).collect();
    let mut watch = Watch::begin(name, &server);
    let (sent, ended) = flood(&sockets, &bytes.repeat(1 + 32 * 1024 / bytes.len()), FLOOD, false);
    watch.told(format!("{} MiB sent, {ended} of 4 ended", sent / MIB));
    watch.end(4 * 4 * MIB + SLACK);
}

#[test]
fn settings_at_full_speed_cost_nobody_else_anything() {
    frames("HTTP/2 SETTINGS without reading", &two::frame(SETTINGS, 0, 0, &two::setting(4, WINDOW)));
}

#[test]
fn pings_of_http2_at_full_speed_cost_nobody_else_anything() {
    frames("HTTP/2 PINGs without reading", &two::frame(two::PING, 0, 0, &[7; 8]));
}

#[test]
fn window_updates_at_full_speed_cost_nobody_else_anything() {
    frames("HTTP/2 WINDOW_UPDATEs", &two::frame(WINDOW_UPDATE, 0, 0, &1u32.to_be_bytes()));
}

#[test]
fn a_head_without_end_is_ended() {
    let _alone = alone();
    let server = Server::start();
    let mut attacker = Two::open(server.address, WINDOW);
    let mut watch = Watch::begin("HTTP/2 CONTINUATION without end", &server);
    attacker.send(&two::frame(HEADERS, 0, 1, &two::get("/health")));
    let more = two::frame(CONTINUATION, 0, 1, &two::block(&[("x", &"y".repeat(120))]).repeat(100));
    let (sent, ended) = flood(std::slice::from_ref(&attacker.socket), &more, FLOOD, true);
    watch.told(format!("{} KiB sent, {ended} of 1 ended", sent / 1024));
    watch.end(4 * MIB + SLACK);
    assert_eq!(ended, 1);
}

#[test]
fn streams_that_are_opened_and_reset_end_their_connection() {
    let _alone = alone();
    let server = Server::start();
    let mut attacker = Two::open(server.address, WINDOW);
    let mut watch = Watch::begin("HTTP/2 rapid reset", &server);
    let mut opened = 0;
    let head = two::get("/health");
    for stream in (1..200_000).step_by(2) {
        let reset = two::frame(RST_STREAM, 0, stream, &8u32.to_be_bytes());
        attacker.send(&[two::frame(HEADERS, END_HEADERS | END_STREAM, stream, &head), reset].concat());
        if attacker.is_over {
            break;
        }
        opened += 1;
    }
    // After its GOAWAY the server reads and discards input for a while, so that the GOAWAY arrives.
    let mut has_goaway = false;
    while let Some(frame) = attacker.next(Duration::from_secs(2)) {
        has_goaway |= frame.kind == GOAWAY;
    }
    watch.told(format!("{opened} streams sent, {}", if has_goaway { "GOAWAY" } else { "no GOAWAY" }));
    watch.end(4 * MIB + SLACK);
    assert!(has_goaway, "{opened} streams");
}

#[test]
fn a_waiting_connection_of_http2_is_not_cut_for_a_control_frame_and_ends_with_goaway() {
    let _alone = alone();
    let server = Server::with(&serde_json::json!({"http_server": {"header_timeout": "1s", "idle_timeout": "4s"}}));
    let mut client = Two::open(server.address, WINDOW);
    let watch = Watch::begin("HTTP/2 that waits between requests", &server);
    let head = two::get("/health");
    let is_answered = |client: &mut Two, stream: u32| {
        client.send(&two::frame(HEADERS, END_HEADERS | END_STREAM, stream, &head));
        while let Some(frame) = client.next(Duration::from_secs(2)) {
            if frame.stream == stream && frame.flags & END_STREAM != 0 {
                return true;
            }
        }
        false
    };
    assert!(is_answered(&mut client, 1));
    client.send(&two::frame(SETTINGS, ACK, 0, &[]));
    client.send(&two::frame(two::PING, 0, 0, &[1; 8]));
    // This is longer than the timeout of a head, and shorter than the timeout of an idle connection.
    while client.next(Duration::from_millis(2_000)).is_some() {}
    assert!(!client.is_over, "the connection stays open after header_timeout");
    assert!(is_answered(&mut client, 3));
    let mut has_goaway = false;
    while let Some(frame) = client.next(Duration::from_secs(8)) {
        has_goaway |= frame.kind == GOAWAY;
    }
    watch.end(SLACK);
    assert!(client.is_over && has_goaway, "idle_timeout ends it with GOAWAY: {} {has_goaway}", client.is_over);
}

#[test]
fn frames_that_break_the_rules_end_their_connection() {
    let _alone = alone();
    let server = Server::start();
    let mut watch = Watch::begin("HTTP/2 frames that break the rules", &server);
    let cases = [
        two::frame(two::DATA, 0, 0, b"x"),
        two::frame(two::DATA, 0, 9, b"x"),
        two::frame(HEADERS, END_HEADERS, 2, &two::get("/")),
        two::frame(HEADERS, END_HEADERS, 0, &two::get("/")),
        two::frame(SETTINGS, 0, 1, &[]),
        two::frame(SETTINGS, 0, 0, &[1; 5]),
        two::frame(SETTINGS, ACK, 0, &[1; 6]),
        two::frame(two::PING, 0, 0, &[1; 7]),
        two::frame(WINDOW_UPDATE, 0, 0, &[0; 4]),
        two::frame(WINDOW_UPDATE, 0, 0, &0x7fff_ffffu32.to_be_bytes()),
        two::frame(CONTINUATION, 0, 1, &[]),
        two::frame(HEADERS, END_HEADERS, 1, &[0xff; 20]),
        vec![0xff; 100],
    ];
    for case in &cases {
        let mut attacker = Two::open(server.address, WINDOW);
        attacker.send(case);
        while attacker.next(Duration::from_secs(2)).is_some() {}
        assert!(attacker.is_over, "{case:x?}");
    }
    watch.told("each ended");
    watch.end(SLACK);
}
