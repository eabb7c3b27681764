//! One turn of a shard: it reads from sockets, accepts connections, serves the mailbox, ticks, and writes the output
//! that is due. Each step is bounded, so nothing starves behind a channel with many subscribers.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::time::MissedTickBehavior;

use mio::event::Event;

use super::acceptor::{is_listener, is_pending};
use super::budget::ANSWERS_AHEAD;
use super::deliver;
use super::state::{Drain, MESSAGES_MAX, Shard, TICK_MS, take_one};
use crate::draining::note_connects;
use crate::runtime::ends_process::EndsProcess;
use crate::runtime::here::set_here;
use crate::runtime::mailbox::Message;
use crate::runtime::poller::Poller;
use crate::runtime::session_metrics::NamespaceCounts;
use crate::runtime::shard_handle::{Runnable, ShardHandle};

/// How many sockets are served in one turn.
const EVENTS_MAX: usize = 256;
/// How many writes to sockets one turn does. They take about 150 µs, for which other tasks of the thread may wait.
const WRITES_MAX: usize = 32;
/// A publication reaches this many subscribers in less time than it takes to wake the threads of their shards.
const SMALL_AUDIENCE: u32 = 16;
/// How many inline runs of other shards one turn does. Beyond them, the shards' own threads are woken, so that a turn
/// stays short.
const INLINE_RUNS_PER_TURN_MAX: usize = 32;
/// How many bytes of replies one turn makes; then the rest of the mailbox waits for the next turn.
const MADE_MAX: usize = 4 * 1024 * 1024;
// A turn has room for the answers of many connections.
const _: () = assert!(16 * ANSWERS_AHEAD <= MADE_MAX);
/// How many deliveries may be noted and not yet written; above it, the mailbox must wait.
const NOTES_MAX: usize = 2_000_000;

/// Takes the shard out of its handle when the shard's thread ends, even by a panic. The shard owns the node, and the
/// node owns the handle.
struct Installed<'h>(&'h ShardHandle);

impl Drop for Installed<'_> {
    fn drop(&mut self) {
        if let Some(shard) = self.0.clear()
            && !std::thread::panicking()
        {
            shard.finish();
        }
    }
}

impl Runnable for Shard {
    fn turn(&mut self, events: &mio::Events, is_tick_due: bool) -> bool {
        let _ends = EndsProcess::of("shard");
        self.begin_turn();
        self.follow_generation();
        for event in events {
            self.serve_socket(event);
        }
        self.serve_unread();
        self.accept();
        self.serve_mailbox();
        if self.drain.is_some() {
            self.drain_some();
        }
        self.continue_sweep();
        self.continue_commands();
        self.continue_audience();
        if is_tick_due || self.has_work() && self.is_behind_ticks() {
            self.tick();
        }
        self.write_due(WRITES_MAX);
        self.relieve();
        self.has_work()
    }

    fn run_inline(&mut self) -> bool {
        let _ends = EndsProcess::of("shard");
        self.begin_turn();
        self.serve_mailbox();
        self.write_due(WRITES_MAX);
        self.relieve();
        self.has_work()
    }

    fn finish(mut self: Box<Self>) {
        self.send_reactions();
        let now_ms = self.now_ms;
        if let Some((minute_stats, mut audience)) = self.minute_stats() {
            minute_stats.finish(now_ms, &mut audience);
        }
    }
}

impl Shard {
    /// Runs turns on the shard's own thread until the node has stopped.
    pub(crate) async fn run(self, mut poller: Poller) {
        let node = Arc::clone(&self.node);
        let handle = &node.shards[usize::from(self.id)];
        set_here(self.id);
        handle.install(Box::new(self));
        let _installed = Installed(handle);
        let mut events = mio::Events::with_capacity(EVENTS_MAX);
        // real time: a heartbeat that reads the node's clock.
        let mut ticks = tokio::time::interval(Duration::from_millis(TICK_MS));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut is_tick_due = false;
        let mut has_work = true;
        while !node.is_stopped.load(Relaxed) {
            if has_work {
                tokio::task::yield_now().await;
            } else {
                tokio::select! {
                    biased;
                    _ = ticks.tick() => is_tick_due = true,
                    () = poller.ready() => {}
                    () = handle.woken() => {}
                }
            }
            let mut turn = |shard: &mut dyn Runnable| {
                poller.poll(&mut events, EVENTS_MAX);
                let has_work = shard.turn(&events, std::mem::take(&mut is_tick_due));
                events.clear();
                has_work
            };
            has_work = loop {
                match handle.run(&mut turn) {
                    Some(has_work) => break has_work,
                    None => handle.woken().await,
                }
            };
        }
    }

