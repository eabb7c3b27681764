//! The keys of an issuer, as its endpoint last returned them. Shards read them and never wait. One task fetches them
//! ([`super::fetch`]).

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use hyper::Uri;
use tokio::sync::Notify;
use touchline_clock::Clock;
use touchline_config::ClientTlsSettings;
use touchline_lock::{Lock, SharedLock};

use super::jwk::ParsedSet;
use super::key::VerificationKey;
use crate::outbound::HttpClient;
use crate::start_error::StartError;

/// The shortest time between the beginnings of two fetches of a set.
pub(super) const FETCH_INTERVAL: Duration = Duration::from_secs(10);
/// The timeout of one fetch.
pub(super) const FETCH_TIMEOUT: Duration = Duration::from_secs(5);
/// How long keys count that could not be fetched again.
const STALE_MAX: Duration = Duration::from_hours(24);
/// The most tokens that are remembered because no known key has signed them.
const DOUBTS_MAX: usize = 1_024;

/// The outcomes of fetches, for metrics.
#[derive(Debug, Default)]
pub(crate) struct FetchCounts {
    /// Fetches that returned a set.
    pub(crate) succeeded: AtomicU64,
    /// Fetches that failed.
    pub(crate) failed: AtomicU64,
    /// Keys in the set that verify signatures.
    pub(crate) keys: AtomicU64,
    /// Keys in the set that were skipped.
    pub(crate) skipped: AtomicU64,
}

/// A set of keys at one address.
pub(crate) struct KeySet {
    /// The section of the configuration that names the set, for logs and metrics.
    pub(crate) section: String,
    pub(super) uri: Uri,
    pub(super) client: HttpClient,
    pub(super) clock: Clock,
    pub(crate) counts: FetchCounts,
    tls: ClientTlsSettings,
    fetched: SharedLock<Arc<FetchedKeys>>,
    doubts: Lock<Doubts>,
    hasher: RandomState,
    /// A task fetches the set repeatedly.
    pub(super) is_followed: AtomicBool,
    /// Notified when a client sends a token that no key of the set has signed.
    pub(super) wanted: Notify,
}

/// The result of the last successful fetch.
#[derive(Default)]
struct FetchedKeys {
    set: ParsedSet,
    /// When the fetch began; None = no fetch has succeeded.
    began: Option<Instant>,
}

/// The keys with a `kid` in the last successful fetch of a set.
pub(super) struct Found<'k> {
    fetched: Arc<FetchedKeys>,
    began: Instant,
    kid: &'k str,
}

impl Found<'_> {
    /// Returns the keys with the `kid`; empty = no key has it.
    pub(super) fn keys(&self) -> &[Arc<VerificationKey>] {
        self.fetched.set.find(self.kid)
    }
}

/// Tokens that no known key has signed, by their hash, with the time when each was first sent. The token counts and not
/// its `kid`, so that an invented `kid` does not affect the tokens of other clients.
#[derive(Default)]
struct Doubts {
    since: HashMap<u64, Instant>,
    order: VecDeque<u64>,
}

impl Doubts {
    /// Returns when a token was first sent; None = it is sent now for the first time, and remembered. If there are too
    /// many tokens, the oldest is forgotten.
    fn shown_before(&mut self, hash: u64, now: Instant) -> Option<Instant> {
        if let Some(since) = self.since.get(&hash) {
            return Some(*since);
        }
        self.since.insert(hash, now);
        self.order.push_back(hash);
        if self.order.len() > DOUBTS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.since.remove(&oldest);
        }
        None
    }
}

impl KeySet {
    /// Whether a fetch has ever succeeded.
    pub(crate) fn was_fetched(&self) -> bool {
        self.fetched.read().began.is_some()
    }

