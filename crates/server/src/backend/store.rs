//! Durable channels and the inbox: how the node opens its databases, sends requests to them, and forwards their events.

use std::sync::Arc;

use tokio::sync::oneshot;
use touchline_config::Settings;
use touchline_engine::Response;
use touchline_engine::channels::{DurablePublication, clearing};
use touchline_engine::directory::DroppedIds;
use touchline_engine::duration::millis;
use touchline_engine::events::EventKind;
use touchline_engine::request::{Appended, BackendEvent, Loaded};
use touchline_protocol::Error;
use touchline_protocol::encode::{self, ObjectWriter};
use touchline_protocol::stream::{ChannelName, LoadId, Offset, RunId, StreamPosition};
use touchline_store::stats::StatsOptions as StatsOpening;
use touchline_store::{
    Append, DroppedMessages, InboxDrop, InboxMessage, InboxPlace, OpenError, PrimaryOptions as Opening, RetentionOf,
    Store, StoreEvent, StoreRefusal, StoredHistory,
};

use super::facts::{self, FactBackend};
use crate::node::Node;
use crate::runtime::event_mailbox::EventMessage;
use crate::runtime::generation::NewestGeneration;
use crate::runtime::mailbox::Message;
use crate::runtime::registry_mailbox::RegistryMessage;
use crate::runtime::reply_to::ReplyTo;
use crate::start_error::StartError;
use crate::tls::read_pem;

/// How much longer rows of reactions are kept than the totals in memory, in milliseconds. Nodes forget at slightly
/// different times.
const REACTIONS_EXPIRE_LATER_MS: u64 = 120_000;

/// Returns the settings of the primary database; None = no feature needs it.
///
/// # Errors
/// When its address is not valid, or the file of authorities cannot be read.
pub(crate) fn opening(
    settings: &Settings,
    newest: &Arc<NewestGeneration>,
    id: &str,
) -> Result<Option<Opening>, StartError> {
    if !settings.needs_primary() {
        return Ok(None);
    }
    let store = &settings.store;
    let url = store.primary.url.parse();
    Ok(Some(Opening {
        store: store.clone(),
        url: url.map_err(|source| StartError::DatabaseAddress { database: "primary", source })?,
        tls_ca: read_pem("store.primary.tls_ca", &store.primary.tls_ca)?,
        notifier: id.to_owned(),
        retention: retention_of(Arc::clone(newest)),
        has_facts: FactBackend::of(settings) == FactBackend::Primary,
        // A node reads these rows when it starts, and forgets them at the same time as it forgets totals.
        reactions_expire_ms: millis(settings.reactions.ttl) + REACTIONS_EXPIRE_LATER_MS,
        seen_expires_s: match &settings.user_status {
            status if status.enabled => status.expire_interval.as_secs().max(1),
            _ => 0,
        },
    }))
}

fn retention_of(newest: Arc<NewestGeneration>) -> RetentionOf {
    Arc::new(move |channel| {
        let generation = newest.get();
        let options = generation.session.namespaces.resolve(channel).ok().filter(|options| options.durable)?;
        Some(options.retention())
    })
}

/// Opens the primary database, and stores it in the node.
///
/// # Errors
/// The errors of [`OpenError`].
pub(crate) fn open(node: &Arc<Node>, opening: &Opening) -> Result<(), OpenError> {
    // The node owns the store, so the store must not own the node.
    let of_node = Arc::downgrade(node);
    let sink = move |event| {
        if let Some(node) = of_node.upgrade() {
            handle(&node, event);
        }
    };
    node.set_store(Store::open(opening, sink)?);
    Ok(())
}

/// Returns the settings of the statistics database; None = the statistics are off.
///
/// # Errors
/// When its address is not valid, or the file of authorities cannot be read.
pub(crate) fn stats_opening(settings: &Settings) -> Result<Option<StatsOpening>, StartError> {
    let stats = &settings.store.stats;
    if !stats.enabled {
        return Ok(None);
    }
    Ok(Some(StatsOpening {
        stats: stats.clone(),
        url: stats.url.parse().map_err(|source| StartError::DatabaseAddress { database: "stats", source })?,
        tls_ca: read_pem("store.stats.tls_ca", &stats.tls_ca)?,
        migrates: settings.store.migrate,
    }))
}

