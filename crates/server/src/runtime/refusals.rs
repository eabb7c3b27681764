//! Logs why clients and backends were refused: a few lines for each cause in a window of time, so that refused requests
//! cannot fill a disk.

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use touchline_registry::OwnerId;

/// The most lines of one cause in a window.
const LINES_MAX: u32 = 5;
/// Length of a window, milliseconds.
const WINDOW_MS: u64 = 10_000;
/// Longest part of an origin that a line shows, bytes.
const ORIGIN_SHOWN_MAX: usize = 128;

/// A refusal for the log. Text of a client stands in the line in quotes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RefusalLine<'a> {
    /// What is missing or wrong.
    pub(crate) cause: &'static str,
    /// The code that the client gets, of an error, a disconnect or HTTP; 0 = none.
    pub(crate) code: u32,
    /// The address of the client; None = it is not known. Behind a proxy, where no limit needs the client's address,
    /// the proxy's.
    pub(crate) address: Option<IpAddr>,
    pub(crate) client: Option<OwnerId>,
    /// Of the page.
    pub(crate) origin: &'a str,
    pub(crate) channel: &'a str,
    /// Of the server API.
    pub(crate) operation: &'a str,
    /// The field of the request that is the cause.
    pub(crate) field: &'a str,
    /// The name of the caller's key.
    pub(crate) key: &'a str,
}

/// Decides which refusals get a line.
#[derive(Debug, Default)]
pub(crate) struct RefusalLog {
    /// One entry for each cause so far: causes are fixed texts, so they are few.
    windows: Mutex<Vec<Window>>,
}

#[derive(Debug)]
struct Window {
    cause: &'static str,
    began_ms: u64,
    lines: u32,
    /// Refusals without a line since the last one.
    silent: u64,
}

impl RefusalLog {
    /// Logs a refusal of which [`RefusalLog::admits`] has said that it gets a line.
    pub(crate) fn log(refused: &RefusalLine<'_>, silent: Option<u64>) {
        let text = |text: &str| (!text.is_empty()).then(|| tracing::field::debug(text.to_owned()));
        tracing::info!(
            code = refused.code,
            address = refused.address.map(tracing::field::display),
            client =
                refused.client.map(|client| tracing::field::display(touchline_engine::directory::client_text(client))),
            origin = text(&refused.origin[..refused.origin.floor_char_boundary(ORIGIN_SHOWN_MAX)]),
            channel = text(refused.channel),
            operation = text(refused.operation),
            field = text(refused.field),
            key = text(refused.key),
            silent,
            "refused: {}",
            refused.cause
        );
    }

    /// Whether a refusal gets a line: not if the same cause has had its lines. Then the number of refusals of the same
    /// cause without one since the last line, if there are any; outer None = it gets none. `now_ms`: milliseconds of
    /// the node's clock.
    pub(crate) fn admits(&self, cause: &'static str, now_ms: u64) -> Option<Option<u64>> {
        if !tracing::enabled!(tracing::Level::INFO) {
            return None;
        }
        self.take(cause, now_ms).map(|silent| (silent > 0).then_some(silent))
    }

    /// Whether a refusal gets a line: then the number of refusals of the same cause without one since the last line;
    /// None = it gets none.
    fn take(&self, cause: &'static str, now_ms: u64) -> Option<u64> {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(window) = windows.iter_mut().find(|window| window.cause == cause) else {
            windows.push(Window { cause, began_ms: now_ms, lines: 1, silent: 0 });
            return Some(0);
        };
        if now_ms.saturating_sub(window.began_ms) >= WINDOW_MS {
            (window.began_ms, window.lines) = (now_ms, 0);
        }
        if window.lines >= LINES_MAX {
            window.silent += 1;
            return None;
        }
        window.lines += 1;
        Some(std::mem::take(&mut window.silent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_has_some_lines_in_a_window_and_tells_what_it_left_out() {
        let log = RefusalLog::default();
        let lines = |cause, now_ms| (0..100).filter(|_| log.take(cause, now_ms).is_some()).count();
        assert_eq!(lines("no token", 1_000), 5);
        assert_eq!(lines("no token", 10_999), 0, "the window has not ended");
        assert_eq!(lines("no origin", 10_999), 5, "another cause has its own");
        assert_eq!(log.take("no token", 11_000), Some(195));
        assert_eq!(log.take("no token", 11_000), Some(0));
    }
}
