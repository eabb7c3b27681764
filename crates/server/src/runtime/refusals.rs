//! Counts why clients and backends were refused, and logs some of the refusals. Each cause has a few lines in a window
//! of time, so refused requests cannot fill a disk.

use std::net::IpAddr;

use touchline_lock::Lock;
use touchline_registry::OwnerId;

/// How many lines one cause may have in a window.
const LINES_MAX: u32 = 5;
/// Length of a window, in milliseconds.
const WINDOW_MS: u64 = 10_000;
/// How many bytes of an origin or channel a line shows.
const ORIGIN_SHOWN_MAX: usize = 128;

/// A refusal for the log. The line shows text of a client in quotes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RefusalLine<'a> {
    /// What is missing or wrong.
    pub(crate) cause: &'static str,
    /// The code that the client gets: of an error, of a disconnect or of HTTP. 0 = it gets none.
    pub(crate) code: u32,
    /// The address of the client; None = it is not known. Behind a proxy, it is the proxy's address if no limit needs
    /// that of the client.
    pub(crate) address: Option<IpAddr>,
    pub(crate) client: Option<OwnerId>,
    /// The origin of the page; empty = there is none.
    pub(crate) origin: &'a str,
    pub(crate) channel: &'a str,
    /// The method of a client's RPC, with the scope of the registry that it names; empty = there is none.
    pub(crate) method: &'a str,
    /// The operation of the server API; empty = there is none.
    pub(crate) operation: &'a str,
    /// The field of the request that is the cause.
    pub(crate) field: &'a str,
    /// What is wrong, with the names of this request; empty = the cause says everything.
    pub(crate) detail: &'a str,
    /// The name of the caller's key; empty = there is none.
    pub(crate) key: &'a str,
    /// The id of the HTTP request; empty = there is none.
    pub(crate) request_id: &'a str,
}

/// Decides which refusals are logged, and counts all.
#[derive(Debug, Default)]
pub(crate) struct RefusalLog {
    /// One entry for each cause and key so far. They are few: causes are fixed texts, and keys are those of the
    /// configuration.
    windows: Lock<Vec<Window>>,
    /// The same for warnings about requests that were served, by operation and key.
    warnings: Lock<Vec<Window>>,
}

/// The refusals for one cause and key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RefusalCount {
    pub(crate) cause: &'static str,
    /// The name of the caller's key; empty = the refusal concerns no key.
    pub(crate) key: Box<str>,
    pub(crate) count: u64,
    /// When the last refusal was, in milliseconds of the node's clock.
    pub(crate) last_ms: u64,
    /// What the last line showed: code, channel, operation.
    pub(crate) said: (u32, Box<str>, Box<str>),
}

#[derive(Debug)]
struct Window {
    counted: RefusalCount,
    began_ms: u64,
    lines: u32,
    /// Refusals since the last line that were not logged.
    silent: u64,
}

impl RefusalLog {
    /// Counts a refusal, and logs it unless its cause has used up its lines. `now_ms`: milliseconds of the node's
    /// clock.
    pub(crate) fn note(&self, refused: &RefusalLine<'_>, now_ms: u64) {
        if let Some(silent) = self.admits(refused.cause, refused.key, now_ms) {
            self.log(refused, silent);
        }
    }

    /// The refusals since the start, by cause and key.
    pub(crate) fn counts(&self) -> Vec<RefusalCount> {
        self.windows.lock().iter().map(|window| window.counted.clone()).collect()
    }

    /// Logs a refusal that [`RefusalLog::admits`] has admitted to the log.
    pub(crate) fn log(&self, refused: &RefusalLine<'_>, silent: Option<u64>) {
        if let Some(window) = find(&mut self.windows.lock(), refused.cause, refused.key) {
            let channel = &refused.channel[..refused.channel.floor_char_boundary(ORIGIN_SHOWN_MAX)];
            window.counted.said = (refused.code, channel.into(), refused.operation.into());
        }
        let text = |text: &str| (!text.is_empty()).then(|| tracing::field::debug(text.to_owned()));
        tracing::info!(
            code = refused.code,
            address = refused.address.map(tracing::field::display),
            client =
                refused.client.map(|client| tracing::field::display(touchline_engine::directory::client_text(client))),
            origin = text(&refused.origin[..refused.origin.floor_char_boundary(ORIGIN_SHOWN_MAX)]),
            channel = text(refused.channel),
            method = text(refused.method),
            operation = text(refused.operation),
            field = text(refused.field),
            detail = text(refused.detail),
            key = text(refused.key),
            request_id = text(refused.request_id),
            silent,
            "refused: {}",
            refused.cause
        );
    }

    /// Counts a refusal and decides whether it is logged. `key`: the name of the key of the server API (empty = the
    /// refusal concerns no key). Outer None = it is not logged, because its cause has used up its lines for this key.
    /// Otherwise returns how many refusals of the cause were not logged since the last line; inner None = all were.
    /// `now_ms`: milliseconds of the node's clock.
    pub(crate) fn admits(&self, cause: &'static str, key: &str, now_ms: u64) -> Option<Option<u64>> {
        take(&mut self.windows.lock(), cause, key, now_ms).map(|silent| (silent > 0).then_some(silent))
    }

    /// The same as [`RefusalLog::admits`], for a warning about a request that was served.
    pub(crate) fn admits_warning(&self, operation: &'static str, key: &str, now_ms: u64) -> Option<Option<u64>> {
        let mut warnings = self.warnings.lock();
        take(&mut warnings, operation, key, now_ms).map(|silent| (silent > 0).then_some(silent))
    }
}

/// Counts one more of a cause and key. Returns how many were silent since the last line; None = this one is too.
fn take(windows: &mut Vec<Window>, cause: &'static str, key: &str, now_ms: u64) -> Option<u64> {
    let Some(window) = find(windows, cause, key) else {
        let said = (0, Box::default(), Box::default());
        let counted = RefusalCount { cause, key: key.into(), count: 1, last_ms: now_ms, said };
        windows.push(Window { counted, began_ms: now_ms, lines: 1, silent: 0 });
        return Some(0);
    };
    (window.counted.count, window.counted.last_ms) = (window.counted.count + 1, now_ms);
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

fn find<'w>(windows: &'w mut [Window], cause: &str, key: &str) -> Option<&'w mut Window> {
    windows.iter_mut().find(|window| window.counted.cause == cause && *window.counted.key == *key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_has_some_lines_in_a_window_and_tells_what_it_left_out() {
        let log = RefusalLog::default();
        let take = |cause, key, now_ms| take(&mut log.windows.lock(), cause, key, now_ms);
        let lines = |cause, now_ms| (0..100).filter(|_| take(cause, "", now_ms).is_some()).count();
        assert_eq!(lines("no token", 1_000), 5);
        assert_eq!(lines("no token", 10_999), 0, "the window has not ended");
        assert_eq!(lines("no origin", 10_999), 5, "another cause has its own");
        assert_eq!(take("no token", "", 11_000), Some(195));
        assert_eq!(take("no token", "", 11_000), Some(0));
        assert_eq!(take("no token", "news", 11_000), Some(0), "another key has its own");
        let counts: Vec<_> = log.counts().iter().map(|counted| (counted.cause, counted.count)).collect();
        assert_eq!(counts, [("no token", 202), ("no origin", 100), ("no token", 1)]);
    }
}