    /// Whether more work is due at once.
    fn has_work(&self) -> bool {
        !self.outbox.is_empty()
            || !self.taken.is_empty()
            || !self.unread.is_empty()
            || !self.sliced.is_empty()
            || self.has_ready_listener()
            || self.ban_sweep.next.is_some()
            || self.stepwise.commands.is_due()
            || self.stepwise.audience_counts.is_any()
    }

    fn begin_turn(&mut self) {
        self.now_us = self.node.clock.elapsed_us();
        self.now_ms = self.node.clock.unix_ms(self.now_us);
        self.inline_runs_left = INLINE_RUNS_PER_TURN_MAX;
        self.made = 0;
        self.stepwise.commands.begin_turn();
    }

    fn serve_mailbox(&mut self) {
        let mut fresh = self.taken.len();
        while self.taken.len() < MESSAGES_MAX && self.outbox.notes() < NOTES_MAX {
            let Ok(message) = self.mailbox.try_recv() else { break };
            self.taken.push_back(message);
        }
        fresh = self.taken.len() - fresh;
        self.node.shards[usize::from(self.id)].note_received(self.taken.iter().rev().take(fresh));
        // Large replies are written before more of them are made.
        while self.made < MADE_MAX
            && let Some(message) = self.taken.pop_front()
        {
            self.serve_message(message);
        }
    }

    /// Whether a tick is due. A busy shard never waits for its ticker, so it checks the clock.
    fn is_behind_ticks(&self) -> bool {
        self.wheel.is_behind(self.now_ms)
    }

    fn serve_socket(&mut self, event: &Event) {
        let token = event.token();
        if is_listener(token) {
            return self.acceptor.on_ready(token);
        }
        if is_pending(token) {
            return self.read_pending(token);
        }
        let slot = token.0 as u32;
        if event.is_writable() {
            self.guarded(slot, Shard::flush_writable);
        }
        if event.is_read_closed() && (self.has_left_waiting(slot) || self.is_lingering(slot)) {
            return self.guarded(slot, Shard::remove);
        }
        if event.is_readable() || event.is_read_closed() || event.is_error() {
            self.read(slot, event.is_read_closed() || event.is_error());
        }
    }

