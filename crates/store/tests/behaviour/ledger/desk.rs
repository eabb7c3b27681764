//! The common interface of the model and the databases: requests of nodes, a clock, and the reported events.

use std::time::Duration;

use touchline_engine::events::StateKey;
use touchline_engine::ledger::{BookBatch, BookNote};
use touchline_store::ledger::{GoneClient, LedgerBatch, LedgerCause, LedgerWrite, Narrator, OutboxEvent, ToldKey};

pub(crate) const LEASE: Duration = Duration::from_secs(6);
pub(crate) const DELAY: Duration = Duration::from_secs(5);
pub(crate) const GRACE: Duration = Duration::from_secs(60);
pub(crate) const REMEMBER: Duration = Duration::from_secs(3_600);
/// The maximum number of unheld keys that are remembered.
pub(crate) const KEYS_MAX: u64 = 2;
/// The kind of all events except resets.
pub(crate) const WORD: &str = "connected";

/// A ledger that several nodes use, with a clock that only a test moves.
pub(crate) trait Desk {
    /// Starts a process of a node.
    fn start(&mut self, node: &str);
    /// Kills the process of a node with everything that it has not committed.
    fn kill(&mut self, node: &str);
    /// Begins a life, and returns its incarnation.
    fn enter(&mut self, node: &str, cause: LedgerCause) -> u64;
    fn write(&mut self, node: &str, incarnation: u64, batch: &LedgerBatch) -> LedgerWrite;
    fn sweep(&mut self, node: &str);
    fn tidy(&mut self, node: &str);
    fn leave(&mut self, node: &str, incarnation: u64);
    fn advance(&mut self, ms: u64);
    fn now_ms(&self) -> u64;
    /// All reported events, in the order of the outbox.
    fn told(&mut self) -> Vec<Told>;
    /// Whether a life is over when its lease ends.
    fn has_leases(&self) -> bool;
}

/// An event of the outbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Told {
    Key { key: StateKey, generation: u64, time_ms: u64, empty: Option<(u64, LedgerCause)> },
    Connected { client: String },
    Disconnected { client: String, is_lost: bool },
    Other { what: String },
    Reset,
}

/// Writes events that a test reads back.
pub(crate) struct Scribe;

impl Scribe {
    fn event(body: String) -> OutboxEvent {
        OutboxEvent { word: Some(WORD), namespace: None, place: 0, body }
    }

    /// The batch that a node writes for a batch of its book.
    pub(crate) fn batch(of: &BookBatch<String, String>) -> LedgerBatch {
        let mut batch = LedgerBatch { number: of.number, keys: of.keys.clone(), ..LedgerBatch::default() };
        for note in &of.notes {
            let body = match note {
                BookNote::Connected(client, about) => {
                    batch.connected.push((client.to_string(), about.to_string()));
                    format!("+ {client}")
                }
                BookNote::Disconnected(client, ..) => {
                    batch.disconnected.push(client.to_string());
                    format!("- {client}")
                }
                BookNote::Other(what) => format!("o {what}"),
            };
            batch.events.push(Scribe::event(body));
        }
        batch
    }

    pub(crate) fn read(body: &str) -> Told {
        let words: Vec<&str> = body.split(' ').collect();
        let number = |at: usize| words[at].parse::<u64>().expect("a number");
        match words[0] {
            "+" => Told::Connected { client: words[1].to_owned() },
            "-" => Told::Disconnected { client: words[1].to_owned(), is_lost: false },
            "x" => Told::Disconnected { client: words[1].to_owned(), is_lost: true },
            "r" => Told::Reset,
            "o" => Told::Other { what: words[1].to_owned() },
            kind => Told::Key {
                key: if kind == "u" { StateKey::User(words[1].into()) } else { StateKey::Channel(words[1].into()) },
                generation: number(2),
                time_ms: number(3),
                empty: (words[4] != "held").then(|| {
                    let causes = [LedgerCause::Left, LedgerCause::NodeDown, LedgerCause::Restart];
                    let cause = causes.into_iter().find(|cause| format!("{cause:?}") == words[5]);
                    (number(4), cause.expect("a cause"))
                }),
            },
        }
    }
}

impl Narrator for Scribe {
    fn tell_key(&self, told: &ToldKey, outbox: &mut Vec<OutboxEvent>) {
        let kind = if matches!(told.key, StateKey::User(_)) { "u" } else { "c" };
        let empty = told.empty.map_or("held".to_owned(), |(since, cause)| format!("{since} {cause:?}"));
        outbox.push(Scribe::event(format!("{kind} {} {} {} {empty}", told.key.name(), told.generation, told.time_ms)));
    }

    fn tell_lost(&self, lost: &GoneClient, outbox: &mut Vec<OutboxEvent>) {
        assert_eq!(lost.about, format!("about-{}", lost.client), "it is what was said of the client");
        outbox.push(Scribe::event(format!("x {}", lost.client)));
    }

    fn tell_reset(&self, why: &'static str) -> String {
        format!("r {why}")
    }
}
