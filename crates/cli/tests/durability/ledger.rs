//! The answers that publishers got, compared with the content of the store.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Mutex;

use serde_json::{Value, json};
use touchline_testkit::http::TestClient;

/// The known result of one publication.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The server answered that the publication is at this offset of this epoch.
    Acknowledged(u64, String),
    /// The server answered with an error, or did not answer.
    Unknown,
}

/// Publications by channel and number.
#[derive(Default)]
pub(crate) struct Ledger {
    fates: Mutex<HashMap<(usize, u64), Fate>>,
}

pub(crate) fn channel(number: usize) -> String {
    format!("kept:{number}")
}

impl Ledger {
    /// Publishes one publication with its own idempotency key, and notes the answer.
    pub(crate) fn publish(&self, client: &mut TestClient, of: usize, number: u64) -> bool {
        let key = format!("key-{number}");
        let answer =
            client.call("publish", &json!({"channel": channel(of), "data": {"n": number}, "idempotency_key": key}));
        let fate = match answer.as_ref().map(|answer| &answer["result"]) {
            Ok(result @ Value::Object(_)) => Fate::Acknowledged(
                result["offset"].as_u64().expect("an offset"),
                result["epoch"].as_str().expect("an epoch").to_owned(),
            ),
            _ => Fate::Unknown,
        };
        let is_known = fate != Fate::Unknown;
        self.fates.lock().expect("no thread panics with the lock").insert((of, number), fate);
        is_known
    }

    /// The number of acknowledged publications.
    pub(crate) fn acknowledged(&self) -> usize {
        self.fates
            .lock()
            .expect("no thread panics with the lock")
            .values()
            .filter(|fate| **fate != Fate::Unknown)
            .count()
    }

    /// Channel and number of each publication whose result is unknown.
    pub(crate) fn unknown(&self) -> Vec<(usize, u64)> {
        let fates = self.fates.lock().expect("no thread panics with the lock");
        fates.iter().filter(|(_, fate)| **fate == Fate::Unknown).map(|(of, _)| *of).collect()
    }

    /// Compares the notes with the whole history of each channel.
    pub(crate) fn check(&self, client: &mut TestClient, channels: usize) {
        for of in 0..channels {
            let found = history(client, of);
            let offsets: Vec<u64> = found.kept.keys().copied().collect();
            assert_eq!(offsets, (1..=found.top).collect::<Vec<_>>(), "offsets of {of} have no gap");
            let distinct: HashSet<u64> = found.kept.values().copied().collect();
            assert_eq!(distinct.len(), found.kept.len(), "nothing in {of} is there twice");
            let fates = self.fates.lock().expect("no thread panics with the lock");
            for ((_, number), fate) in fates.iter().filter(|((channel, _), _)| *channel == of) {
                if let Fate::Acknowledged(offset, epoch) = fate {
                    // Between two starts only the run in the epoch differs.
                    let channels = |epoch: &str| epoch.split('.').next().map(str::to_owned);
                    assert_eq!(channels(epoch), channels(&found.epoch), "the epoch of {of} stays");
                    assert_eq!(found.kept.get(offset), Some(number), "{number} was acknowledged at {offset} of {of}");
                }
            }
            for number in found.kept.values() {
                assert!(fates.contains_key(&(of, *number)), "no publisher has published {number} of {of}");
            }
        }
    }
}

/// The content of a channel.
pub(crate) struct Found {
    pub(crate) epoch: String,
    pub(crate) top: u64,
    /// The numbers by offset.
    pub(crate) kept: BTreeMap<u64, u64>,
}

pub(crate) fn history(client: &mut TestClient, of: usize) -> Found {
    let answer = client.api("history", &json!({"channel": channel(of), "limit": -1}));
    let result = &answer["result"];
    let publications = result["publications"].as_array().unwrap_or_else(|| panic!("no history: {answer}"));
    let pair = |publication: &Value| Some((publication["offset"].as_u64()?, publication["data"]["n"].as_u64()?));
    let kept: BTreeMap<u64, u64> =
        publications.iter().map(|publication| pair(publication).expect("an offset and a number")).collect();
    assert_eq!(kept.len(), publications.len(), "no offset is there twice");
    Found {
        epoch: result["epoch"].as_str().expect("an epoch").to_owned(),
        top: result["offset"].as_u64().expect("an offset"),
        kept,
    }
}
