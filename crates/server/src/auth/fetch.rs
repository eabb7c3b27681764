//! The thread that fetches the keys of issuers. Each set has a task of its own, so that a slow endpoint does not delay
//! the others.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ACCEPT, CACHE_CONTROL, HeaderMap};
use hyper::{Request, StatusCode};
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::jwk::parse_set;
use super::key_set::{FETCH_INTERVAL, FETCH_TIMEOUT, KeySet, KeySets};

/// The largest answer of an endpoint, in bytes.
const SET_SIZE_MAX: usize = 1_048_576;
/// The time until a set is fetched again, if its answer does not say when.
const REFRESH: Duration = Duration::from_mins(10);
/// The shortest and the longest time that an answer may set.
const REFRESH_BOUNDS: (Duration, Duration) = (Duration::from_mins(1), Duration::from_hours(1));
/// The time between two log lines about one set.
const LOG_INTERVAL: Duration = Duration::from_mins(1);

/// The thread that fetches keys until this value is dropped.
pub(crate) struct KeyFetcher {
    thread: Option<JoinHandle<()>>,
    /// Ends the thread when it is dropped.
    stop: Option<oneshot::Sender<()>>,
}

impl KeyFetcher {
    /// Starts the thread. It waits until each set without keys was fetched once, or its fetch has failed. `None` = no
    /// set is to be fetched.
    ///
    /// # Errors
    /// When the system cannot start a thread.
    pub(crate) fn start(sets: &KeySets) -> io::Result<Option<Self>> {
        let sets: Vec<Arc<KeySet>> = sets.iter().cloned().collect();
        if sets.is_empty() {
            return Ok(None);
        }
        let (stop, stopped) = oneshot::channel();
        let (first, tried) = mpsc::channel();
        let runtime = Builder::new_current_thread().enable_all().build()?;
        for set in &sets {
            set.is_followed.store(true, Relaxed);
        }
        let thread = std::thread::Builder::new().name("keys".into()).spawn(move || {
            runtime.block_on(async {
                let mut tasks = JoinSet::new();
                for set in sets {
                    let first = (!set.was_fetched()).then(|| first.clone());
                    tasks.spawn(follow(set, first));
                }
                drop(first);
                let _ = stopped.await;
            });
            // A name lookup under way would delay the end.
            runtime.shutdown_background();
        })?;
        // All sets have been tried when the last sender is dropped. Each fetch has a time limit.
        while tried.recv().is_ok() {}
        Ok(Some(KeyFetcher { thread: Some(thread), stop: Some(stop) }))
    }
}

impl Drop for KeyFetcher {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Fetches each set once. Returns the faults, each with the section of the set.
///
/// # Errors
/// When the system cannot start the runtime.
pub(crate) fn fetch_once(sets: &KeySets) -> io::Result<Vec<(String, String)>> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let faults = runtime.block_on(async {
        let mut faults = Vec::new();
        for set in sets.iter() {
            if let Err(fault) = fetch(set).await {
                faults.push((set.section.clone(), fault));
            }
        }
        faults
    });
    runtime.shutdown_background();
    Ok(faults)
}

/// Keeps a set up to date. `first` is dropped after the first fetch.
async fn follow(set: Arc<KeySet>, mut first: Option<mpsc::Sender<()>>) {
    let mut log = FetchLog::default();
    loop {
        let began = set.clock.now();
        let outcome = fetch(&set).await;
        log.note(&set, outcome.as_ref().err());
        drop(first.take());
        // A failed fetch is retried as soon as the interval allows.
        let next = outcome.unwrap_or(FETCH_INTERVAL);
        set.clock.sleep_until(began + FETCH_INTERVAL).await;
        tokio::select! {
            () = set.clock.sleep_until(began + next) => {}
            () = set.wanted.notified() => {}
        }
    }
}

