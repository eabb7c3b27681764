//! Orders that touch many entries. They wait in lines, one for each client, and the lines are served in turn, a step at
//! a time, behind everything that is done at once: links to other nodes, registrations, counts.

use std::collections::{HashMap, VecDeque};

use touchline_engine::directory::{Directory, DirectoryRequest, Requester, Walk};
use touchline_registry::OwnerId;

use crate::mailbox::ReplyTo;

/// Whose a line is. Requests of the server API don't depend on each other, so each has a line of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Line {
    Client(OwnerId),
    Backend(u64),
}

struct Waiting {
    who: Requester,
    ask: DirectoryRequest,
    asker: ReplyTo,
}

/// The lines.
#[derive(Default)]
pub(super) struct Walks {
    lines: HashMap<Line, VecDeque<Waiting>>,
    /// Lines in the order in which they are served. The one whose order is under way is not in it.
    turn: VecDeque<Line>,
    under_way: Option<(Line, Walk<ReplyTo>)>,
    /// Requests of the server API so far.
    requests: u64,
}

impl Walks {
    /// Whether an order has to wait in line: a walk, or what comes behind a walk of the same client. What one client
    /// asks for is carried out in order, but for its answers to calls, which others wait for.
    pub(super) fn takes(&self, who: &Requester, ask: &DirectoryRequest) -> bool {
        let is_behind =
            || !who.is_backend && !self.lines.is_empty() && self.lines.contains_key(&Line::Client(who.owner));
        ask.is_walk() || !matches!(ask, DirectoryRequest::Reply { .. } | DirectoryRequest::Close) && is_behind()
    }

    /// Puts an order in line.
    pub(super) fn put(&mut self, who: Requester, ask: DirectoryRequest, asker: ReplyTo) {
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
        let Some(orders) = self.lines.get_mut(&line) else { return };
        orders.retain(|waiting| matches!(waiting.ask, DirectoryRequest::Send { .. }));
        self.under_way.take_if(|(other, walk)| *other == line && !walk.is_send());
        if self.under_way.as_ref().is_some_and(|(other, _)| *other == line) {
            return;
        }
        self.turn.retain(|other| *other != line);
        if orders.is_empty() {
            self.lines.remove(&line);
        } else {
            self.turn.push_back(line);
        }
    }

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// One step of the order under way, or of the next one.
    pub(super) fn step(&mut self, directory: &mut Directory<ReplyTo>, now_ms: u64) {
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
        !matches!(&self.asker, ReplyTo::Operation(_, reply) if reply.is_closed())
            || matches!(self.ask, DirectoryRequest::Send { .. })
    }

    fn begin(self, directory: &mut Directory<ReplyTo>, now_ms: u64) -> Option<Walk<ReplyTo>> {
        let Waiting { who, ask, asker } = self;
        let asker = (!matches!(asker, ReplyTo::Nobody)).then_some(asker);
        directory.begin(who, ask, asker, now_ms).and_then(|walk| directory.step(walk, now_ms))
    }
}

#[cfg(test)]
mod tests {
    use touchline_engine::directory::{DirectoryEffect, ScopeId, ScopeOptions, Target};
    use touchline_registry::Timing;

    use super::*;

    const NOW: u64 = 1_000_000;

    fn directory(members: u32) -> Directory<ReplyTo> {
        let options = ScopeOptions { name: "devices".into(), ..ScopeOptions::default() };
        let mut directory = Directory::new("here", &[options], &Timing::default(), 7, false, NOW);
        for number in 0..members {
            directory.ask(
                &who(number),
                DirectoryRequest::Join { scope: ScopeId(0), group: "all".into(), meta: "1".into() },
                None,
                NOW,
            );
        }
        directory
    }

    fn who(number: u32) -> Requester {
        let mut owner = [1; 16];
        owner[..4].copy_from_slice(&number.to_be_bytes());
        Requester { owner: OwnerId(owner), user: Box::default(), is_backend: false }
    }

    fn members() -> DirectoryRequest {
        DirectoryRequest::Members { scope: ScopeId(0), group: "all".into() }
    }

    fn send(is_group: bool) -> DirectoryRequest {
        let target = Target { scope: ScopeId(0), key: "all".into(), is_group };
        DirectoryRequest::Send { target, data: "1".into(), store_for_ms: 0 }
    }

    fn asker() -> (ReplyTo, tokio::sync::oneshot::Receiver<touchline_engine::Response>) {
        let (reply, answer) = tokio::sync::oneshot::channel();
        (ReplyTo::Operation(None, reply), answer)
    }