    /// Returns the keys with a `kid`; None = unknown, because no fetch has succeeded for too long.
    pub(super) fn find<'k>(&self, kid: &'k str) -> Option<Found<'k>> {
        self.find_at(kid, self.clock.now())
    }

    fn find_at<'k>(&self, kid: &'k str, now: Instant) -> Option<Found<'k>> {
        let fetched = Arc::clone(&self.fetched.read());
        let began = fetched.began.filter(|began| now.saturating_duration_since(*began) < STALE_MAX)?;
        Some(Found { fetched, began, kid })
    }

    /// Whether the fetch of `found`, in which no key has signed a token, began after the token was first sent. If not,
    /// the endpoint is asked, at most once in [`FETCH_INTERVAL`].
    pub(super) fn was_asked_since_shown(&self, found: &Found<'_>, token: &str) -> bool {
        self.was_asked_at(found, token, self.clock.now())
    }

    fn was_asked_at(&self, found: &Found<'_>, token: &str, now: Instant) -> bool {
        if !self.is_followed.load(Relaxed) {
            return true;
        }
        let mut doubts = self.doubts.lock();
        let before = doubts.shown_before(self.hasher.hash_one(token), now);
        drop(doubts);
        // A key may appear later than the tokens that it has signed. In that case the next attempt succeeds.
        if before.is_none() || now.saturating_duration_since(found.began) >= FETCH_INTERVAL {
            self.wanted.notify_one();
        }
        before.is_some_and(|since| since < found.began)
    }

    /// Replaces the keys by those of a fetch that began at this time.
    pub(super) fn install(&self, set: ParsedSet, began: Instant) {
        self.counts.succeeded.fetch_add(1, Relaxed);
        self.counts.keys.store(set.len() as u64, Relaxed);
        self.counts.skipped.store(set.skipped as u64, Relaxed);
        *self.fetched.write() = Arc::new(FetchedKeys { set, began: Some(began) });
    }

    /// Returns the address without query string, for logs.
    pub(super) fn shown_address(&self) -> String {
        let host = self.uri.authority().map_or("", |authority| authority.as_str());
        format!("{}://{host}{}", self.uri.scheme_str().unwrap_or_default(), self.uri.path())
    }
}

/// The place in the configuration that names an endpoint.
pub(super) struct EndpointRow<'a> {
    /// The section of the endpoint.
    pub(super) section: &'a str,
    /// The key of the endpoint in the section.
    pub(super) name: &'static str,
    /// The section of the `tls` settings.
    pub(super) tls_section: &'a str,
    pub(super) tls: &'a ClientTlsSettings,
    /// The endpoint may be plain HTTP on another machine.
    pub(super) may_be_plain: bool,
}

/// All key sets of a node. Settings that name the same address in the same way share one set.
pub(crate) struct KeySets {
    clock: Clock,
    sets: Vec<Arc<KeySet>>,
    /// The sets of the previous settings, with their keys.
    before: Vec<Arc<KeySet>>,
}

/// Sets that are tried, and not followed by a node.
impl Default for KeySets {
    fn default() -> Self {
        KeySets::after(None, &Clock::system())
    }
}

impl KeySets {
    /// Makes an empty list of sets. A set that is added is taken from `before` if it is there.
    pub(super) fn after(before: Option<&KeySets>, clock: &Clock) -> Self {
        let before = before.map_or_else(Vec::new, |before| before.sets.clone());
        KeySets { clock: clock.clone(), sets: Vec::new(), before }
    }

    /// Ends the adding. The previous sets that were not added again are dropped.
    pub(super) fn complete(mut self) -> Self {
        self.before = Vec::new();
        self
    }

    /// Returns the sets.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<KeySet>> {
        self.sets.iter()
    }

    /// Adds the set at an address.
    ///
    /// # Errors
    /// When keys cannot be fetched from the address, or TLS cannot be used.
    pub(super) fn add(&mut self, address: &str, row: &EndpointRow<'_>) -> Result<Arc<KeySet>, StartError> {
        let uri = parse(address, row.may_be_plain).map_err(|reason| StartError::Key {
            section: row.section.to_owned(),
            name: row.name,
            reason,
        })?;
        let is_same = |set: &&Arc<KeySet>| set.uri == uri && set.tls == *row.tls;
        if let Some(known) = self.sets.iter().find(is_same) {
            return Ok(Arc::clone(known));
        }
        if let Some(known) = self.before.iter().filter(|set| set.section == row.section).find(is_same) {
            let known = Arc::clone(known);
            self.sets.push(Arc::clone(&known));
            return Ok(known);
        }
        let set = Arc::new(KeySet {
            section: row.section.to_owned(),
            client: HttpClient::new(row.tls_section, row.tls, FETCH_TIMEOUT)?,
            uri,
            clock: self.clock.clone(),
            counts: FetchCounts::default(),
            tls: row.tls.clone(),
            fetched: SharedLock::default(),
            doubts: Lock::default(),
            hasher: RandomState::new(),
            is_followed: AtomicBool::new(false),
            wanted: Notify::new(),
        });
        self.sets.push(Arc::clone(&set));
        Ok(set)
    }
}

