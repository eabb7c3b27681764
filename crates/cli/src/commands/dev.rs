//! What `serve --dev` does beside serving: it says where to look, and plays the recorded match.

use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};

use anyhow::Result;
use touchline_server::Settings;

use super::banner::banner;
use super::match_replay::{Player, Recording};
use crate::{api::Api, demo};

/// How many times faster than it was the demo's match is played: one takes a few minutes.
const SPEED: f64 = 30.0;

/// Prints the banner and begins to play, if asked to. The match ends when the player is dropped.
///
/// # Errors
/// When the banner can't be printed.
pub(crate) fn begin(settings: &Settings, bound: SocketAddr, plays_match: bool) -> Result<Option<Player>> {
    let base = format!("http://{}", reachable(bound));
    let key = &settings.http_api.key;
    let recording = if plays_match { Some(Recording::parse(demo::RECORDING)?) } else { None };
    let mut out = std::io::stdout().lock();
    write!(out, "{}", banner(&base, key, recording.is_some()))?;
    out.flush()?;
    recording.map(|recording| Player::start(Api::new(&base, key.clone())?, demo::CHANNEL.to_owned(), recording, SPEED)).transpose()
}

/// The address to type: that of every interface is no address to go to.
fn reachable(bound: SocketAddr) -> SocketAddr {
    match bound.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => SocketAddr::from(([127, 0, 0, 1], bound.port())),
        IpAddr::V6(ip) if ip.is_unspecified() => SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], bound.port())),
        _ => bound,
    }
}
