//! Walks: requests that touch many entries. They wait in queues, one for each client. The registry actor serves the
//! queues in turn, a step at a time. It does so after all requests that take one step: messages of other nodes,
//! registrations, counts.

use std::collections::{HashMap, VecDeque};

use touchline_engine::directory::{Directory, DirectoryRequest, Requester, Walk};
use touchline_registry::{OwnerId, spare_capacity};

use crate::runtime::reply_to::ReplyTo;

/// Identifies a queue. Requests of the server API don't depend on each other, so each has its own queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum QueueId {
    Client(OwnerId),
    Backend(u64),
}

/// A request that waits in a queue.
struct QueuedRequest {
    requester: Requester,
    request: DirectoryRequest,
    reply_to: ReplyTo,
}

/// The queues of walks.
#[derive(Default)]
pub(crate) struct Walks {
    queues: HashMap<QueueId, VecDeque<QueuedRequest>>,
    /// Queues in the order in which they are served. The queue whose walk is under way is not among them. Some queues
    /// may no longer exist.
    turn: VecDeque<QueueId>,
    under_way: Option<(QueueId, Walk<ReplyTo>)>,
    /// How many requests the server API has made so far.
    requests: u64,
}

impl Walks {
    /// Whether a request has to wait in a queue. Walks do, and requests of a client whose walk is queued. The requests
    /// of one client run in order, except its replies to calls, for which other clients wait.
    pub(crate) fn must_queue(&self, requester: &Requester, request: &DirectoryRequest) -> bool {
        let is_behind = || {
            !requester.is_backend
                && !self.queues.is_empty()
                && self.queues.contains_key(&QueueId::Client(requester.owner))
        };
        request.is_walk() || !matches!(request, DirectoryRequest::Reply { .. } | DirectoryRequest::Close) && is_behind()
    }

    /// Puts a request into its queue.
    pub(crate) fn enqueue(&mut self, requester: Requester, request: DirectoryRequest, reply_to: ReplyTo) {
        let id = if requester.is_backend {
            self.requests += 1;
            QueueId::Backend(self.requests)
        } else {
            QueueId::Client(requester.owner)
        };
        let queue = self.queues.entry(id).or_default();
        let is_new = queue.is_empty() && self.under_way.as_ref().is_none_or(|(other, _)| *other != id);
        queue.push_back(QueuedRequest { requester, request, reply_to });
        if is_new {
            self.turn.push_back(id);
        }
    }

    /// Drops the requests of a client that is gone, except its messages to others, which are still sent.
    pub(crate) fn forget(&mut self, client: OwnerId) {
        let id = QueueId::Client(client);
        let Some(queue) = self.queues.get_mut(&id) else { return };
        queue.retain(|queued| matches!(queued.request, DirectoryRequest::Send { .. }));
        let is_empty = queue.is_empty();
        // The queue of the walk under way is not in `turn`. Other queues keep their place there, even if they are
        // removed: a search would take time in proportion to the number of clients.
        if self.under_way.as_ref().is_some_and(|(other, _)| *other == id) {
            if self.under_way.take_if(|(_, walk)| !walk.is_send()).is_none() {
                return;
            }
            self.turn.extend((!is_empty).then_some(id));
        }
        if is_empty {
            self.queues.remove(&id);
            if let Some(capacity) = spare_capacity(self.queues.len(), self.queues.capacity()) {
                self.queues.shrink_to(capacity);
            }
        }
    }

    /// Whether all queues are empty and no walk is under way.
    pub(crate) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// The queue whose turn it is. Queues that [`Walks::forget`] has removed are passed over.
    fn next_queue(&mut self) -> Option<QueueId> {
        while let Some(id) = self.turn.pop_front() {
            if self.queues.contains_key(&id) {
                return Some(id);
            }
        }
        None
    }

    /// Runs one step of the walk under way, or of the next one.
    pub(crate) fn step(&mut self, directory: &mut Directory<ReplyTo>, now_ms: u64) {
        let (id, walk) = match self.under_way.take() {
            Some((id, walk)) => (id, directory.step(walk, now_ms)),
            None => {
                let Some(id) = self.next_queue() else { return };
                let next = self.queues.get_mut(&id).and_then(VecDeque::pop_front).filter(QueuedRequest::is_wanted);
                (id, next.and_then(|queued| queued.begin(directory, now_ms)))
            }
        };
        if let Some(walk) = walk {
            self.under_way = Some((id, walk));
        } else if self.queues.get(&id).is_none_or(VecDeque::is_empty) {
            self.queues.remove(&id);
        } else {
            self.turn.push_back(id);
        }
    }
}

impl QueuedRequest {
    /// Whether the request still has an effect: the requester waits for the reply, as far as that is known, or the
    /// request sends a message.
    fn is_wanted(&self) -> bool {
        !matches!(&self.reply_to, ReplyTo::Operation(_, reply) if reply.is_closed())
            || matches!(self.request, DirectoryRequest::Send { .. })
    }

    fn begin(self, directory: &mut Directory<ReplyTo>, now_ms: u64) -> Option<Walk<ReplyTo>> {
        let QueuedRequest { requester, request, reply_to } = self;
        let reply_to = (!matches!(reply_to, ReplyTo::Discard)).then_some(reply_to);
        directory.begin(requester, request, reply_to, now_ms).and_then(|walk| directory.step(walk, now_ms))
    }
}

#[cfg(test)]
mod tests {
    use touchline_engine::directory::{DirectoryEffect, ScopeId, ScopeOptions, Target};
    use touchline_registry::{HashSeed, ReplicaTiming};

    use super::*;

    const NOW: u64 = 1_000_000;

