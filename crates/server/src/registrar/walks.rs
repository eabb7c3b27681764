//! Orders that touch many entries. They wait in lines, one for each client, and the lines are served in turn, a step at a time, behind
//! everything that is done at once: links to other nodes, registrations, counts.

use std::collections::{HashMap, VecDeque};

use touchline_engine::directory::{Ask, Directory, Walk, Who};
use touchline_registry::OwnerId;

use crate::inbox::Asker;

/// Whose a line is. Requests of the server API don't depend on each other, so each has a line of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Line {
    Client(OwnerId),
    Backend(u64),
}

struct Waiting {
    who: Who,
    ask: Ask,
    asker: Asker,
}

/// The lines.
#[derive(Default)]
pub(super) struct Walks {
    lines: HashMap<Line, VecDeque<Waiting>>,
    /// Lines in the order in which they are served. The one whose order is under way is not in it.
    turn: VecDeque<Line>,
    under_way: Option<(Line, Walk<Asker>)>,
    /// Requests of the server API so far.
    requests: u64,
}

impl Walks {
    /// Whether an order has to wait in line: a walk, or what comes behind a walk of the same client. What one client asks for is carried
    /// out in order, but for its answers to calls, which others wait for.
    pub(super) fn takes(&self, who: &Who, ask: &Ask) -> bool {
        let is_behind = || !who.is_backend && !self.lines.is_empty() && self.lines.contains_key(&Line::Client(who.owner));
        ask.is_walk() || !matches!(ask, Ask::Reply { .. } | Ask::Close) && is_behind()
    }

    /// Puts an order in line.
    pub(super) fn put(&mut self, who: Who, ask: Ask, asker: Asker) {
        let line = if who.is_backend {
            self.requests += 1;
            Line::Backend(self.requests)
        } else {
            Line::Client(who.owner)
        };
        let orders = self.lines.entry(line).or_default();
        let is_new = orders.is_empty() && self.under_way.as_ref().is_none_or(|(other, _)| *other != line);
        orders.push_back(Waiting { who, ask, asker });
        if is_new {
            self.turn.push_back(line);
        }
    }

    /// A client is gone: what it only wanted to know is dropped. What it has sent to others is still sent.
    pub(super) fn forget(&mut self, client: OwnerId) {
        let line = Line::Client(client);
        if let Some(orders) = self.lines.get_mut(&line) {
            orders.retain(|waiting| matches!(waiting.ask, Ask::Send { .. }));
            if orders.is_empty() && self.under_way.as_ref().is_none_or(|(other, _)| *other != line) {
                self.lines.remove(&line);
                self.turn.retain(|other| *other != line);
            }
        }
    }

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// One step of the order under way, or of the next one.
    pub(super) fn step(&mut self, directory: &mut Directory<Asker>, now_ms: u64) {
        let (line, walk) = match self.under_way.take() {
            Some((line, walk)) => (line, directory.step(walk, now_ms)),
            None => {
                let Some(line) = self.turn.pop_front() else { return };
                let next = self.lines.get_mut(&line).and_then(VecDeque::pop_front).filter(Waiting::is_wanted);
                (line, next.and_then(|waiting| waiting.begin(directory, now_ms)))
            }
        };
        if let Some(walk) = walk {
            self.under_way = Some((line, walk));
        } else if self.lines.get(&line).is_none_or(VecDeque::is_empty) {
            self.lines.remove(&line);
        } else {
            self.turn.push_back(line);
        }
    }
}

impl Waiting {
    /// Whether somebody still waits for the answer, as far as that can be told.
    fn is_wanted(&self) -> bool {
        !matches!(&self.asker, Asker::Operation(_, reply) if reply.is_closed()) || matches!(self.ask, Ask::Send { .. })
    }

    fn begin(self, directory: &mut Directory<Asker>, now_ms: u64) -> Option<Walk<Asker>> {
        let Waiting { who, ask, asker } = self;
        let asker = (!matches!(asker, Asker::Nobody)).then_some(asker);
        directory.begin(who, ask, asker, now_ms).and_then(|walk| directory.step(walk, now_ms))
    }
}