/// Appends a publication to the log of a durable channel. The reply follows the commit. `taken`: called before the
/// reply, if the store has accepted the publication.
pub(crate) fn append(
    node: &Arc<Node>,
    channel: &ChannelName,
    publication: DurablePublication,
    reply_to: ReplyTo,
    taken: impl FnOnce() + Send + 'static,
) {
    let Some(store) = node.store() else { return };
    let of_node = Arc::clone(node);
    let done = move |result: Result<StreamPosition, StoreRefusal>| {
        let published = |at: StreamPosition| {
            taken();
            Response::Published(Some(at))
        };
        of_node.enqueue_reply(reply_to, result.map_or_else(|refusal| Response::Refused(refused(refusal)), published));
    };
    store.append(Append {
        channel: channel.clone(),
        payload: publication.payload.into(),
        time_ms: publication.time_ms,
        key: publication.idempotency_key,
        version: publication.version,
        version_epoch: publication.version_epoch,
        retention: publication.retention,
        done: Box::new(done),
    });
}

/// Removes the log of a durable channel.
pub(crate) fn remove(node: &Arc<Node>, channel: &ChannelName, reply_to: ReplyTo) {
    let Some(store) = node.store() else { return };
    let (of_node, of_channel) = (Arc::clone(node), channel.clone());
    let done = move |result: Result<(), StoreRefusal>| {
        if result.is_ok() {
            of_node.send_event(of_channel, BackendEvent::Ephemeral(clearing()));
        }
        of_node.reply(reply_to, result.map_or_else(|refusal| Response::Refused(refused(refusal)), |()| Response::Done));
    };
    store.remove(channel.clone(), Box::new(done));
}

/// Requests the log of a channel from the store.
pub(crate) fn load(node: &Node, channel: ChannelName, load: LoadId) {
    let generation = node.generation();
    let (Some(store), Ok(options)) = (node.store(), generation.session.namespaces.resolve(&channel)) else { return };
    store.load(channel, load, options.history_size, millis(options.history_meta_ttl));
}

/// Begins a new run of a channel, because the run `lost` has lost acknowledged publications. `first`: the first offset
/// of the new run.
pub(crate) fn begin_run(node: &Node, channel: ChannelName, lost: RunId, first: Offset) {
    if let Some(store) = node.store() {
        store.begin_run(channel, lost, first);
    }
}

/// Stores an inbox message. The reply contains its id and when it expires; None = no reply is wanted.
pub(crate) fn queue_message(node: &Arc<Node>, message: InboxMessage, reply_to: Option<ReplyTo>) {
    let Some(store) = node.store() else { return };
    let (of_node, expires_ms) = (Arc::clone(node), message.expires_ms);
    let done = move |result: Result<u64, StoreRefusal>| {
        let queued = |id: u64| {
            let mut out = Vec::with_capacity(64);
            let mut object = ObjectWriter::open(&mut out);
            encode::number(object.text("id", &id.to_string()).key("expires_at"), expires_ms);
            object.close();
            Response::Directory(out.into())
        };
        if let Some(reply_to) = reply_to {
            of_node.reply(reply_to, result.map_or_else(|refusal| Response::Refused(refused(refusal)), queued));
        }
    };
    store.queue_message(message, Box::new(done));
}

/// Discards inbox messages that have arrived. `reply_to`: None = no reply is wanted.
pub(crate) fn discard_messages(node: &Arc<Node>, ids: Vec<u64>, reply_to: Option<ReplyTo>) {
    let Some(store) = node.store() else { return };
    let (of_node, of_ids) = (Arc::clone(node), ids.clone());
    let done = move |result: Result<(), StoreRefusal>| {
        if result.is_ok() {
            of_node.send_to_registry(RegistryMessage::Discarded(of_ids));
        }
        if let Some(reply_to) = reply_to {
            let response = result.map_or_else(
                |refusal| Response::Refused(refused(refusal)),
                |()| Response::Directory(b"{}".to_vec().into()),
            );
            of_node.reply(reply_to, response);
        }
    };
    store.discard_messages(ids, Box::new(done));
}

