//! The part of the asked node: it deletes the user's data from the databases of the cluster, in short steps.

use std::time::Duration;

use serde::Deserialize;
use touchline_engine::bans::Ban;
use touchline_engine::directory::OwnNames;
use touchline_protocol::Error;
use touchline_store::stats::{ErasedEvents, EventErasure};
use touchline_store::{DroppedMessages, InboxDrop, InboxNames, InboxPlace, InboxSearch};

use super::here::{silent_nodes, within};
use super::named_inbox::NamedInbox;
use super::place::{ForgetPlace, digest_of};
use super::reply::{ForgetUserReply, ForgetWork, RemainsOfUser, RemovedOfUser};
use crate::api::operation::{OperationError, RequestNode};
use crate::api::operations::dead_events;
use crate::api::operations::inbox::{DROP_STEP, ID_MAX, answering, asked};
use crate::backend::store::drop_messages;
use crate::runtime::event_mailbox::DeadRequest;

/// The most steps of one request; the next request does the rest.
const STEPS_MAX: usize = 64;
/// One request begins no further step after this time.
const STEPS_TIME: Duration = Duration::from_secs(8);
/// The most names that one step lists.
const NAMES_IN_STEP: usize = 1_000;
/// The most dead letters that one step reads.
const LETTERS_IN_STEP: u32 = 500;

/// Continues the work until it is done, or for as many steps as one request may take.
///
/// # Errors
/// 111 when too many requests are running, 4010 when a database does not answer. What was deleted stays deleted, and
/// the same request can be sent again.
pub(super) async fn forget_everywhere(
    node: RequestNode<'_>,
    reply: &mut ForgetUserReply,
) -> Result<(), OperationError> {
    let ForgetUserReply { work, removed, remains, .. } = reply;
    let inboxes = own_inboxes(node, work);
    // The inboxes that the request names are deleted, so they do not remain.
    remains.inboxes.retain(|inbox| !work.is_named(inbox));
    // If the patterns have changed since, it is unknown what was done, and the work starts from the beginning.
    let known = std::mem::replace(&mut work.inboxes, digest_of(&format!("{inboxes:?}"), &[]));
    let mut next = Some(if known == work.inboxes { work.from.clone() } else { ForgetPlace::default() });
    let until = node.clock.time().now() + STEPS_TIME;
    for _ in 0..STEPS_MAX {
        let Some(place) = next.take_if(|_| node.clock.time().now() < until) else { break };
        next = step(node, work, &inboxes, place, (removed, remains)).await?;
    }
    note_remains(node, &work.user, remains);
    // Includes the nodes that were lost in the meantime.
    reply.add_missing(silent_nodes(node));
    reply.end(next);
    let RemovedOfUser { connections, inbox_messages, dead_letters, stats_events, .. } = reply.removed;
    tracing::info!(
        target: "touchline::audit",
        what = "forget_user", done = reply.done, connections, inbox_messages, dead_letters, stats_events,
        "what is kept of a user was removed"
    );
    Ok(())
}

/// An inbox of the user, or inboxes that may be.
#[derive(Debug)]
enum OwnInbox {
    /// The inbox of one name, which belongs to the user.
    One(NamedInbox),
    /// Inboxes of names that may also belong to other users: they are listed.
    Shared(OwnNames),
}

/// Returns the inboxes of the user, in the order of cursors.
fn own_inboxes(node: RequestNode<'_>, work: &ForgetWork) -> Vec<OwnInbox> {
    if node.store().is_none() {
        return Vec::new();
    }
    let of_patterns = node.generation().session.scopes.own_names(&work.user);
    let of_patterns = of_patterns.into_iter().map(|names| match names.certain() {
        Some(name) => OwnInbox::One(NamedInbox { scope: names.scope, name: name.into() }),
        None => OwnInbox::Shared(names),
    });
    of_patterns.chain(work.names.iter().cloned().map(OwnInbox::One)).collect()
}

/// Does one step, and notes what it removes and what remains. Returns where the next step begins; None = all is done.
async fn step(
    node: RequestNode<'_>,
    work: &ForgetWork,
    inboxes: &[OwnInbox],
    place: ForgetPlace,
    (removed, remains): (&mut RemovedOfUser, &mut RemainsOfUser),
) -> Result<Option<ForgetPlace>, OperationError> {
    Ok(match place {
        ForgetPlace::Inboxes { index, behind } => Some(match inboxes.get(index) {
            Some(OwnInbox::One(inbox)) => match empty(node, inbox, removed).await? {
                true => ForgetPlace::inbox(index + 1),
                false => ForgetPlace::inbox(index),
            },
            Some(OwnInbox::Shared(names)) => match list_some(node, names, behind, (work, remains)).await? {
                Some(behind) => ForgetPlace::Inboxes { index, behind },
                None => ForgetPlace::inbox(index + 1),
            },
            None => ForgetPlace::DeadLetters { behind: 0 },
        }),
        ForgetPlace::DeadLetters { behind } => Some(match drop_letters(node, &work.user, behind, removed).await? {
            Some(behind) => ForgetPlace::DeadLetters { behind },
            None => ForgetPlace::StatsEvents { from: 0 },
        }),
        ForgetPlace::StatsEvents { from } => {
            let Some(stats) = node.stats() else { return Ok(None) };
            let erasure = EventErasure { user: work.user.clone(), from };
            let ErasedEvents { count, next } =
                within(node, asked(|reply| stats.erase(erasure, answering(reply)))).await?;
            removed.stats_events += count;
            next.map(|from| ForgetPlace::StatsEvents { from })
        }
    })
}

