//! The keys of an issuer, as its endpoint last gave them. Shards read them and never wait; one task fetches them
//! ([`super::fetch`]).

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use hyper::Uri;
use tokio::sync::Notify;
use touchline_config::ClientTlsSettings;

use super::jwk::ParsedSet;
use super::key::VerificationKey;
use crate::outbound::HttpClient;
use crate::start_error::StartError;

/// Time between the beginnings of two fetches of a set, whatever is asked of it.
pub(super) const FETCH_INTERVAL: Duration = Duration::from_secs(10);
/// Time that one fetch may take.
pub(super) const FETCH_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for which keys count that could not be fetched again.
const STALE_MAX: Duration = Duration::from_hours(24);
/// Values of `kid` that are remembered because no key has them.
const DOUBTS_MAX: usize = 1_024;

/// What became of fetches, in metrics.
#[derive(Debug, Default)]
pub(crate) struct FetchCounts {
    /// Fetches that gave a set.
    pub(crate) succeeded: AtomicU64,
    /// Fetches that gave none.
    pub(crate) failed: AtomicU64,
    /// Keys that verify signatures.
    pub(crate) keys: AtomicU64,
    /// Keys of the set that were passed over.
    pub(crate) skipped: AtomicU64,
}

/// A set of keys at one address.
pub(crate) struct KeySet {
    /// The section of the configuration that names it, for logs and metrics.
    pub(crate) section: String,
    pub(super) uri: Uri,
    pub(super) client: HttpClient,
    pub(crate) counts: FetchCounts,
    tls: ClientTlsSettings,
    fetched: RwLock<Arc<FetchedKeys>>,
    doubts: Mutex<Doubts>,
    hasher: RandomState,
    /// A task fetches the set again.
    pub(super) is_followed: AtomicBool,
    /// Somebody has asked for a key that is not in the set.
    pub(super) wanted: Notify,
}

/// What the last good fetch has given.
#[derive(Default)]
struct FetchedKeys {
    set: ParsedSet,
    /// When it began; None = there has been none.
    began: Option<Instant>,
}

/// What a set says of a `kid`.
pub(super) enum Lookup {
    /// These keys have it.
    Known(Vec<Arc<VerificationKey>>),
    /// No key has it, and the endpoint was asked after somebody had shown it.
    Missing,
    /// Nobody can tell yet.
    Unavailable(&'static str),
}

/// Values of `kid` that no key has, by their hash: when each was shown first.
#[derive(Default)]
struct Doubts {
    since: HashMap<u64, Instant>,
    order: VecDeque<u64>,
}

impl Doubts {
    /// Remembers a value; of too many the oldest is forgotten.
    fn remember(&mut self, hash: u64, now: Instant) {
        if self.since.insert(hash, now).is_some() {
            return;
        }
        self.order.push_back(hash);
        if self.order.len() > DOUBTS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.since.remove(&oldest);
        }
    }
}

impl KeySet {
    /// What the set says of a `kid`. A key that is not in it is asked for, at most once in [`FETCH_INTERVAL`].
    pub(super) fn find(&self, kid: &str) -> Lookup {
        self.find_at(kid, Instant::now())
    }

    fn find_at(&self, kid: &str, now: Instant) -> Lookup {
        let fetched = Arc::clone(&self.fetched.read().unwrap_or_else(PoisonError::into_inner));
        let Some(began) = fetched.began.filter(|began| now.saturating_duration_since(*began) < STALE_MAX) else {
            return Lookup::Unavailable("the keys of the token's issuer could not be fetched yet");
        };
        match fetched.set.find(kid) {
            [] if !self.is_followed.load(Relaxed) => Lookup::Missing,
            [] => self.doubt(self.hasher.hash_one(kid), began, now),
            keys => Lookup::Known(keys.to_vec()),
        }
    }