    fn serve_message(&mut self, message: Message) {
        match message {
            Message::Request { channel, request, reply_to } => {
                self.submit(&channel, request.into(), reply_to);
                self.run_backend_commands();
            }
            Message::Backend { channel, event } => {
                self.channels.apply(&channel, event, self.now_ms);
                self.run_backend_commands();
            }
            Message::SessionReply { connection, ticket, response } => self.guarded(connection.slot, |shard, slot| {
                if shard.connections.is_current(connection) {
                    shard.give_reply(slot, ticket, response);
                }
            }),
            Message::HookAnswer { connection, serial, outcome } => self.guarded(connection.slot, |shard, slot| {
                if shard.connections.is_current(connection) {
                    shard.give_hook_answer(slot, serial, *outcome);
                }
            }),
            Message::OperationReply { reply, response } => {
                let _ = reply.send(response);
            }
            Message::Delivery { delivery, accepted_us } => deliver::note(self, &delivery, accepted_us),
            Message::Judge(users) => self.judge_users(&users),
            Message::JudgeAll => self.judge_all(),
            Message::Generation { generation, taken } => self.take_generation(generation, taken),
            Message::Linked(is_linked) => {
                self.channels.set_linked(is_linked, self.now_ms);
                self.run_backend_commands();
            }
            Message::CatchUp => {
                self.channels.catch_up();
                self.run_backend_commands();
            }
            Message::Advanced(namespace) => {
                self.channels.check_namespace(&namespace);
                self.run_backend_commands();
            }
            Message::Broadcast { message, reply } => self.services.run_broadcast(&self.node, message, reply),
            Message::Operate { operation, params, reply } => {
                self.services.run_operation(&self.node, operation, params, reply);
            }
            Message::Start(work) => work(),
            Message::Adopt(connection) => self.adopt(*connection),
            Message::Introduced { socket, remote, side, is_for_lines } => {
                self.serve_introduced(socket, remote, side, is_for_lines)
            }
            Message::Command(command) => self.run_command(*command),
            Message::CountAudience(question) => self.begin_audience(*question),
            Message::Client { owner, slot, command } => {
                self.guarded(slot, |shard, slot| shard.run_client_command(owner, slot, command))
            }
            Message::PushMany { clients, push } => deliver::push_many(self, &clients, &push),
            Message::ReactionsOpen(channel, open) => self.set_open_reactions(channel, open.map(|open| *open)),
            Message::ShowReactions(shown) => self.show_reactions(shown),
            Message::TellAgain(life) => self.telling.begin(life),
            Message::Inspect(inspection) => self.inspect(inspection),
            Message::Probe(done) => self.probe(done),
            Message::MakeRoom { closes, from } => self.make_room_for(from, closes),
            Message::RoomIsMade => self.retry_accepts(),
            Message::Drain { patience_ms, done } => {
                let slots: Vec<u32> = self.connections.slots().collect();
                let clients = slots.len();
                let patient_until_us = self.now_us.saturating_add(patience_ms * 1_000);
                self.stepwise.commands.end_paced();
                self.drain = Some(Drain { slots, clients, patient_until_us, done: Some(done) });
            }
        }
    }

    /// The counters of a channel's namespace.
    pub(super) fn namespace_counts(&self, channel: &str) -> Option<&Arc<NamespaceCounts>> {
        self.namespaces.get(self.generation.session.namespaces.index_of(channel))
    }

    /// Counts a publication. `bytes`: the size of its data.
    pub(super) fn count_publication(&mut self, channel: &str, bytes: usize) {
        let counts = self.namespace_counts(channel);
        counts.inspect(|counts| counts.published(bytes));
        if let Some(minute_stats) = &mut self.minute_stats {
            minute_stats.published(self.generation.session.namespaces.namespace_of(channel));
        }
    }

    pub(super) fn send_deliveries(&mut self) {
        let accepted_us = self.now_us;
        for (shard, delivery) in self.channels.deliveries() {
            let runs_inline = delivery.subscriber_count <= SMALL_AUDIENCE && take_one(&mut self.inline_runs_left);
            let message = Message::Delivery { delivery, accepted_us };
            if runs_inline { self.node.run_inline(shard, message) } else { self.node.send(shard, message) }
        }
    }

    fn tick(&mut self) {
        if self.id == 0 {
            self.node.clock.follow(self.now_us);
            self.generation.session.bans.expire(self.now_ms / 1_000);
        }
        let mut due = std::mem::take(&mut self.due);
        self.wheel.advance(self.now_ms, &mut due);
        for (slot, booked_ms) in due.drain(..) {
            self.guarded(slot, |shard, slot| shard.tick_connection(slot, booked_ms));
        }
        self.due = due;
        self.drop_overdue();
        self.send_reactions();
        self.tell_held();
        self.tell_again();
        self.channels.expire(self.now_ms);
        self.run_backend_commands();
        self.metrics.channels.set(self.channels.len() as u64);
        self.metrics.publications_waiting.set(self.outbox.frames() as u64);
        self.publish_unauthenticated();
        self.forget_settled();
        self.check_drain();
        if self.id == 0 {
            note_connects(&self.node, self.now_us);
        }
        self.continue_probe();
        self.begin_sweep();
        self.continue_review();
        self.stepwise.commands.tick();
        self.relieve_http();
        self.tick_seen();
        let now_ms = self.now_ms;
        if let Some((minute_stats, mut audience)) = self.minute_stats() {
            minute_stats.tick(now_ms, &mut audience);
        }
    }
}