    fn directory(members: u32) -> Directory<ReplyTo> {
        let options = ScopeOptions { name: "devices".into(), ..ScopeOptions::default() };
        let mut directory =
            Directory::new("here", &[options], &ReplicaTiming::default(), 7, HashSeed::repeatable(7), false, NOW);
        for number in 0..members {
            directory.execute(
                &requester(number),
                DirectoryRequest::Join { scope: ScopeId(0), group: "all".into(), meta: "1".into() },
                None,
                NOW,
            );
        }
        directory
    }

    fn requester(number: u32) -> Requester {
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

    fn reply_channel() -> (ReplyTo, tokio::sync::oneshot::Receiver<touchline_engine::Response>) {
        let (reply, answer) = tokio::sync::oneshot::channel();
        (ReplyTo::Operation(None, reply), answer)
    }

    /// Steps until no request waits, and returns the effects.
    fn run(walks: &mut Walks, directory: &mut Directory<ReplyTo>) -> Vec<DirectoryEffect<ReplyTo>> {
        let mut effects = Vec::new();
        for _ in 0..10_000 {
            walks.step(directory, NOW);
            effects.extend(directory.effects());
        }
        assert!(walks.is_empty() && walks.turn.is_empty() && walks.queues.is_empty());
        effects
    }

    #[test]
    fn a_client_with_one_request_waits_for_one_walk_of_a_client_with_many() {
        let mut directory = directory(2_000);
        let mut walks = Walks::default();
        let mut replies = Vec::new();
        for _ in 0..64 {
            let (reply_to, reply) = reply_channel();
            replies.push(reply);
            walks.enqueue(requester(1), members(), reply_to);
        }
        let (reply_to, mut reply) = reply_channel();
        walks.enqueue(requester(2), members(), reply_to);
        let mut before = 0;
        while reply.try_recv().is_err() {
            walks.step(&mut directory, NOW);
            for effect in directory.effects() {
                let DirectoryEffect::Reply(ReplyTo::Operation(_, sender), Ok(content)) = effect else {
                    panic!("the effect is not a reply")
                };
                before += 1;
                let _ = sender.send(touchline_engine::Response::Directory(content));
            }
        }
        assert_eq!(before, 2, "the other client's first request, then this one");
        run(&mut walks, &mut directory);
    }

    #[test]
    fn a_clients_requests_stay_in_order_and_others_pass() {
        let mut walks = Walks::default();
        assert!(walks.must_queue(&requester(1), &members()) && walks.must_queue(&requester(1), &send(true)));
        assert!(!walks.must_queue(&requester(1), &send(false)), "nothing is before it");
        walks.enqueue(requester(1), members(), ReplyTo::Discard);
        assert!(walks.must_queue(&requester(1), &send(false)), "its own list is before it");
        assert!(!walks.must_queue(&requester(2), &send(false)), "the list is another client's");
        assert!(
            !walks.must_queue(&requester(1), &DirectoryRequest::Reply { call: 1, outcome: Ok("1".into()) }),
            "other clients wait for the reply"
        );
        assert!(!walks.must_queue(&requester(1), &DirectoryRequest::Close));
        let mut directory = directory(2_000);
        walks.step(&mut directory, NOW);
        assert!(walks.must_queue(&requester(1), &send(false)), "it is under way");
        run(&mut walks, &mut directory);
        assert!(!walks.must_queue(&requester(1), &send(false)));
    }

    /// The number of clients that get a push.
    fn reached(effects: &[DirectoryEffect<ReplyTo>]) -> usize {
        effects
            .iter()
            .map(|effect| if let DirectoryEffect::PushMany(clients, _) = effect { clients.len() } else { 0 })
            .sum()
    }

    #[test]
    fn a_call_ends_with_its_caller_and_a_message_does_not() {
        let mut directory = directory(2_000);
        let target = || Target { scope: ScopeId(0), key: "all".into(), is_group: true };
        for is_last in [false, true] {
            let mut walks = Walks::default();
            walks.enqueue(
                requester(1),
                DirectoryRequest::Call { target: target(), data: "1".into(), timeout_ms: 1_000 },
                reply_channel().0,
            );
            walks.step(&mut directory, NOW);
            if !is_last {
                walks.enqueue(requester(1), send(true), ReplyTo::Discard);
            }
            walks.forget(requester(1).owner);
            assert_eq!(
                reached(&run(&mut walks, &mut directory)),
                if is_last { 0 } else { 2_000 },
                "the message behind it, and not the call"
            );
        }
        let mut walks = Walks::default();
        walks.enqueue(requester(1), send(true), ReplyTo::Discard);
        walks.step(&mut directory, NOW);
        walks.forget(requester(1).owner);
        assert_eq!(reached(&run(&mut walks, &mut directory)), 2_000, "it is sent to the end");
    }

    #[test]
    fn a_client_that_is_gone_causes_no_walk() {
        let mut directory = directory(3);
        let mut walks = Walks::default();
        walks.enqueue(requester(1), members(), reply_channel().0);
        for number in [2, 3] {
            for _ in 0..10 {
                walks.enqueue(requester(number), members(), ReplyTo::Discard);
            }
            walks.enqueue(requester(number), send(true), ReplyTo::Discard);
        }
        walks.forget(requester(2).owner);
        walks.forget(requester(9).owner);
        let reached = run(&mut walks, &mut directory)
            .iter()
            .filter(|effect| matches!(effect, DirectoryEffect::PushMany(..)))
            .count();
        assert_eq!(reached, 2, "what was sent is sent");
        let (reply_to, reply) = reply_channel();
        drop(reply);
        walks.enqueue(requester(4), members(), reply_to);
        assert!(run(&mut walks, &mut directory).is_empty(), "the requester does not wait for the reply");
    }
}