    /// Decides about a `kid` that no key has. `began`: when the last good fetch began.
    fn doubt(&self, hash: u64, began: Instant, now: Instant) -> Lookup {
        const ASKED: Lookup = Lookup::Unavailable("no key of the token's issuer has the kid of the token: it is asked");
        let mut doubts = self.doubts.lock().unwrap_or_else(PoisonError::into_inner);
        match doubts.since.get(&hash) {
            // The endpoint has not answered since: the fetch is under way, waits for its time, or has failed.
            Some(since) if *since >= began => ASKED,
            Some(_) if now.saturating_duration_since(began) < FETCH_INTERVAL => Lookup::Missing,
            _ => {
                doubts.remember(hash, now);
                self.wanted.notify_one();
                ASKED
            }
        }
    }

    /// Replaces the keys by those of a fetch that began at this time.
    pub(super) fn install(&self, set: ParsedSet, began: Instant) {
        self.counts.succeeded.fetch_add(1, Relaxed);
        self.counts.keys.store(set.len() as u64, Relaxed);
        self.counts.skipped.store(set.skipped as u64, Relaxed);
        *self.fetched.write().unwrap_or_else(PoisonError::into_inner) =
            Arc::new(FetchedKeys { set, began: Some(began) });
    }

    /// The address without query string, for logs.
    pub(super) fn shown_address(&self) -> String {
        let host = self.uri.authority().map_or("", |authority| authority.as_str());
        format!("{}://{host}{}", self.uri.scheme_str().unwrap_or_default(), self.uri.path())
    }
}

/// How a section of the configuration names an endpoint.
pub(super) struct EndpointRow<'a> {
    /// The section.
    pub(super) section: &'a str,
    /// The key in it.
    pub(super) name: &'static str,
    /// The section of `tls`.
    pub(super) tls_section: &'a str,
    pub(super) tls: &'a ClientTlsSettings,
    /// It may be plain HTTP on another machine.
    pub(super) may_be_plain: bool,
}

/// All sets of a node. What names the same address in the same way shares one.
#[derive(Default)]
pub(crate) struct KeySets(Vec<Arc<KeySet>>);

impl KeySets {
    /// The sets.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<KeySet>> {
        self.0.iter()
    }

    /// The set at an address.
    ///
    /// # Errors
    /// When it is not an address that keys can be fetched from, or TLS cannot be used.
    pub(super) fn add(&mut self, address: &str, row: &EndpointRow<'_>) -> Result<Arc<KeySet>, StartError> {
        let uri = parse(address, row.may_be_plain).map_err(|reason| StartError::Key {
            section: row.section.to_owned(),
            name: row.name,
            reason,
        })?;
        if let Some(known) = self.0.iter().find(|set| set.uri == uri && set.tls == *row.tls) {
            return Ok(Arc::clone(known));
        }
        let set = Arc::new(KeySet {
            section: row.section.to_owned(),
            client: HttpClient::new(row.tls_section, row.tls, FETCH_TIMEOUT)?,
            uri,
            counts: FetchCounts::default(),
            tls: row.tls.clone(),
            fetched: RwLock::default(),
            doubts: Mutex::default(),
            hasher: RandomState::new(),
            is_followed: AtomicBool::new(false),
            wanted: Notify::new(),
        });
        self.0.push(Arc::clone(&set));
        Ok(set)
    }
}

/// Reads the address of a set.
///
/// # Errors
/// What is wrong with it: keys that somebody on the way could replace prove nothing.
fn parse(address: &str, may_be_plain: bool) -> Result<Uri, &'static str> {
    let uri: Uri = address.parse().map_err(|_| "not an address of https://")?;
    let host = uri.host().filter(|host| !host.is_empty()).ok_or("not an address of https://")?;
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Err("an address with a user is not supported");
    }
    match uri.scheme_str() {
        Some("https") => Ok(uri),
        Some("http") if may_be_plain || is_loopback(host) => Ok(uri),
        Some("http") => Err("must be https://: somebody on the way could replace the keys, and forge tokens \
                             (insecure_skip_jwks_endpoint_safety_check allows it)"),
        _ => Err("not an address of https://"),
    }
}