/// Fetches a set, and installs its keys. Returns the time until the next fetch.
///
/// # Errors
/// Why the set cannot be used, without any part of the answer. The known keys stay.
async fn fetch(set: &KeySet) -> Result<Duration, String> {
    let began = set.clock.now();
    let outcome = match set.clock.timeout(FETCH_TIMEOUT, ask(set)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(format!("no answer within {FETCH_TIMEOUT:?}")),
    };
    match outcome {
        Ok((parsed, next)) => {
            set.install(parsed, began);
            Ok(next)
        }
        Err(fault) => {
            set.counts.failed.fetch_add(1, Relaxed);
            Err(fault)
        }
    }
}

async fn ask(set: &KeySet) -> Result<(super::jwk::ParsedSet, Duration), String> {
    let mut request = Request::new(Full::new(Bytes::new()));
    *request.uri_mut() = set.uri.clone();
    let accepted = hyper::header::HeaderValue::from_static("application/jwk-set+json, application/json");
    request.headers_mut().insert(ACCEPT, accepted);
    let answer = set.client.send(request, SET_SIZE_MAX).await.map_err(|error| error.to_string())?;
    if answer.status != StatusCode::OK {
        return Err(format!("the endpoint has answered {}", answer.status.as_u16()));
    }
    Ok((parse_set(&answer.body)?, refresh_after(&answer.headers)))
}

/// Returns the time until an answer is to be fetched again (RFC 9111), within our bounds.
fn refresh_after(headers: &HeaderMap) -> Duration {
    let fields = headers.get_all(CACHE_CONTROL).iter().filter_map(|value| value.to_str().ok());
    let mut directives = fields.flat_map(|field| field.split(',')).map(str::trim);
    let max_age = directives.find_map(|directive| {
        let (name, value) = directive.split_once('=')?;
        let seconds = value.trim().trim_matches('"').parse().ok()?;
        name.trim().eq_ignore_ascii_case("max-age").then(|| Duration::from_secs(seconds))
    });
    max_age.map_or(REFRESH, |age| age.clamp(REFRESH_BOUNDS.0, REFRESH_BOUNDS.1))
}

/// Logs the fetches of one set: the first fault, then one fault a minute, and the end of an outage.
#[derive(Default)]
struct FetchLog {
    failing_since: Option<Instant>,
    logged: Option<Instant>,
    skipped: u64,
}

impl FetchLog {
    fn note(&mut self, set: &KeySet, fault: Option<&String>) {
        let (keys, address) = (set.section.as_str(), set.shown_address());
        let Some(fault) = fault else {
            let (known, skipped) = (set.counts.keys.load(Relaxed), set.counts.skipped.load(Relaxed));
            if self.failing_since.take().is_some() {
                tracing::info!(keys, address, known, "the keys of an issuer can be fetched again");
            }
            if skipped > 0 && skipped != self.skipped {
                tracing::warn!(
                    keys,
                    address,
                    known,
                    skipped,
                    "some keys of an issuer are not for signatures, or cannot be read"
                );
            }
            self.skipped = skipped;
            self.logged = None;
            return;
        };
        self.failing_since.get_or_insert_with(|| set.clock.now());
        if self.logged.is_none_or(|logged| set.clock.since(logged) >= LOG_INTERVAL) {
            self.logged = Some(set.clock.now());
            tracing::warn!(keys, address, fault, "the keys of an issuer cannot be fetched; the known keys stay in use");
        }
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    #[test]
    fn an_answer_may_say_when_it_is_to_be_fetched_again_within_bounds() {
        for (value, expected_s) in [
            (None, 600),
            (Some("max-age=300"), 300),
            (Some("public, Max-Age = \"120\""), 120),
            (Some("max-age=0"), 60),
            (Some("no-store"), 600),
            (Some("max-age=99999999999"), 3_600),
            (Some("max-age=-5"), 600),
            (Some("s-maxage=100"), 600),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(value) = value {
                headers.insert(CACHE_CONTROL, HeaderValue::from_static(value));
            }
            assert_eq!(refresh_after(&headers), Duration::from_secs(expected_s), "{value:?}");
        }
    }
}