    /// Steps until nothing waits; gives the number of answers after each.
    fn run(walks: &mut Walks, directory: &mut Directory<ReplyTo>) -> Vec<DirectoryEffect<ReplyTo>> {
        let mut acts = Vec::new();
        for _ in 0..10_000 {
            walks.step(directory, NOW);
            acts.extend(directory.acts());
        }
        assert!(walks.is_empty() && walks.turn.is_empty() && walks.lines.is_empty());
        acts
    }

    #[test]
    fn who_asks_once_waits_for_one_order_of_who_asks_much() {
        let mut directory = directory(2_000);
        let mut walks = Walks::default();
        let mut answers = Vec::new();
        for _ in 0..64 {
            let (asker, answer) = asker();
            answers.push(answer);
            walks.put(who(1), members(), asker);
        }
        let (asker, mut answer) = asker();
        walks.put(who(2), members(), asker);
        let mut before = 0;
        while answer.try_recv().is_err() {
            walks.step(&mut directory, NOW);
            for act in directory.acts() {
                let DirectoryEffect::Answer(ReplyTo::Operation(_, reply), Ok(answered)) = act else {
                    panic!("an answer")
                };
                before += 1;
                let _ = reply.send(touchline_engine::Response::Answer(answered));
            }
        }
        assert_eq!(before, 2, "the other's first, then this one");
        run(&mut walks, &mut directory);
    }

    #[test]
    fn a_clients_orders_stay_in_line_and_others_pass() {
        let mut walks = Walks::default();
        assert!(walks.takes(&who(1), &members()) && walks.takes(&who(1), &send(true)));
        assert!(!walks.takes(&who(1), &send(false)), "nothing is before it");
        walks.put(who(1), members(), ReplyTo::Nobody);
        assert!(walks.takes(&who(1), &send(false)), "its own list is before it");
        assert!(!walks.takes(&who(2), &send(false)), "that is none of its own");
        assert!(
            !walks.takes(&who(1), &DirectoryRequest::Reply { call: 1, outcome: Ok("1".into()) }),
            "others wait for that"
        );
        assert!(!walks.takes(&who(1), &DirectoryRequest::Close));
        let mut directory = directory(2_000);
        walks.step(&mut directory, NOW);
        assert!(walks.takes(&who(1), &send(false)), "it is under way");
        run(&mut walks, &mut directory);
        assert!(!walks.takes(&who(1), &send(false)));
    }

    /// Clients that are sent something.
    fn reached(acts: &[DirectoryEffect<ReplyTo>]) -> usize {
        acts.iter().map(|act| if let DirectoryEffect::PushMany(clients, _) = act { clients.len() } else { 0 }).sum()
    }

    #[test]
    fn a_call_ends_with_its_caller_and_a_message_does_not() {
        let mut directory = directory(2_000);
        let target = || Target { scope: ScopeId(0), key: "all".into(), is_group: true };
        for is_last in [false, true] {
            let mut walks = Walks::default();
            walks.put(
                who(1),
                DirectoryRequest::Call { target: target(), data: "1".into(), timeout_ms: 1_000 },
                asker().0,
            );
            walks.step(&mut directory, NOW);
            if !is_last {
                walks.put(who(1), send(true), ReplyTo::Nobody);
            }
            walks.forget(who(1).owner);
            assert_eq!(
                reached(&run(&mut walks, &mut directory)),
                if is_last { 0 } else { 2_000 },
                "the message behind it, and not the call"
            );
        }
        let mut walks = Walks::default();
        walks.put(who(1), send(true), ReplyTo::Nobody);
        walks.step(&mut directory, NOW);
        walks.forget(who(1).owner);
        assert_eq!(reached(&run(&mut walks, &mut directory)), 2_000, "it is sent to the end");
    }

    #[test]
    fn nobody_walks_for_who_is_gone() {
        let mut directory = directory(3);
        let mut walks = Walks::default();
        walks.put(who(1), members(), asker().0);
        for number in [2, 3] {
            for _ in 0..10 {
                walks.put(who(number), members(), ReplyTo::Nobody);
            }
            walks.put(who(number), send(true), ReplyTo::Nobody);
        }
        walks.forget(who(2).owner);
        walks.forget(who(9).owner);
        let reached =
            run(&mut walks, &mut directory).iter().filter(|act| matches!(act, DirectoryEffect::PushMany(..))).count();
        assert_eq!(reached, 2, "what was sent is sent");
        let (asker, answer) = asker();
        drop(answer);
        walks.put(who(4), members(), asker);
        assert!(run(&mut walks, &mut directory).is_empty(), "nobody waits for it");
    }
}