/// Deletes messages of a name, as many as one transaction may. Returns whether none is left.
async fn empty(node: RequestNode<'_>, inbox: &NamedInbox, removed: &mut RemovedOfUser) -> Result<bool, OperationError> {
    let place = InboxPlace { scope: inbox.scope.clone(), name: inbox.name.clone() };
    let dropped = InboxDrop { place, ids: None, until: ID_MAX, limit: DROP_STEP };
    let told: DroppedMessages = asked(|reply| drop_messages(&node, dropped, reply)).await?;
    removed.inbox_messages += told.count;
    Ok(told.count < DROP_STEP)
}

/// Lists some names of a pattern that follow `behind` and have waiting messages; they may also belong to other users.
/// Returns the name after which the next step begins; None = these were all names.
async fn list_some(
    node: RequestNode<'_>,
    names: &OwnNames,
    behind: Box<str>,
    (work, remains): (&ForgetWork, &mut RemainsOfUser),
) -> Result<Option<Box<str>>, OperationError> {
    let store = node.store().ok_or(Error::STORE_UNAVAILABLE)?;
    // No name is empty, so an empty text means the first place.
    let after = match &*behind {
        "" => InboxPlace::default(),
        _ => InboxPlace { scope: names.scope.clone(), name: behind },
    };
    let scope = Some(names.scope.clone());
    let search = InboxSearch { scope, prefix: names.prefix().into(), after, limit: NAMES_IN_STEP };
    let page: InboxNames = asked(|reply| store.inbox_names(search, answering(reply))).await?;
    for InboxPlace { scope, name } in page.names.into_iter().map(|found| found.place) {
        let inbox = NamedInbox { scope, name };
        if names.has(&inbox.name) && !work.is_named(&inbox) {
            remains.add_inbox(inbox);
        }
    }
    Ok(page.next.map(|place| place.name))
}

/// The fields of an event that name its user.
#[derive(Deserialize)]
struct EventOfUser<'a> {
    #[serde(borrow)]
    data: DataOfEvent<'a>,
}

#[derive(Deserialize)]
struct DataOfEvent<'a> {
    #[serde(borrow)]
    user: std::borrow::Cow<'a, str>,
}

/// Whether an event is about a user, or about a client of the user.
fn names_user(event: &str, user: &str) -> bool {
    serde_json::from_str::<EventOfUser<'_>>(event).is_ok_and(|event| event.data.user == user)
}

/// Deletes the dead letters of the user among the next ones. Returns the number after which the next step begins; None
/// = these were all.
async fn drop_letters(
    node: RequestNode<'_>,
    user: &str,
    behind: u64,
    removed: &mut RemovedOfUser,
) -> Result<Option<u64>, OperationError> {
    let list = |reply| DeadRequest::List { endpoint: None, behind, limit: LETTERS_IN_STEP, reply };
    let letters = match dead_events::ask(node, list).await {
        // No endpoint is durable, so no dead letters are kept.
        Err(refusal) if refusal.error == Error::NOT_AVAILABLE => return Ok(None),
        letters => letters?,
    };
    let of_user = letters.iter().filter(|letter| names_user(&letter.body, user));
    let ids: Vec<u64> = of_user.map(|letter| letter.id).collect();
    if !ids.is_empty() {
        removed.dead_letters += dead_events::ask(node, |reply| DeadRequest::Drop { ids, reply }).await?;
    }
    Ok(letters.last().filter(|_| letters.len() == LETTERS_IN_STEP as usize).map(|letter| letter.id))
}

/// Notes what remains of the user, as far as the node can name it.
fn note_remains(node: RequestNode<'_>, user: &str, remains: &mut RemainsOfUser) {
    let generation = node.generation();
    let now_s = node.clock.now_ms() / 1_000;
    let bans = [
        ("user", Ban::User(user.into())),
        ("issued_before", Ban::TokensOfUser { user: user.into(), issued_before_s: 0 }),
    ];
    let known = bans.iter().filter(|(_, ban)| generation.session.bans.knows(ban, now_s));
    remains.bans = known.map(|(kind, _)| Box::from(*kind)).collect();
    let personal = &generation.settings.client.subscribe_to_user_personal_channel;
    let personal = personal.enabled.then_some(personal.personal_channel_namespace.as_str());
    remains.channels = generation.session.namespaces.own_channels(user, personal);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_names_its_user_in_its_data() {
        assert!(names_user(r#"{"id":"x","data":{"client":"c","user":"42"}}"#, "42"));
        assert!(names_user(r#"{"data":{"user":"a\"b"}}"#, "a\"b"), "escaped text too");
        for other in
            [r#"{"data":{"user":"421"}}"#, r#"{"subject":"42","data":{"channel":"42"}}"#, r#"{"user":"42"}"#, "x"]
        {
            assert!(!names_user(other, "42"), "{other}");
        }
    }
}
