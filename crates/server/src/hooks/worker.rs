//! The thread that asks backends. It has a queue for each backend, limits the calls under way, and sends answers to
//! shards.

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::MissedTickBehavior;
use touchline_clock::Clock;
use touchline_engine::directory::client_text;
use touchline_engine::hook::{
    ConflictClaim, HookCall, HookKind, HookOutcome, HookRequest, HookResult, HooksSettings, SubscribeAnswer,
};
use touchline_registry::OwnerId;

use super::breaker::Breaker;
use super::cache::{Advice, AnswerCache, Question};
use super::endpoint::{Backend, Endpoint, Endpoints};
#[cfg(feature = "grpc")]
use super::grpc_request;
use super::handler::HookClient;
use super::queue::{CallKey, CallQueue};
use super::request::{Asked, ask, emulated, forwarded};
use crate::node::Node;
use crate::runtime::ends_process::start_owner;
use crate::runtime::hook_mailbox::{Asker, HookJob, HookMailbox, HookMessage, NameConflict};
use crate::runtime::hook_metrics::CallOutcome;
use crate::runtime::registry_mailbox::RegistryMessage;
use crate::traces::{Span, TRACEPARENT, TracedPart};

/// The most messages that are handled before answers are handled again.
const MESSAGES: usize = 256;
/// How often the thread looks for calls that have waited too long.
const TICK: Duration = Duration::from_millis(100);
/// The time between two groups of log lines about one backend, in milliseconds.
const LOG_INTERVAL_MS: u64 = 60_000;

/// The most different faults of a backend that are logged in that time.
const LOGGED_MAX: usize = 8;

/// Finds the user of a client on any node; None = no node has reported the client.
pub(crate) type FindUser = fn(Arc<Node>, OwnerId) -> Pin<Box<dyn Future<Output = Option<Box<str>>>>>;

/// What the thread needs at its start.
pub(crate) struct WorkerStart {
    pub(crate) endpoints: Endpoints,
    pub(crate) settings: HooksSettings,
    /// Half of the time in which a backend decides about a contested name.
    pub(crate) conflict_wait: Duration,
    pub(crate) mailbox: Arc<HookMailbox>,
    pub(crate) find_user: FindUser,
    pub(crate) messages: UnboundedReceiver<HookMessage>,
}

/// Starts the thread that asks backends.
///
/// # Errors
/// When the system cannot start a thread or a runtime.
pub(crate) fn start(node: Arc<Node>, start: WorkerStart) -> io::Result<JoinHandle<()>> {
    start_owner("hooks", move || {
        // The runtime must not leave its thread.
        match Builder::new_current_thread().enable_all().build_local(LocalOptions::default()) {
            Ok(runtime) => {
                runtime.block_on(async {
                    let (worker, messages) = HookWorker::new(node, start);
                    worker.run(messages).await;
                });
                // The shutdown does not wait for name lookups of the system.
                runtime.shutdown_background();
            }
            Err(error) => tracing::error!(%error, "the system cannot start the runtime of hooks: every hook fails"),
        }
    })
}

/// A call that has not begun.
struct Waiting {
    job: Box<HookJob>,
    endpoint: usize,
    /// The number of its arrival, and the time of its arrival in Unix milliseconds.
    arrival: u64,
    since_ms: u64,
    /// The question that decides which cached answers apply; None = no cached answer applies.
    question: Option<Question>,
    /// Other calls about its channel wait for its answer.
    is_first: bool,
    /// The call has waited for the answer to another call.
    has_waited: bool,
}

impl Waiting {
    fn key(&self) -> CallKey {
        (self.job.asker, self.job.call.serial)
    }
}

/// A call that is under way.
struct RunningCall {
    key: CallKey,
    kind: HookKind,
    endpoint: usize,
    size: usize,
    started_us: u64,
    question: Option<Question>,
    user: Box<str>,
    is_first: bool,
    /// Nothing that its answer could restore was forgotten since it began.
    may_hold: bool,
}

/// The state of a call.
enum CallState {
    /// The call is in the queue of its backend, or behind an equal question.
    Waiting(Box<Waiting>),
    /// The backend has the call.
    Running,
}

