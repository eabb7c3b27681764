//! `touchline watch CHANNEL`: prints publications as they arrive, and recovers after lost connections and restarts.

mod follower;
mod socket;

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rustls::ClientConfig;

use crate::arguments::WatchArguments;
use crate::client::api::{configured, endpoint};
use crate::client::tls;
use crate::client::url::ServerUrl;
use follower::{Effect, Follower};
use socket::{SocketEvent, WatchSocket};

/// Minimum and maximum pause before a reconnect.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(20);
/// Time after a missing ping until the connection is given up.
const SILENCE_SLACK: Duration = Duration::from_secs(10);

/// Why a connection ended.
enum End {
    /// The requested number of publications has been printed.
    Enough,
    /// The connection is lost, for this reason.
    Lost(String),
}

/// Follows the channel until it has printed the requested number of publications, or an error is final.
pub(crate) fn run(arguments: &WatchArguments) -> Result<ExitCode> {
    let url = match &arguments.url {
        Some(url) => url.clone(),
        None => {
            let settings = configured(arguments.config.as_deref())?;
            format!("{}{}", endpoint(&settings, "ws"), settings.websocket.handler_prefix)
        }
    };
    let url = ServerUrl::parse(&url, "ws")?;
    let tls = url.is_tls.then(|| tls::client_config(arguments.ca.as_deref())).transpose()?;
    let mut follower =
        Follower::new(arguments.channel.clone(), arguments.token.clone(), arguments.subscription_token.clone());
    let mut left = arguments.count.unwrap_or(u64::MAX);
    let mut pause = PAUSE_MIN;
    loop {
        let mut has_subscribed = false;
        let reason = match follow(&url, tls.as_ref(), &mut follower, &mut left, &mut has_subscribed)? {
            End::Enough => return Ok(ExitCode::SUCCESS),
            End::Lost(reason) => reason,
        };
        pause = if has_subscribed { PAUSE_MIN } else { (pause * 2).min(PAUSE_MAX) };
        let pause = with_jitter(pause);
        eprintln!("touchline: {reason}; reconnecting in {:.1} s", pause.as_secs_f64());
        std::thread::sleep(pause);
    }
}

/// Follows the channel on one connection until it ends. An `Err` is final.
fn follow(
    url: &ServerUrl,
    tls: Option<&Arc<ClientConfig>>,
    follower: &mut Follower,
    left: &mut u64,
    has_subscribed: &mut bool,
) -> Result<End> {
    let mut socket = match WatchSocket::connect(url, tls) {
        Ok(socket) => socket,
        Err(socket::ConnectError::Refused(reason)) => bail!(reason),
        Err(socket::ConnectError::Lost(reason)) => return Ok(End::Lost(reason)),
    };
    if let Err(error) = socket.send(&follower.greeting()) {
        return Ok(End::Lost(format!("{error:#}")));
    }
    loop {
        let effects = match socket.next() {
            Ok(SocketEvent::Text(frame)) => follower.take(&frame),
            Ok(SocketEvent::Closed(code, reason)) => vec![follower::ended(code, &reason)],
            Err(error) => return Ok(End::Lost(format!("{error:#}"))),
        };
        for effect in effects {
            match effect {
                Effect::Print(publication) => {
                    writeln!(std::io::stdout(), "{publication}").context("failed to print")?;
                    *left -= 1;
                    if *left == 0 {
                        return Ok(End::Enough);
                    }
                }
                Effect::Tell(text) => {
                    *has_subscribed = true;
                    eprintln!("touchline: {text}");
                }
                Effect::Send(message) => {
                    if let Err(error) = socket.send(&message) {
                        return Ok(End::Lost(format!("{error:#}")));
                    }
                }
                Effect::Pings(0) => socket.expect_within(None)?,
                Effect::Pings(seconds) => {
                    socket.expect_within(Some(Duration::from_secs(seconds.into()) + SILENCE_SLACK))?
                }
                Effect::Reconnect(reason) => return Ok(End::Lost(reason)),
                Effect::Fail(reason) => bail!(reason),
            }
        }
    }
}

/// A random time between half and the whole of a pause, so that many watchers do not reconnect at once.
fn with_jitter(pause: Duration) -> Duration {
    let mut byte = [0];
    let share = if aws_lc_rs::rand::fill(&mut byte).is_ok() { f64::from(byte[0]) / 255.0 } else { 1.0 };
    pause.mul_f64(0.5 + share / 2.0)
}
