//! Events that clients report about themselves, and how many of them each connection may report in a second.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use touchline_protocol::{Error, data};

/// The greatest length of an event's name, bytes.
const NAME_MAX: usize = 64;

/// The limits of what clients may report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrackLimits {
    /// The greatest number of events of one connection within a second; 0 = clients may not report events.
    pub rate: u32,
    /// The greatest size of an event's properties, bytes of JSON.
    pub props_max: usize,
}

/// An event that a client has reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tracked {
    /// The name of the event.
    pub name: Box<str>,
    /// The user of the client that reported it; empty = anonymous.
    pub user: Box<str>,
    /// The properties of the event, a JSON object.
    pub props: Bytes,
}

/// The reports of the clients of one shard.
#[derive(Debug, Default)]
pub struct Tracker {
    second: u64,
    /// The number of events in the current second, by the connection's slot.
    counts: BTreeMap<u32, u32>,
    taken: Vec<Tracked>,
}

#[derive(Deserialize)]
struct TrackParams<'a> {
    event: Box<str>,
    #[serde(borrow)]
    props: Option<&'a RawValue>,
}

impl Tracker {
    /// Adds a report of the client in `slot`.
    ///
    /// # Errors
    /// 107 if it is malformed or too large, 108 if reports are off, 111 if the client reports too much.
    pub(crate) fn track(
        &mut self,
        slot: u32,
        user: &str,
        params: &str,
        limits: TrackLimits,
        now_ms: u64,
    ) -> Result<(), Error> {
        if limits.rate == 0 {
            return Err(Error::NOT_AVAILABLE);
        }
        let TrackParams { event, props } = serde_json::from_str(params).map_err(|_| Error::BAD_REQUEST)?;
        let props = props.map_or(Ok(Bytes::from_static(b"{}")), data::checked_payload)?;
        if event.is_empty() || event.len() > NAME_MAX || !data::is_plain_text(&event) {
            return Err(Error::BAD_REQUEST);
        }
        if props.len() > limits.props_max || !props.starts_with(b"{") {
            return Err(Error::BAD_REQUEST);
        }
        let second = now_ms / 1_000;
        if second != self.second {
            self.counts.clear();
            self.second = second;
        }
        let count = self.counts.entry(slot).or_default();
        if *count >= limits.rate {
            return Err(Error::TOO_MANY_REQUESTS);
        }
        *count += 1;
        self.taken.push(Tracked { name: event, user: user.into(), props });
        Ok(())
    }

    /// Removes and returns the reports since the last call.
    pub fn drain(&mut self) -> std::vec::Drain<'_, Tracked> {
        self.taken.drain(..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: TrackLimits = TrackLimits { rate: 2, props_max: 20 };

    #[test]
    fn each_connection_may_report_so_much_in_a_second() {
        let mut tracker = Tracker::default();
        let mut track = |slot, now_ms| tracker.track(slot, "ann", r#"{"event":"goal"}"#, LIMITS, now_ms);
        assert_eq!([track(1, 0), track(1, 500), track(1, 999)], [Ok(()), Ok(()), Err(Error::TOO_MANY_REQUESTS)]);
        assert_eq!([track(2, 999), track(1, 1_000)], [Ok(()), Ok(())]);
        let event = Tracked { name: "goal".into(), user: "ann".into(), props: Bytes::from_static(b"{}") };
        assert_eq!(tracker.drain().collect::<Vec<_>>(), vec![event; 4]);
        assert_eq!(tracker.drain().len(), 0);
    }

    #[test]
    fn a_report_has_a_name_and_an_object() {
        let track = |params: &str| Tracker::default().track(1, "", params, LIMITS, 0);
        assert_eq!(track(r#"{"event":"a","props":{"x":1}}"#), Ok(()));
        let long = format!(r#"{{"event":"{}"}}"#, "x".repeat(65));
        for bad in [
            "",
            "{}",
            r#"{"event":""}"#,
            r#"{"event":"a\u0000"}"#,
            r#"{"event":"a\nb"}"#,
            &long,
            r#"{"event":"a","props":[1]}"#,
            r#"{"event":"a","props":{"x":"0123456789abcdef"}}"#,
        ] {
            assert_eq!(track(bad), Err(Error::BAD_REQUEST), "{bad}");
        }
        let none = TrackLimits { rate: 0, props_max: 20 };
        assert_eq!(Tracker::default().track(1, "", r#"{"event":"a"}"#, none, 0), Err(Error::NOT_AVAILABLE));
    }

    #[test]
    fn names_and_properties_are_as_long_as_they_may_be_and_no_longer() {
        let track = |name: usize, props: usize| {
            let params = format!(r#"{{"event":"{}","props":{{"x":"{}"}}}}"#, "n".repeat(name), "p".repeat(props - 8));
            Tracker::default().track(1, "", &params, LIMITS, 0)
        };
        let bad = Err(Error::BAD_REQUEST);
        assert_eq!([track(64, 20), track(65, 20), track(1, 21), track(1, 8)], [Ok(()), bad, bad, Ok(())]);
    }

    #[test]
    fn what_is_refused_is_not_counted() {
        let mut tracker = Tracker::default();
        for _ in 0..3 {
            assert_eq!(tracker.track(1, "", "{}", LIMITS, 0), Err(Error::BAD_REQUEST));
        }
        let mut track = |now_ms| tracker.track(1, "", r#"{"event":"a"}"#, LIMITS, now_ms);
        assert_eq!([track(0), track(0), track(0)], [Ok(()), Ok(()), Err(Error::TOO_MANY_REQUESTS)]);
        // A clock that is set back also begins another second.
        assert_eq!(
            [track(5_000), track(4_999), track(4_999), track(4_999)],
            [Ok(()), Ok(()), Ok(()), Err(Error::TOO_MANY_REQUESTS)]
        );
    }
}