/// The thread's state of one backend.
#[derive(Default)]
struct BackendState {
    queue: CallQueue,
    under_way: usize,
    breaker: Breaker,
    /// The time of the first log line in this interval in Unix milliseconds, the faults logged since then, and how many
    /// other calls failed.
    logged_ms: u64,
    logged: Vec<String>,
    unlogged: u64,
}

struct HookWorker {
    node: Arc<Node>,
    mailbox: Arc<HookMailbox>,
    settings: HooksSettings,
    conflict_wait: Duration,
    find_user: FindUser,
    /// Conflicts of names whose users are being looked up, or that a backend is deciding, by the number of the call.
    conflicts: HashMap<u32, NameConflict>,
    last_conflict: u32,
    last_arrival: u64,
    finding: JoinSet<HookJob>,
    endpoints: Arc<Endpoints>,
    backends: Vec<BackendState>,
    tasks: JoinSet<Asked>,
    running: HashMap<Id, RunningCall>,
    calls: HashMap<CallKey, CallState>,
    cache: AnswerCache,
    /// The backend whose queue is served next.
    next: usize,
    calls_max: usize,
    /// The most calls to one backend at the same time.
    share: usize,
}

impl HookWorker {
    fn new(node: Arc<Node>, start: WorkerStart) -> (Self, UnboundedReceiver<HookMessage>) {
        let WorkerStart { endpoints, settings, conflict_wait, mailbox, find_user, messages } = start;
        let calls_max = settings.calls_max;
        let share = if endpoints.all.len() > 1 { calls_max.div_ceil(4) * 3 } else { calls_max };
        let worker = HookWorker {
            backends: endpoints.all.iter().map(|_| BackendState::default()).collect(),
            endpoints: Arc::new(endpoints),
            tasks: JoinSet::new(),
            running: HashMap::new(),
            calls: HashMap::new(),
            cache: AnswerCache::new(settings.cache_max_entries, settings.cache_max_size),
            next: 0,
            calls_max,
            share: share.clamp(1, calls_max),
            find_user,
            conflicts: HashMap::new(),
            last_conflict: 0,
            last_arrival: 0,
            finding: JoinSet::new(),
            mailbox,
            settings,
            conflict_wait,
            node,
        };
        (worker, messages)
    }

    async fn run(mut self, mut messages: UnboundedReceiver<HookMessage>) {
        // real time: a heartbeat that reads the node's clock.
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut is_last = false;
        while !is_last || !self.calls.is_empty() || !self.finding.is_empty() {
            tokio::select! {
                Some(ended) = self.tasks.join_next_with_id(), if !self.tasks.is_empty() => {
                    self.handle_end(ended);
                    // Calls that ended in the meantime wake the shards only once.
                    for _ in 1..MESSAGES {
                        let Some(ended) = self.tasks.try_join_next_with_id() else { break };
                        self.handle_end(ended);
                    }
                }
                Some(found) = self.finding.join_next(), if !self.finding.is_empty() => {
                    if let Ok(job) = found {
                        self.enter(Box::new(job));
                    }
                }
                message = messages.recv() => {
                    let rest = std::iter::from_fn(|| messages.try_recv().ok()).take(MESSAGES);
                    for message in message.into_iter().chain(rest) {
                        match message {
                            HookMessage::Stop => return,
                            HookMessage::Finish => is_last = true,
                            message => self.handle(message),
                        }
                    }
                }
                _ = ticks.tick(), if self.has_queue() => self.drop_overdue(),
            }
            self.begin_calls();
            self.node.wake();
            self.mailbox.metrics.under_way.set(self.running.len() as u64);
        }
    }

    /// Whether calls wait for any backend.
    fn has_queue(&self) -> bool {
        self.backends.iter().any(|backend| !backend.queue.is_empty())
    }