/// Reads the address of a set.
///
/// # Errors
/// What is wrong with the address. Keys that somebody on the way could replace prove nothing.
fn parse(address: &str, may_be_plain: bool) -> Result<Uri, &'static str> {
    let uri: Uri = address.parse().map_err(|_| "not an https:// address")?;
    let host = uri.host().filter(|host| !host.is_empty()).ok_or("not an https:// address")?;
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Err("an address with a user is not supported");
    }
    match uri.scheme_str() {
        Some("https") => Ok(uri),
        Some("http") if may_be_plain || is_loopback(host) => Ok(uri),
        Some("http") => Err("must be https://: somebody on the way could replace the keys, and forge tokens \
                             (insecure_skip_jwks_endpoint_safety_check allows it)"),
        _ => Err("not an https:// address"),
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

    /// Returns a set with one key.
    fn with_key(kid: &str) -> ParsedSet {
        let x = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";
        let json = json!({"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": kid, "x": x}]});
        parse_set(json.to_string().as_bytes()).expect("a set")
    }

    /// Returns the answer for a token that a key with this `kid` would have signed.
    fn told(set: &KeySet, kid: &str, token: &str, now: Instant) -> &'static str {
        match set.find_at(kid, now) {
            None => "unavailable",
            Some(found) if !found.keys().is_empty() => "known",
            Some(found) if set.was_asked_at(&found, token, now) => "final",
            Some(_) => "asked",
        }
    }

    #[test]
    fn a_token_that_no_key_has_signed_is_final_only_when_the_endpoint_was_asked_after_it_was_shown() {
        let (set, start) = (set(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(told(&set, "a", "of a", at(0)), "unavailable", "nothing was fetched");
        set.install(with_key("a"), at(1));
        assert_eq!(told(&set, "a", "of a", at(2)), "known");
        assert_eq!(told(&set, "b", "of b", at(2)), "asked", "it may be new");
        assert_eq!(told(&set, "b", "of b", at(5_000)), "asked", "the endpoint fails");
        set.install(with_key("a"), at(5_001));
        assert_eq!(told(&set, "b", "of b", at(5_002)), "final");
        assert_eq!(told(&set, "b", "of b", at(5_500)), "final", "it does not change its mind");
        assert_eq!(told(&set, "b", "also of b", at(5_002)), "asked", "what a stranger has shown says nothing of it");
        assert_eq!(told(&set, "c", "of c", at(5_002)), "asked", "another one");
        set.install(with_key("b"), at(5_012));
        assert_eq!(told(&set, "b", "of b", at(5_013)), "known");
        assert_eq!(
            told(&set, "a", "of a", at(5_013)),
            "asked",
            "it is gone, which is told when it was asked for again"
        );
        set.install(with_key("b"), at(5_022));
        assert_eq!(told(&set, "a", "of a", at(5_023)), "final");
        assert_eq!(told(&set, "b", "of b", at(5_022 + 86_399)), "known");
        assert_eq!(told(&set, "b", "of b", at(5_022 + 86_400)), "unavailable", "too old");
    }

    #[test]
    fn what_was_found_before_a_fetch_is_judged_by_that() {
        let (set, start) = (set(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        set.install(with_key("a"), at(0));
        assert_eq!(told(&set, "b", "of b", at(1)), "asked");
        let found = set.find_at("b", at(3)).expect("it was fetched");
        set.install(with_key("b"), at(2));
        assert!(!set.was_asked_at(&found, "of b", at(3)), "the keys have come in between");
        assert_eq!(told(&set, "b", "of b", at(3)), "known");
    }

    proptest::proptest! {
        #[test]
        fn nothing_that_others_have_shown_makes_a_token_final(
            kids in proptest::collection::vec(0..3_u8, 0..40),
            fetches in proptest::collection::vec(0..40_u64, 0..5),
        ) {
            let (set, start) = (set(), Instant::now());
            set.install(with_key("a"), start);
            for (second, kid) in kids.iter().enumerate() {
                let now = start + Duration::from_secs(1 + second as u64);
                if fetches.contains(&(second as u64)) {
                    set.install(with_key("a"), now);
                }
                told(&set, &format!("k{kid}"), &format!("of a stranger {second}"), now);
                told(&set, &format!("k{kid}"), "of a stranger", now);
            }
            let now = start + Duration::from_secs(1 + kids.len() as u64);
            proptest::prop_assert_eq!(told(&set, "k0", "of a good user", now), "asked");
        }
    }

    #[test]
    fn a_set_that_is_not_fetched_again_has_all_that_it_ever_will() {
        let (set, now) = (set(), Instant::now());
        set.is_followed.store(false, Relaxed);
        assert_eq!(told(&set, "a", "of a", now), "unavailable");
        set.install(with_key("a"), now);
        assert_eq!([told(&set, "a", "of a", now), told(&set, "b", "of b", now)], ["known", "final"]);
    }

    #[test]
    fn a_flood_of_invented_tokens_takes_bounded_memory() {
        let (set, start) = (set(), Instant::now());
        set.install(with_key("a"), start);
        for number in 0..10 * DOUBTS_MAX {
            let token = format!("x{number}");
            assert_eq!(told(&set, "x", &token, start + Duration::from_secs(20)), "asked");
        }
        let doubts = set.doubts.lock();
        assert_eq!((doubts.since.len(), doubts.order.len()), (DOUBTS_MAX, DOUBTS_MAX));
    }
}