/// Whether a host is this machine.
fn is_loopback(host: &str) -> bool {
    let ip = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host.eq_ignore_ascii_case("localhost") || ip.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::auth::jwk::parse_set;

    #[test]
    fn only_an_address_that_nobody_can_answer_for_is_taken() {
        for (address, is_good, is_good_plain) in [
            ("https://id.example/keys", true, true),
            ("https://id.example:8443/keys?x=1", true, true),
            ("http://id.example/keys", false, true),
            ("http://localhost:8080/keys", true, true),
            ("http://127.0.0.9/keys", true, true),
            ("http://[::1]:80/keys", true, true),
            ("http://localhost.example/keys", false, true),
            ("http://127.0.0.1.example/keys", false, true),
            ("https://me:secret@id.example/keys", false, false),
            ("ftp://id.example/keys", false, false),
            ("id.example/keys", false, false),
            ("/keys", false, false),
            ("", false, false),
        ] {
            assert_eq!(parse(address, false).is_ok(), is_good, "{address}");
            assert_eq!(parse(address, true).is_ok(), is_good_plain, "{address}");
        }
    }

    fn set() -> Arc<KeySet> {
        let tls = ClientTlsSettings::default();
        let row = EndpointRow { section: "s", name: "n", tls_section: "t", tls: &tls, may_be_plain: false };
        let set = KeySets::default().add("https://id.example/keys", &row).expect("a good address");
        set.is_followed.store(true, Relaxed);
        set
    }

    /// A set with one key.
    fn with_key(kid: &str) -> ParsedSet {
        let x = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";
        let json = json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": kid, "x": x}]});
        parse_set(json.to_string().as_bytes()).expect("a set")
    }

    fn told(set: &KeySet, kid: &str, now: Instant) -> &'static str {
        match set.find_at(kid, now) {
            Lookup::Known(_) => "known",
            Lookup::Missing => "missing",
            Lookup::Unavailable(_) => "unavailable",
        }
    }

    #[test]
    fn a_kid_that_no_key_has_is_final_only_when_the_endpoint_was_asked_after_it_was_shown() {
        let (set, start) = (set(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(told(&set, "a", at(0)), "unavailable", "nothing was fetched");
        set.install(with_key("a"), at(1));
        assert_eq!(told(&set, "a", at(2)), "known");
        assert_eq!(told(&set, "b", at(2)), "unavailable", "it may be new");
        assert_eq!(told(&set, "b", at(5_000)), "unavailable", "the endpoint fails");
        set.install(with_key("a"), at(5_001));
        assert_eq!(told(&set, "b", at(5_002)), "missing");
        assert_eq!(told(&set, "c", at(5_002)), "unavailable", "another one");
        assert_eq!(told(&set, "b", at(5_011)), "unavailable", "it may have come meanwhile");
        set.install(with_key("b"), at(5_012));
        assert_eq!(told(&set, "b", at(5_013)), "known");
        assert_eq!(told(&set, "a", at(5_013)), "unavailable", "it is gone, which is told when it was asked for again");
        set.install(with_key("b"), at(5_022));
        assert_eq!(told(&set, "a", at(5_023)), "missing");
        assert_eq!(told(&set, "b", at(5_022 + 86_399)), "known");
        assert_eq!(told(&set, "b", at(5_022 + 86_400)), "unavailable", "too old");
    }

    #[test]
    fn a_set_that_is_not_fetched_again_has_all_that_it_ever_will() {
        let (set, now) = (set(), Instant::now());
        set.is_followed.store(false, Relaxed);
        assert_eq!(told(&set, "a", now), "unavailable");
        set.install(with_key("a"), now);
        assert_eq!([told(&set, "a", now), told(&set, "b", now)], ["known", "missing"]);
    }

    #[test]
    fn a_flood_of_invented_kids_takes_bounded_memory() {
        let (set, start) = (set(), Instant::now());
        set.install(with_key("a"), start);
        for number in 0..10 * DOUBTS_MAX {
            assert_eq!(told(&set, &format!("x{number}"), start + Duration::from_secs(20)), "unavailable");
        }
        let doubts = set.doubts.lock().expect("nobody panics");
        assert_eq!((doubts.since.len(), doubts.order.len()), (DOUBTS_MAX, DOUBTS_MAX));
    }
}
