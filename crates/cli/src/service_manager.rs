//! What systemd, or another program that speaks its protocol (sd_notify(3)), is told of this process. Without one
//! nothing is sent.

use std::time::Duration;

use sd_notify::NotifyState;
use touchline_server::ServerHandle;

/// Time to end beside `shutdown.timeout`: databases are closed behind the drain.
const CLOSING_TIME: Duration = Duration::from_secs(20);

/// Tells that the node serves.
pub(crate) fn ready(status: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Tells that the configuration is read again, until [`ready`].
pub(crate) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(_) => tell(&[NotifyState::Reloading]),
    }
}

/// Tells that the node drains, and how long that can take: a limit of the unit that is shorter does not end it.
pub(crate) fn stopping(drain: Duration) {
    let limit = u32::try_from((drain + CLOSING_TIME).as_micros()).unwrap_or(u32::MAX);
    let status = format!("draining: clients are told to go, within {} s", drain.as_secs());
    tell(&[NotifyState::Stopping, NotifyState::ExtendTimeoutUsec(limit), NotifyState::Status(&status)]);
}

/// Tells again and again that the node lives, as often as the service manager wants it: while every event loop turns.
/// If one does not, nothing is told, and the service manager starts the process anew. For ever pending if nobody wants
/// it.
pub(crate) async fn keep_alive(server: ServerHandle) {
    let Some(limit) = sd_notify::watchdog_enabled().filter(|limit| !limit.is_zero()) else {
        return std::future::pending().await;
    };
    loop {
        // Twice in the time that the service manager waits, as sd_watchdog_enabled(3) has it.
        tokio::time::sleep(limit / 2).await;
        if server.turns().await {
            tell(&[NotifyState::Watchdog]);
        } else {
            tracing::error!("an event loop does not turn: the service manager is not told that this process lives");
        }
    }
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "the service manager (NOTIFY_SOCKET) cannot be told");
    }
}