    fn handle(&mut self, message: HookMessage) {
        match message {
            HookMessage::Call(job) => self.enter(job),
            HookMessage::Conflict(conflict) => self.find_users(*conflict),
            HookMessage::Cancel { connection, serial } => {
                self.cancel((Asker::Session(connection), serial));
            }
            HookMessage::Forget { user, channel, is_shared } => {
                self.cache.forget(&user, channel.as_deref(), is_shared);
                for call in self.running.values_mut() {
                    let Some(question) = &call.question else { continue };
                    let is_channel = channel.as_ref().is_none_or(|channel| question.channel == *channel);
                    let is_touched = is_channel && (is_shared || call.user == user);
                    call.may_hold &= !is_touched;
                }
            }
            HookMessage::Stop | HookMessage::Finish => {}
        }
    }

    fn enter(&mut self, job: Box<HookJob>) {
        let since_ms = self.node.clock.now_ms();
        let endpoint = self.endpoints.find(&job.call.request);
        self.last_arrival += 1;
        let waiting = Waiting {
            job,
            endpoint: endpoint.unwrap_or_default(),
            arrival: self.last_arrival,
            since_ms,
            question: None,
            is_first: false,
            has_waited: false,
        };
        match endpoint {
            None => self.finish_waiting(waiting, HookOutcome::Failed, CallOutcome::Failed),
            Some(endpoint) if self.has_too_many(endpoint) => {
                self.finish_waiting(waiting, HookOutcome::Busy, CallOutcome::Busy);
            }
            Some(_) => self.admit(waiting),
        }
    }

    /// Whether this backend, one of several, has so many waiting calls that calls to the others would find no place.
    fn has_too_many(&self, endpoint: usize) -> bool {
        let limit = self.settings.queue_max_entries;
        self.backends.len() > 1 && self.backends[endpoint].queue.len() > limit.div_ceil(4) * 3
    }

    /// Cancels a call. A waiting call is dropped. A call that its backend has keeps its place until it ends. So a
    /// client that leaves cannot make a backend do more than `hooks.calls_max`.
    fn cancel(&mut self, key: CallKey) {
        let Some(CallState::Waiting(waiting)) = self.calls.remove(&key) else { return };
        let calls = &self.calls;
        self.backends[waiting.endpoint].queue.cancel(waiting.arrival, |key| calls.contains_key(key));
        self.finish_waiting(*waiting, HookOutcome::Failed, CallOutcome::Cancelled);
    }

    /// Finds the users of two claims, then asks the backend. A user that is not found in half of the time is left out.
    fn find_users(&mut self, conflict: NameConflict) {
        self.last_conflict = self.last_conflict.wrapping_add(1);
        let (serial, node, find) = (self.last_conflict, Arc::clone(&self.node), self.find_user);
        let (scope, name) = (Box::from(&*conflict.scope), Box::from(conflict.mine.key()));
        let claims = [conflict.mine.clone(), conflict.other.clone()];
        let counted = conflict.size();
        self.conflicts.insert(serial, conflict);
        let limit = self.conflict_wait;
        self.finding.spawn_local(async move {
            let user = |owner| node.clock.time().timeout(limit, find(Arc::clone(&node), owner));
            let users = tokio::join!(user(claims[0].owner()), user(claims[1].owner()));
            let users = [users.0.ok().flatten(), users.1.ok().flatten()];
            let mut users = users.into_iter();
            let claims = claims.map(|claim| ConflictClaim {
                client: client_text(claim.owner()).into(),
                user: users.next().flatten(),
                node: Arc::clone(claim.node()),
                meta: Bytes::copy_from_slice(claim.meta()),
                time_ms: claim.stamp().millis(),
            });
            let request = HookRequest::Conflict { scope, name, claims };
            let (user, meta, labels, emulated_headers) = Default::default();
            let call = HookCall { serial, user, meta, labels, emulated_headers, request };
            let (transport, protocol, forwarded) = ("", "", None);
            let (asker, client) = (Asker::Registry, OwnerId([0; 16]));
            HookJob { asker, client, transport, protocol, call, forwarded, counted }
        });
    }

