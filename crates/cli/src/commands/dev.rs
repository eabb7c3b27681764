//! What `serve --dev` does besides serving: it prints the banner and plays the recorded match.

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

use anyhow::Result;
use touchline_config::{Location, redact};
use touchline_server::{Running, Settings};

use super::banner::{Reach, ShownKey, ShownSecrets, banner};
use super::match_replay::{Player, Recording};
use crate::arguments::ServeArguments;
use crate::client::api::{ApiClient, reachable};
use crate::demo;

/// Speed of the demo's match, as a multiple of the original speed. One match takes a few minutes.
const SPEED: f64 = 30.0;

/// Prints the banner and starts the match, unless `--no-match` is given. The match ends when the player is dropped.
/// `places`: where the key of the server API, and the secret of tokens, are written; `None` = made for this run.
///
/// # Errors
/// When the banner cannot be printed.
pub(crate) fn begin(
    settings: &Settings,
    running: &Running,
    arguments: &ServeArguments,
    (key_place, token_secret): (Option<&Location>, Option<&Location>),
) -> Result<Option<Player>> {
    let bound = running.address();
    let api = running.internal_address().filter(|_| !settings.http_api.external).unwrap_or(bound);
    let (base, api_base) = (format!("http://{}", reachable(bound)), format!("http://{}", reachable(api)));
    let key = &settings.http_api.key;
    let api_key = match (key.as_str(), key_place) {
        ("", _) => ShownKey::None,
        (_, Some(place)) => ShownKey::Written(place),
        (key, None) => ShownKey::OfThisRun(key),
    };
    let recording = if arguments.no_match { None } else { Some(Recording::parse(demo::RECORDING)?) };
    let is_open = !settings.client.anonymous_on_loopback_only;
    let is_elsewhere = !bound.ip().is_loopback();
    let shown = if is_elsewhere && is_open { format!("http://{}", from_elsewhere(bound)) } else { base.clone() };
    let reach = match (is_elsewhere, is_open) {
        (true, true) => Reach::Network,
        (true, false) => Reach::Refused,
        (false, _) => Reach::Machine,
    };
    let mut out = std::io::stdout().lock();
    let database = redact(&settings.store.primary.url);
    let kept_in = settings.needs_primary().then_some(&*database);
    let secrets = ShownSecrets { api_key, token_secret, kept_in };
    let shown_api = if api == bound { &shown } else { &api_base };
    write!(out, "{}", banner(&shown, shown_api, secrets, recording.is_some(), reach))?;
    out.flush()?;
    recording
        .map(|recording| {
            Player::start(ApiClient::new(&api_base, key.clone(), None)?, demo::CHANNEL.to_owned(), recording, SPEED)
        })
        .transpose()
}

/// The address for other machines. If the server listens on every interface, it is the address of the interface that
/// packets to other networks use. Finding it sends no packet.
fn from_elsewhere(bound: SocketAddr) -> SocketAddr {
    if !bound.ip().is_unspecified() {
        return bound;
    }
    let own = || {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
        // TEST-NET-1 (RFC 5737): beyond every local network.
        socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
        socket.local_addr().ok().map(|own| own.ip()).filter(|own| !own.is_unspecified())
    };
    own().map_or(reachable(bound), |own| SocketAddr::new(own, bound.port()))
}
