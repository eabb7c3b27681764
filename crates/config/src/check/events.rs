//! Checks the settings of lifecycle events: each endpoint can be used, and events about the same key have the same
//! delay.

use std::collections::HashSet;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use touchline_engine::events::EventKind;

use super::address::check_address;
use super::hook_headers::is_of_connection;
use super::names::is_field_name;
use crate::finding::Finding;
use crate::item_path::{is_key_name, item_path};
use crate::keys::EVENTS;
use crate::settings::{EventsSettings, NamedEvents, Settings};

/// Maximum number of event endpoints.
pub const EVENT_ENDPOINTS_MAX: usize = 16;
/// Maximum value of `timeout`: a lane waits for the answer of its endpoint.
const TIMEOUT_MAX: Duration = Duration::from_secs(60);
/// Maximum value of `batch_wait`.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// Bytes of a signing key, as Standard Webhooks requires.
const KEY_SIZES: std::ops::RangeInclusive<usize> = 24..=64;
/// The prefix of the base64 of a signing key.
const SECRET_PREFIX: &str = "whsec_";
/// Header fields that the node sets on every request, so `headers` must not set them.
const OF_SIGNATURE: [&str; 3] = ["webhook-id", "webhook-timestamp", "webhook-signature"];

/// Checks the backends that receive lifecycle events.
pub(super) fn check(settings: &Settings, findings: &mut Vec<Finding>) {
    findings.extend(event_faults(settings).into_iter().map(|fault| Finding::error(fault, None)));
    for (index, events) in settings.events.iter().enumerate() {
        let options = &events.options;
        if options.nats_subject().is_none() && options.secret.is_empty() {
            let path = item_path(EVENTS, index, &events.name);
            let text = "missing, so the backend cannot verify who sent a batch: \
                        set it to whsec_ and the base64 of 32 random bytes";
            findings.push(Finding::warning(format!("{path}.secret: {text}"), None));
        }
    }
}

/// The signing key of a Standard Webhooks secret. `None` = the text is not such a secret.
pub fn signing_key(secret: &str) -> Option<Vec<u8>> {
    let key = STANDARD.decode(secret.strip_prefix(SECRET_PREFIX)?).ok()?;
    KEY_SIZES.contains(&key.len()).then_some(key)
}

/// Why the settings of events cannot be used, one text for each fault. No text contains a secret.
pub fn event_faults(settings: &Settings) -> Vec<String> {
    let mut faults = Vec::new();
    if settings.events.len() > EVENT_ENDPOINTS_MAX {
        faults.push(format!("{EVENTS}: more than {EVENT_ENDPOINTS_MAX}"));
    }
    let mut names = HashSet::new();
    for (index, NamedEvents { name, options }) in settings.events.iter().enumerate() {
        let path = item_path(EVENTS, index, name);
        if !is_key_name(name) {
            faults.push(format!("{path}.name: expected two or more of letters, digits and \"_\""));
        }
        if !names.insert(name) {
            faults.push(format!("{path}.name: used twice"));
        }
        let mut checker = EventsChecker { path: &path, faults: &mut faults };
        checker.endpoint(settings, options);
        checker.types(settings, options);
        checker.secrets(options);
        checker.headers(options);
        checker.bounds(options);
        checker.durable(settings, options);
    }
    one_delay(&settings.events, &mut faults);
    faults
}

/// Maximum bytes of a channel name with durable events. An index entry of PostgreSQL holds 2,704 bytes, including the
/// node and the kind.
const DURABLE_CHANNEL_LENGTH_MAX: usize = 2_000;

/// Checks that all endpoints with events of state have the same delay, because these events share one generation per
/// key.
fn one_delay(events: &[NamedEvents], faults: &mut Vec<String>) {
    let is_of_state = |word: &String| {
        EventKind::from_word(word).is_some_and(|kind| kind.is_of_channel_state() || kind.is_of_user_state())
    };
    let counted = |events: &&NamedEvents| events.options.types.iter().any(is_of_state);
    let mut all = events.iter().filter(counted);
    let Some(first) = all.next() else { return };
    for other in all.filter(|other| other.options.delay != first.options.delay) {
        faults.push(format!(
            "{EVENTS}[{}].delay: differs from {EVENTS}[{}]: occupied, vacated, user_online and user_offline are \
             counted once for all backends, so they need the same delay",
            other.name, first.name
        ));
    }
}