    /// Sends an outcome to the asker.
    fn deliver(&mut self, (asker, serial): CallKey, outcome: HookOutcome) {
        match asker {
            Asker::Session(connection) => self.node.enqueue_hook_answer(connection, serial, outcome),
            Asker::Registry => {
                let Some(NameConflict { scope, mine, other }) = self.conflicts.remove(&serial) else { return };
                let (of_mine, of_other) = (client_text(mine.owner()), client_text(other.owner()));
                let keeps_mine = match outcome {
                    HookOutcome::Result(HookResult::Conflict(keep)) if *keep == *of_mine => Some(true),
                    HookOutcome::Result(HookResult::Conflict(keep)) if *keep == *of_other => Some(false),
                    _ => None,
                };
                let name = mine.key().into();
                self.node.send_to_registry(RegistryMessage::ConflictResolved { scope, name, keeps_mine });
            }
        }
    }

    /// Answers a call from the cache, or puts it into the queue of its backend.
    fn admit(&mut self, mut waiting: Waiting) {
        let endpoint = waiting.endpoint;
        let key = waiting.key();
        if waiting.job.call.request.kind() == HookKind::Subscribe {
            let question = question(&self.endpoints.all[endpoint], endpoint, &waiting.job);
            let user = &waiting.job.call.user;
            let advice = self.cache.advise(&question, user, waiting.has_waited, self.node.clock.now_ms());
            match advice {
                Advice::Answer(answer) => {
                    let outcome = HookOutcome::Result(HookResult::Subscribe(answer));
                    return self.finish_waiting(waiting, outcome, CallOutcome::Cached);
                }
                Advice::Wait => {
                    self.backends[endpoint].queue.push_behind(question, key);
                    self.calls.insert(key, CallState::Waiting(Box::new(waiting)));
                    return;
                }
                Advice::AskFirst => waiting.is_first = true,
                Advice::Ask => {}
            }
            waiting.question = Some(question);
        }
        self.backends[endpoint].queue.push(waiting.arrival, key);
        self.calls.insert(key, CallState::Waiting(Box::new(waiting)));
    }

    /// Takes a waiting call; None = the call does not wait.
    fn take_waiting(&mut self, key: CallKey) -> Option<Waiting> {
        match self.calls.remove(&key) {
            Some(CallState::Waiting(waiting)) => Some(*waiting),
            _ => None,
        }
    }

    /// Begins calls backend by backend, up to the limits.
    fn begin_calls(&mut self) {
        let mut idle = 0;
        while self.running.len() < self.calls_max && idle < self.backends.len() {
            let endpoint = self.next;
            self.next = (self.next + 1) % self.backends.len();
            let backend = &mut self.backends[endpoint];
            match if backend.under_way < self.share { backend.queue.pop() } else { None } {
                Some(key) => {
                    idle = 0;
                    if let Some(waiting) = self.take_waiting(key) {
                        self.begin_call(endpoint, waiting);
                    }
                }
                None => idle += 1,
            }
        }
    }

    fn begin_call(&mut self, endpoint: usize, waiting: Waiting) {
        let now_ms = self.node.clock.now_ms();
        if !self.backends[endpoint].breaker.allows(now_ms) {
            return self.finish_waiting(waiting, HookOutcome::Failed, CallOutcome::Open);
        }
        let (key, size, kind) = (waiting.key(), waiting.job.counted, waiting.job.call.request.kind());
        let user = waiting.job.call.user.clone();
        let answer_max = self.settings.answer_size_max;
        let clock = self.node.clock.time().clone();
        // Boxed on its own: a task is aligned, and a task of more than a kilobyte is expensive to allocate.
        let asking = Box::pin(ask_in_time((clock, Arc::clone(&self.endpoints), endpoint), waiting.job, answer_max));
        let task = self.tasks.spawn(asking);
        self.backends[endpoint].under_way += 1;
        let running = RunningCall {
            key,
            kind,
            endpoint,
            size,
            started_us: self.node.clock.elapsed_us(),
            question: waiting.question,
            user,
            is_first: waiting.is_first,
            may_hold: true,
        };
        self.running.insert(task.id(), running);
        self.calls.insert(key, CallState::Running);
    }