/// Deletes messages of a name that were not acknowledged. `reply`: receives their number, once none of them can be
/// delivered any more. The effect on the delivery does not depend on whether the receiver of the reply still waits.
pub(crate) fn drop_messages(
    node: &Node,
    dropped: InboxDrop,
    reply: oneshot::Sender<Result<DroppedMessages, StoreRefusal>>,
) {
    let Some(store) = node.store() else { return };
    let (registry, InboxPlace { scope, name }) = (node.registry.clone(), dropped.place.clone());
    let (ids, until) = (dropped.ids.clone(), dropped.until);
    let done = move |result: Result<DroppedMessages, StoreRefusal>| match result {
        Ok(told) => {
            let dropped = ids.map_or(DroppedIds::UpTo(until.min(told.top)), DroppedIds::These);
            let then = Box::new(move || {
                let _ = reply.send(Ok(told));
            });
            // An actor that has ended delivers nothing.
            let _ = registry.send(RegistryMessage::Dropped { scope, name, dropped, then });
        }
        Err(refusal) => {
            let _ = reply.send(Err(refusal));
        }
    };
    store.drop_messages(dropped, Box::new(done));
}

/// Returns the error that a client receives for a refusal of the store.
pub(crate) fn refused(refusal: StoreRefusal) -> Error {
    match refusal {
        StoreRefusal::QueueFull | StoreRefusal::DatabaseFull => Error::TOO_MANY_REQUESTS,
        StoreRefusal::Failed => Error::STORE_UNAVAILABLE,
        StoreRefusal::InboxFull => Error::INBOX_FULL,
        StoreRefusal::NotFound => Error::CHANNEL_NOT_DESCRIBED,
        StoreRefusal::Invalid => Error::BAD_REQUEST,
    }
}

/// Forwards an event of the store to the shards or the registry.
fn handle(node: &Node, event: StoreEvent) {
    match event {
        StoreEvent::Advanced { channel, position } => node.send_event(channel, BackendEvent::Advanced(position)),
        StoreEvent::Cleared { channel } => node.send_event(channel, BackendEvent::Ephemeral(clearing())),
        StoreEvent::Facts(event) => facts::apply(node, event),
        StoreEvent::Missed => node.send_to_shards(|| Message::CatchUp),
        StoreEvent::MessagesExpired(messages) => {
            if let Some(events) = node.events.get().filter(|events| events.wants(EventKind::InboxExpired)) {
                events.tell(EventMessage::Expired(node.clock.now_ms(), messages));
            }
        }
        StoreEvent::MessageQueued { scope, name } => {
            node.send_to_registry(RegistryMessage::MessageQueued { scope, name })
        }
        StoreEvent::InboxMessages { scope, name, messages } => {
            node.send_to_registry(RegistryMessage::InboxMessages { scope, name, messages })
        }
        StoreEvent::Appended { channel, position, payload } => {
            let (offset, epoch) = (position.offset, Some(position.epoch));
            node.enqueue_event(
                channel,
                BackendEvent::Appended(Appended { offset, previous: offset.previous(), epoch, payload }),
            );
        }
        StoreEvent::BatchReported => node.wake(),
        StoreEvent::Loaded { channel, load, history } => {
            let loaded = history.map(|StoredHistory { epoch, top, floor, kept, runs }| {
                let kept = kept
                    .into_iter()
                    .map(|kept| (kept.offset, DurablePublication::payload(kept.time_ms, &kept.object)))
                    .collect();
                Box::new(Loaded {
                    epoch,
                    behind: load.behind,
                    number: load.number,
                    kept,
                    top,
                    floor,
                    is_aged: false,
                    runs,
                })
            });
            node.send_event(channel, BackendEvent::Loaded(loaded));
        }
    }
}