struct EventsChecker<'a> {
    path: &'a str,
    faults: &'a mut Vec<String>,
}

impl EventsChecker<'_> {
    fn fault(&mut self, key: &str, text: &str) {
        self.faults.push(format!("{}.{key}: {text}", self.path));
    }

    fn endpoint(&mut self, settings: &Settings, options: &EventsSettings) {
        if let Some(subject) = options.nats_subject() {
            let is_token = |token: &str| {
                !token.is_empty()
                    && !token.contains(['*', '>'])
                    && !token.contains(|c: char| c.is_whitespace() || c.is_control())
            };
            if !subject.split('.').all(is_token) || subject.starts_with('$') {
                self.fault("endpoint", "nats: needs a subject without * and >");
            }
            if !settings.cluster.is_on() {
                let text =
                    "nats: needs [cluster] with engine = \"nats\" and nats_url, the addresses of the NATS servers";
                self.fault("endpoint", text);
            }
            return;
        }
        if let Err(text) = check_address(&options.endpoint) {
            self.fault("endpoint", text);
        }
    }

    fn types(&mut self, settings: &Settings, options: &EventsSettings) {
        if options.types.is_empty() {
            self.fault("types", "missing, so no event would be sent");
        }
        let mut seen = HashSet::new();
        for word in &options.types {
            if EventKind::from_word(word).is_none() {
                let known: Vec<&str> = EventKind::CONFIGURED.iter().filter_map(|kind| kind.word()).collect();
                self.fault("types", &format!("{word:?} is not one of {}", known.join(", ")));
            } else if !seen.insert(word) {
                self.fault("types", &format!("{word:?} is listed twice"));
            }
        }
        for name in options.namespaces.iter().filter(|name| !name.is_empty()) {
            if !settings.channel.namespaces.iter().any(|namespace| namespace.name == *name) {
                self.fault("namespaces", &format!("there is no namespace {name:?}"));
            }
        }
    }

    fn secrets(&mut self, options: &EventsSettings) {
        let EventsSettings { secret, secret_previous, .. } = options;
        for (key, secret) in [("secret", secret), ("secret_previous", secret_previous)] {
            if !secret.is_empty() && signing_key(secret).is_none() {
                self.fault(key, "must be whsec_ and the base64 of 24 to 64 bytes");
            }
        }
        if secret.is_empty() && !secret_previous.is_empty() {
            self.fault("secret_previous", "has no effect without secret");
        }
        if options.nats_subject().is_some() && !secret.is_empty() {
            self.fault("secret", "messages over NATS are not signed: remove it");
        }
    }

    fn headers(&mut self, options: &EventsSettings) {
        for name in options.headers.0.keys() {
            let lower = name.to_ascii_lowercase();
            if !is_field_name(name) {
                self.fault("headers", &format!("{name:?} is not the name of a header field"));
            } else if is_of_connection(name) || OF_SIGNATURE.contains(&lower.as_str()) {
                self.fault("headers", &format!("{name:?} is a field that the node sets: remove it"));
            }
        }
        if options.nats_subject().is_some() && !options.headers.0.is_empty() {
            self.fault("headers", "messages over NATS have no such headers: remove them");
        }
    }

    fn bounds(&mut self, options: &EventsSettings) {
        let second = Duration::from_secs(1);
        for (key, value, least, most) in [
            ("timeout", options.timeout, Duration::from_millis(1), TIMEOUT_MAX),
            ("batch_wait", options.batch_wait, Duration::ZERO, WAIT_MAX),
            ("max_age", options.max_age, second, Duration::from_hours(24 * 30)),
            ("delay", options.delay, Duration::ZERO, Duration::from_hours(1)),
        ] {
            if !(least..=most).contains(&value) {
                let show = touchline_engine::duration::show;
                self.fault(key, &format!("must be {} to {}", show(least), show(most)));
            }
        }
    }

    fn durable(&mut self, settings: &Settings, options: &EventsSettings) {
        if options.durable && settings.cluster.is_on() && !settings.store.primary.is_shared() {
            self.fault(
                "durable",
                "the nodes of a cluster cannot share an SQLite file: set store.primary.url to PostgreSQL",
            );
        }
        if options.durable && settings.channel.max_length > DURABLE_CHANNEL_LENGTH_MAX {
            let text = format!(
                "needs a channel.max_length of {DURABLE_CHANNEL_LENGTH_MAX} or less: channel names are database keys"
            );
            self.fault("durable", &text);
        }
    }
}