    /// Handles a call that has its answer, was cancelled, or whose handler has panicked.
    fn handle_end(&mut self, ended: Result<(Id, Asked), JoinError>) {
        let (id, asked) = match ended {
            Ok((id, asked)) => (id, Some(asked)),
            Err(error) if error.is_cancelled() => (error.id(), None),
            Err(error) => (error.id(), Some(Asked::failed("the handler has panicked".into(), false))),
        };
        let Some(call) = self.running.remove(&id) else { return };
        self.backends[call.endpoint].under_way -= 1;
        let is_wanted = self.calls.remove(&call.key).is_some();
        let now_ms = self.node.clock.now_ms();
        let Some(Asked { outcome, fault, is_outage }) = asked else {
            self.count(call.kind, CallOutcome::Cancelled, call.size);
            return self.note_answer(call, None, now_ms);
        };
        self.backends[call.endpoint].breaker.note(is_outage, now_ms);
        if let Some(fault) = &fault {
            self.log_fault(call.endpoint, call.kind, fault, now_ms);
        }
        let is_open = self.backends[call.endpoint].breaker.is_open();
        let metrics = &self.mailbox.metrics;
        metrics.observe_us(call.kind, self.node.clock.elapsed_us() - call.started_us);
        if metrics.endpoints[call.endpoint].1.swap(is_open, Relaxed) != is_open {
            let hook = &self.endpoints.all[call.endpoint].name;
            if is_open {
                tracing::warn!(hook, "the backend is not asked for a moment: too many calls have failed");
            } else {
                tracing::info!(hook, "the backend is asked again");
            }
        }
        let counted = match &outcome {
            _ if !is_wanted => CallOutcome::Cancelled,
            HookOutcome::Result(_) | HookOutcome::Empty => CallOutcome::Answered,
            HookOutcome::Error(_) | HookOutcome::Disconnect(_) | HookOutcome::Refused(_) => CallOutcome::Refused,
            HookOutcome::Failed | HookOutcome::Busy => CallOutcome::Failed,
        };
        self.count(call.kind, counted, call.size);
        let answer = match &outcome {
            HookOutcome::Result(HookResult::Subscribe(answer)) => Some(answer.clone()),
            HookOutcome::Failed | HookOutcome::Busy => None,
            _ => Some(SubscribeAnswer::default()),
        };
        if is_wanted {
            self.deliver(call.key, outcome);
        }
        self.note_answer(call, answer, now_ms);
    }

    /// Caches an answer if it allows that, and continues the calls that waited for it.
    fn note_answer(&mut self, call: RunningCall, answer: Option<SubscribeAnswer>, now_ms: u64) {
        let Some(question) = call.question else { return };
        let asked = question.clone();
        self.cache.note(question, &call.user, answer.as_ref(), (call.may_hold, call.is_first), now_ms);
        if call.is_first {
            self.release(call.endpoint, &asked);
        }
    }

    fn release(&mut self, endpoint: usize, asked: &Question) {
        let calls = &self.calls;
        for key in self.backends[endpoint].queue.take_behind(asked, |key| calls.contains_key(key)) {
            if let Some(waiting) = self.take_waiting(key) {
                self.admit(Waiting { has_waited: true, ..waiting });
            }
        }
    }

    /// Ends a call that has not begun.
    fn finish_waiting(&mut self, waiting: Waiting, outcome: HookOutcome, counted: CallOutcome) {
        self.count(waiting.job.call.request.kind(), counted, waiting.job.counted);
        if counted != CallOutcome::Cancelled {
            self.deliver(waiting.key(), outcome);
        }
        if let (true, Some(question)) = (waiting.is_first, waiting.question) {
            let (endpoint, asked) = (question.endpoint, question.clone());
            self.cache.note(question, &waiting.job.call.user, None, (false, true), self.node.clock.now_ms());
            self.release(endpoint, &asked);
        }
    }

    /// Ends the calls that have waited too long.
    fn drop_overdue(&mut self) {
        let limit_ms = self.settings.queue_timeout.as_millis() as u64;
        let before_ms = self.node.clock.now_ms().saturating_sub(limit_ms);
        for endpoint in 0..self.backends.len() {
            let calls = &self.calls;
            let since = |key: &CallKey| match calls.get(key) {
                Some(CallState::Waiting(waiting)) => Some(waiting.since_ms),
                _ => None,
            };
            for key in self.backends[endpoint].queue.take_older(before_ms, since) {
                if let Some(waiting) = self.take_waiting(key) {
                    self.finish_waiting(waiting, HookOutcome::Busy, CallOutcome::Busy);
                }
            }
        }
    }

    fn count(&self, kind: HookKind, outcome: CallOutcome, size: usize) {
        self.mailbox.metrics.count(kind, outcome);
        self.mailbox.end(size);
    }

    /// Logs a fault. Each minute the first few different faults of a backend have a line each.
    fn log_fault(&mut self, endpoint: usize, kind: HookKind, fault: &str, now_ms: u64) {
        let backend = &mut self.backends[endpoint];
        if now_ms.abs_diff(backend.logged_ms) >= LOG_INTERVAL_MS {
            backend.logged_ms = now_ms;
            backend.logged.clear();
        }
        if backend.logged.len() >= LOGGED_MAX || backend.logged.iter().any(|logged| logged == fault) {
            backend.unlogged += 1;
            return;
        }
        backend.logged.push(fault.to_owned());
        let more = std::mem::take(&mut backend.unlogged);
        let of = &self.endpoints.all[endpoint];
        let address = match &of.backend {
            Backend::Http(http) => http.shown_address(),
            #[cfg(feature = "grpc")]
            Backend::Grpc(grpc) => grpc.shown_address(),
            Backend::Handler(_) => "a handler of this program".into(),
        };
        tracing::warn!(hook = of.name, kind = kind.name(), address, fault, more, "a hook has failed");
    }
}

/// Asks a backend within the timeout of the hook.
async fn ask_in_time(of: (Clock, Arc<Endpoints>, usize), job: Box<HookJob>, answer_max: usize) -> Asked {
    let (clock, endpoints, endpoint) = of;
    let (endpoint, caps) = (&endpoints.all[endpoint], &endpoints.caps);
    let kind = job.call.request.kind();
    let parent = forwarded(endpoint, &job).find(|(name, _)| name.as_str() == TRACEPARENT);
    let parent = parent.and_then(|(_, value)| value.to_str().ok());
    let mut span = Span::begin(TracedPart::Hooks, || format!("hook {}", kind.name()), parent);
    span.note("touchline.hook", || endpoint.name.clone());
    let answer = async {
        match &endpoint.backend {
            Backend::Http(backend) => ask(endpoint, backend, (&job, &span), caps, answer_max).await,
            #[cfg(feature = "grpc")]
            Backend::Grpc(backend) => grpc_request::ask(endpoint, backend, (&job, &span), caps, answer_max).await,
            Backend::Handler(handler) => {
                let HookJob { client, transport, protocol, call, .. } = *job;
                let client = HookClient { id: client_text(client), transport, protocol };
                Asked::read(kind, handler.answer(client, call).await.json().as_bytes(), caps)
            }
        }
    };
    let asked = match clock.timeout(endpoint.timeout, answer).await {
        Ok(asked) => asked,
        Err(_) => Asked::failed(format!("no answer within {:?}", endpoint.timeout), true),
    };
    if let Some(fault) = &asked.fault {
        span.fail(|| fault.clone());
    }
    asked
}

/// Returns the question of a subscribe, without its user.
fn question(endpoint: &Endpoint, number: usize, job: &HookJob) -> Question {
    let call = &job.call;
    let mut told: Vec<Bytes> = Vec::new();
    told.extend(call.labels.iter().map(|labels| [b"labels ", &labels[..]].concat().into()));
    let meta = call.meta.iter().filter(|_| endpoint.includes_meta);
    told.extend(meta.map(|meta| [b"meta ", &meta[..]].concat().into()));
    for (name, value) in emulated(endpoint, job) {
        told.push([b"emulated ", name.as_str().as_bytes(), b":", value.as_bytes()].concat().into());
    }
    for (name, value) in forwarded(endpoint, job) {
        told.push([b"header ", name.as_str().as_bytes(), b":", value.as_bytes()].concat().into());
    }
    Question {
        endpoint: number,
        channel: call.request.channel().unwrap_or_default().into(),
        data: call.request.data().cloned(),
        told,
    }
}
