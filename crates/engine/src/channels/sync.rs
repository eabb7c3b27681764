//! The sync state of a replicated channel, as one table: [`transition`] decides for every pair of a state and an event.
//! The folder's `mod.rs` has the diagram; a test compares the two.
//!
//! The table knows neither clocks nor logs. [`super::replicated_log`] determines the event (a publication that follows
//! the cache's top, or leaves a gap), and executes the effects in order.

/// How far a home follows the log of a channel that a log backend keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) enum SyncState {
    /// The home does not follow the log, or the log is in memory.
    #[default]
    Idle,
    /// The home has asked the cluster to send the channel's publications.
    Subscribing,
    /// The home has asked the log backend for the log.
    Loading,
    /// The cache is up to date.
    Live,
    /// The log backend failed to return the log. It is not asked again for a moment.
    Failed,
}

impl SyncState {
    /// The state's name, for operators.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            SyncState::Idle => "idle",
            SyncState::Subscribing | SyncState::Loading => "loading",
            SyncState::Live => "live",
            SyncState::Failed => "failed",
        }
    }
}

/// What a request can expect of the channel's log backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum LogReach {
    /// The log backend is the store.
    Store,
    /// The log backend is the cluster, and the link is up.
    Cluster,
    /// The log backend is the cluster and the link is down, but the channel has no history: this node serves it alone.
    Alone,
    /// The log backend is the cluster, and the link is down.
    Cut,
}

/// Whether a request to a live channel continues from a position that the cache does not have yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Ahead {
    /// The request needs nothing that the cache does not have.
    No,
    /// The request is ahead of the cache, and the log backend has to be queried.
    Unasked,
    /// The request is ahead of the cache. The result of a query, or the time of the next query, is awaited.
    Asked,
    /// The request is ahead of the cache, and the last query failed a moment ago.
    Failed,
}

/// Where a publication belongs that the log backend has appended, compared with the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Arrival {
    /// Directly after the cache's top, without a gap.
    Next,
    /// After a gap: publications before it are missing in the cache.
    BehindGap,
    /// At or below the cache's top.
    Repeated,
    /// In another epoch than the cache.
    OfOtherEpoch,
}

/// How the home can use a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum LoadResult {
    /// The log backend did not return the log.
    Failed,
    /// The log backend did not return the log, and requests wait for the result.
    QueryFailed,
    /// The load was requested by an earlier cache of the channel.
    Stale,
    /// The same, and requests or a check of this cache wait for it: another load has replaced the cache meanwhile.
    StaleAwaited,
    /// The load shows that the log backend has lost acknowledged publications.
    Lost,
    /// The load has an epoch that lost publications a moment ago.
    Distrusted,
    /// The load begins after an offset of another log than this one, and subscribers follow this one.
    OfOtherLogWatched,
    /// The load begins after an offset of another log than this one, and this log has no followers.
    OfOtherLog,
    /// With this load, subscribers would miss publications between the cache and the load.
    Incomplete,
    /// The load continues the cache, or begins a new one that has no followers yet.
    Complete,
}

/// What another node or the stream reports about a channel's log, compared with the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Growth {
    /// The log ends after the cache's top.
    Beyond,
    /// The cache has everything that was reported.
    Known,
    /// The report contradicts the cache.
    Contradicting,
}

/// An event that concerns the sync state of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum SyncEvent {
    /// A request arrived that needs a live channel.
    Requested(LogReach, Ahead),
    /// The waiting time after a failure is over.
    RetryDue,
    /// The node receives the channel's publications from now on.
    Subscribed {
        /// Whether the channel has a log.
        has_log: bool,
    },
    /// The log backend has appended a publication.
    Appended(Arrival),
    /// At some offset the log backend has another publication than the cache.
    Contradicted,
    /// A publication of the log cannot be read.
    Unreadable,
    /// A load has finished or failed.
    Loaded(LoadResult),
    /// The log is reported to have grown.
    Reported(Growth),
    /// Reports of the store may have been lost.
    Missed,
    /// The stream that holds the channel's log has grown.
    StreamGrown,
    /// The changed options of the channel give it a log, or remove its log.
    Relogged,
    /// The link to the cluster is back.
    Linked {
        /// Whether the channel has a log.
        has_log: bool,
    },
    /// The link to the cluster is lost.
    Unlinked {
        /// Whether requests wait for the result of a query.
        has_query: bool,
    },
}

/// What a transition requires the home to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum SyncEffect {
    /// Execute the request.
    Execute,
    /// Keep the request waiting.
    Wait,
    /// Refuse the request.
    Refuse,
    /// Submit the waiting requests again.
    Resume,
    /// Query the log backend for the offset that the request needs.
    Query,
    /// End the query: the requests that wait for it are judged again.
    EndQuery,
    /// Note that the query failed, so that the next one is delayed.
    FailQuery,
    /// Ask the cluster to send the channel's publications.
    Follow,
    /// Load the whole log of the channel.
    LoadAll,
    /// Load everything after the cache's top.
    LoadGap,
    /// Load what the cache keeps and everything after it, and compare.
    LoadKept,
    /// Load the cache's newest publication and everything after it, and compare.
    LoadNewest,
    /// Read what is after the cache's top, if there is anything.
    Check,
    /// Load from an offset that contradicts the cache, now or after the load under way, and compare.
    Verify,
    /// Allow the next contradiction to be checked.
    EndVerification,
    /// Append the publication to the cache and deliver it.
    Append,
    /// Compare the publication with the cache.
    Compare,
    /// Keep the publication until the load has finished.
    Hold,
    /// Note the highest known offset of the log.
    NoteTop,
    /// Drop the publications that were kept until the load has finished.
    DropBacklog,
    /// Note that the log backend was read.
    NoteLoad,
    /// Put the load into the cache and deliver the new publications.
    Apply,
    /// Append the publications that were kept during the load.
    Replay,
    /// Remove the cache of the log.
    DropCache,
    /// Ask the log backend to begin a new run.
    BeginRun,
    /// Note the time until which the cache missed nothing.
    NoteSynced,
    /// Note the time before which the log backend is not asked again.
    ScheduleRetry,
    /// Ask the subscribers to subscribe again.
    Break,
    /// Forget the channel if it has no subscribers.
    ForgetUnused,
}

/// The next state, and the effects that the home executes in order.
pub(super) fn transition(state: SyncState, event: SyncEvent) -> (SyncState, &'static [SyncEffect]) {
    use SyncEffect::*;
    use SyncEvent::*;
    use SyncState::{Failed, Idle, Live, Loading, Subscribing};
    use {Ahead as A, Arrival as P, Growth as G, LoadResult as L, LogReach as R};
    match (state, event) {
        // Requests: each one is executed, waits, or is refused.
        (Live, Requested(_, A::No)) => (Live, &[Execute]),
        (Live, Requested(R::Store | R::Cluster, A::Unasked)) => (Live, &[Query, Wait]),
        (Live, Requested(R::Store | R::Cluster, A::Asked)) => (Live, &[Wait]),
        (Live, Requested(R::Store | R::Cluster, A::Failed)) => (Live, &[Refuse]),
        (Live, Requested(R::Alone | R::Cut, A::Unasked | A::Asked | A::Failed)) => (Live, &[Refuse]),
        (Failed, Requested(..)) => (Failed, &[Refuse]),
        (Idle | Subscribing | Loading, Requested(R::Cut, _)) => (state, &[ForgetUnused, Refuse]),
        (Idle | Subscribing | Loading, Requested(R::Alone, _)) => (state, &[Execute]),
        (Subscribing | Loading, Requested(R::Store | R::Cluster, _)) => (state, &[Wait]),
        (Idle, Requested(R::Store, _)) => (Loading, &[LoadAll, Wait]),
        (Idle, Requested(R::Cluster, _)) => (Subscribing, &[Follow, Wait]),
        (Failed, RetryDue) => (Idle, &[]),
        (Idle | Subscribing | Loading | Live, RetryDue) => (state, &[]),
        // The cluster's subscription.
        (Subscribing, Subscribed { has_log: true }) => (Loading, &[LoadAll]),
        (Subscribing, Subscribed { has_log: false }) => (Live, &[Resume]),
        (Idle | Loading | Live | Failed, Subscribed { .. }) => (state, &[]),
        // Publications: only a live cache delivers them.
        (Live, Appended(P::Next)) => (Live, &[Append]),
        (Live, Appended(P::Repeated)) => (Live, &[Compare]),
        (Live, Appended(P::BehindGap)) => (Loading, &[Hold, LoadGap]),
        (Live, Appended(P::OfOtherEpoch)) => (Idle, &[Resume, Break, ForgetUnused]),
        (Loading, Appended(_)) => (Loading, &[Hold]),
        (Live | Loading, Contradicted) => (Idle, &[BeginRun, Resume, Break, ForgetUnused]),
        (Live | Loading, Unreadable) => (Failed, &[ScheduleRetry, Resume, Break]),
        // Loads.
        (Live | Loading, Loaded(L::Stale)) | (Loading, Loaded(L::StaleAwaited)) => (state, &[]),
        (Live, Loaded(L::StaleAwaited)) => (Live, &[EndQuery, EndVerification, Resume]),
        (Live, Loaded(L::Failed)) => (Live, &[EndVerification]),
        (Live, Loaded(L::QueryFailed)) => (Live, &[FailQuery, EndVerification, Resume]),
        (Loading, Loaded(L::Failed | L::QueryFailed)) => (Failed, &[ScheduleRetry, Resume, Break]),
        (Live | Loading, Loaded(L::Distrusted)) => (Failed, &[ScheduleRetry, Resume, Break]),
        (Live | Loading, Loaded(L::Lost)) => (Idle, &[BeginRun, Resume, Break, ForgetUnused]),
        (Live | Loading, Loaded(L::OfOtherLogWatched)) => (Idle, &[DropCache, Resume, Break, ForgetUnused]),
        (Live | Loading, Loaded(L::OfOtherLog)) => (Loading, &[DropCache, LoadAll]),
        (Live | Loading, Loaded(L::Incomplete)) => {
            (Idle, &[NoteLoad, EndQuery, EndVerification, Resume, Break, ForgetUnused])
        }
        (Live | Loading, Loaded(L::Complete)) => (Live, &[NoteLoad, Apply, Resume, Replay]),
        // Reports. A log that the home does not follow is loaded as a whole when it is needed.
        (Live, Reported(G::Beyond)) => (Loading, &[LoadGap]),
        (Live, Reported(G::Known)) => (Live, &[]),
        (Loading, Reported(G::Beyond | G::Known)) => (Loading, &[NoteTop]),
        (Live | Loading, Reported(G::Contradicting)) => (state, &[Verify]),
        (Live, Missed) => (Loading, &[LoadKept]),
        (Loading, Missed) => (Loading, &[NoteTop]),
        (Live | Loading, StreamGrown) => (state, &[Check]),
        (Idle | Subscribing | Failed, Appended(_) | Contradicted | Unreadable | Loaded(_)) => (state, &[]),
        (Idle | Subscribing | Failed, Reported(_) | Missed | StreamGrown) => (state, &[]),
        // The link to the cluster.
        (Live | Loading, Linked { has_log: true }) => (Loading, &[LoadNewest]),
        (Subscribing, Linked { .. }) => (Subscribing, &[Follow]),
        (Idle, Linked { has_log: false }) => (Subscribing, &[Follow]),
        (Idle, Linked { has_log: true }) | (Live | Loading, Linked { has_log: false }) => (state, &[]),
        (Failed, Linked { .. } | Relogged) => (Failed, &[]),
        (Idle | Subscribing, Relogged) => (state, &[Break, ForgetUnused]),
        (Live | Loading, Relogged) => (Idle, &[Resume, Break, ForgetUnused]),
        (Live, Unlinked { has_query: true }) => (Live, &[NoteSynced, EndQuery, Resume]),
        (Live, Unlinked { has_query: false }) => (Live, &[NoteSynced]),
        (Loading, Unlinked { .. }) => (Loading, &[DropBacklog, Resume]),
        (Idle | Subscribing | Failed, Unlinked { .. }) => (state, &[Resume]),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const STATES: [SyncState; 5] =
        [SyncState::Idle, SyncState::Subscribing, SyncState::Loading, SyncState::Live, SyncState::Failed];

    fn events() -> Vec<SyncEvent> {
        use SyncEvent::*;
        let mut all = vec![RetryDue, Contradicted, Unreadable, Missed, StreamGrown, Relogged];
        for reach in [LogReach::Store, LogReach::Cluster, LogReach::Alone, LogReach::Cut] {
            let ahead = [Ahead::No, Ahead::Unasked, Ahead::Asked, Ahead::Failed];
            all.extend(ahead.map(|ahead| Requested(reach, ahead)));
        }
        for flag in [false, true] {
            all.extend([Subscribed { has_log: flag }, Linked { has_log: flag }, Unlinked { has_query: flag }]);
        }
        let arrivals = [Arrival::Next, Arrival::BehindGap, Arrival::Repeated, Arrival::OfOtherEpoch];
        all.extend(arrivals.map(Appended));
        let results = [LoadResult::Failed, LoadResult::QueryFailed, LoadResult::Stale, LoadResult::Lost];
        all.extend(results.map(Loaded));
        let results = [LoadResult::Distrusted, LoadResult::OfOtherLogWatched, LoadResult::OfOtherLog];
        all.extend(results.map(Loaded));
        all.extend([LoadResult::StaleAwaited, LoadResult::Incomplete, LoadResult::Complete].map(Loaded));
        all.extend([Growth::Beyond, Growth::Known, Growth::Contradicting].map(Reported));
        all
    }

    /// All pairs of a state and an event, each with the next state and the effects.
    fn table() -> impl Iterator<Item = (SyncState, SyncEvent, SyncState, &'static [SyncEffect])> {
        STATES.into_iter().flat_map(|state| {
            events().into_iter().map(move |event| {
                let (next, effects) = transition(state, event);
                (state, event, next, effects)
            })
        })
    }

    fn has(effects: &[SyncEffect], any: &[SyncEffect]) -> bool {
        effects.iter().any(|effect| any.contains(effect))
    }

    const LOADS: [SyncEffect; 4] =
        [SyncEffect::LoadAll, SyncEffect::LoadGap, SyncEffect::LoadKept, SyncEffect::LoadNewest];

    #[test]
    fn the_diagram_has_the_arrows_of_the_table_and_no_others() {
        let page = include_str!("mod.rs");
        let arrow = |line: &str| {
            let (from, rest) = line.strip_prefix("//!     ")?.split_once(" --> ")?;
            Some((from.to_owned(), rest.split_once(": ")?.0.to_owned()))
        };
        let drawn: BTreeSet<_> = page.lines().filter_map(arrow).collect();
        let changes = table().filter(|(state, _, next, _)| state != next);
        let decided: BTreeSet<_> =
            changes.map(|(state, _, next, _)| (format!("{state:?}"), format!("{next:?}"))).collect();
        assert_eq!(drawn, decided);
    }

    #[test]
    fn a_request_is_executed_or_waits_or_is_refused() {
        for (state, event, next, effects) in table() {
            let verdicts = [SyncEffect::Execute, SyncEffect::Wait, SyncEffect::Refuse];
            let count = effects.iter().filter(|effect| verdicts.contains(effect)).count();
            let is_request = matches!(event, SyncEvent::Requested(..));
            assert_eq!(count, usize::from(is_request), "{state:?} {event:?}");
            assert!(
                !is_request || has(&effects[effects.len() - 1..], &verdicts),
                "{state:?} {event:?}: it is the last"
            );
            let waits = matches!(next, SyncState::Subscribing | SyncState::Loading | SyncState::Live);
            assert!(!has(effects, &[SyncEffect::Wait]) || waits, "{state:?} {event:?}: nothing would end the wait");
        }
    }

    #[test]
    fn every_state_that_is_entered_asks_for_what_ends_it() {
        for (state, event, next, effects) in table().filter(|(state, _, next, _)| state != next) {
            let is_asked = match next {
                SyncState::Loading => has(effects, &LOADS),
                SyncState::Subscribing => has(effects, &[SyncEffect::Follow]),
                SyncState::Failed => has(effects, &[SyncEffect::ScheduleRetry]),
                SyncState::Idle | SyncState::Live => true,
            };
            assert!(is_asked, "{state:?} {event:?}");
        }
        assert_eq!(transition(SyncState::Failed, SyncEvent::RetryDue).0, SyncState::Idle);
        let request = SyncEvent::Requested(LogReach::Store, Ahead::No);
        assert_eq!(transition(SyncState::Idle, request).0, SyncState::Loading, "a failed load is tried again");
    }

    /// Whenever a request waits, something that will answer it is under way. A request waits for the load of a loading
    /// channel, or for the query of a live one. Each result of that load, and each end of it, judges the request again,
    /// or another load replaces it.
    #[test]
    fn what_a_request_waits_for_answers_it_or_is_replaced() {
        // Events that themselves say that no request waits for them.
        let unawaited = |state, event| match (state, event) {
            (_, SyncEvent::Loaded(LoadResult::Stale)) => true,
            (SyncState::Loading, SyncEvent::Loaded(LoadResult::StaleAwaited)) => true,
            (SyncState::Live, SyncEvent::Loaded(LoadResult::Failed)) => true,
            (SyncState::Live, SyncEvent::Unlinked { has_query }) => !has_query,
            _ => false,
        };
        let ends = |event| matches!(event, SyncEvent::Loaded(_) | SyncEvent::Unlinked { .. });
        for (state, event, next, effects) in table() {
            let is_waited_in = matches!(state, SyncState::Subscribing | SyncState::Loading | SyncState::Live);
            let is_left = state != next && next != SyncState::Loading;
            let may_end = is_waited_in && !matches!(event, SyncEvent::Requested(..)) && (is_left || ends(event));
            if may_end && !unawaited(state, event) && !(state == SyncState::Subscribing && next == state) {
                assert!(has(effects, &LOADS) || has(effects, &[SyncEffect::Resume]), "{state:?} {event:?}");
            }
            let drops_query = has(effects, &[SyncEffect::EndQuery, SyncEffect::FailQuery, SyncEffect::DropCache]);
            assert!(!drops_query || has(effects, &LOADS) || has(effects, &[SyncEffect::Resume]), "{state:?} {event:?}");
        }
    }

    #[test]
    fn only_a_live_cache_delivers_and_who_follows_it_hears_of_its_end() {
        for (state, event, next, effects) in table() {
            let delivers = has(effects, &[SyncEffect::Append, SyncEffect::Apply, SyncEffect::Replay]);
            assert!(!delivers || next == SyncState::Live, "{state:?} {event:?}");
            let was_followed = matches!(state, SyncState::Live | SyncState::Loading);
            let is_over = was_followed && matches!(next, SyncState::Idle | SyncState::Failed);
            // A client that subscribed while there was no log does not follow a log that begins.
            let is_another = event == SyncEvent::Relogged && state != SyncState::Failed;
            assert_eq!(has(effects, &[SyncEffect::Break]), is_over || is_another, "{state:?} {event:?}");
        }
    }

    proptest! {
        /// Requests wait only while a subscription, a load or a query is under way. Each answer ends what it answers.
        #[test]
        fn a_request_never_waits_for_nothing(steps in prop::collection::vec(0..events().len(), 1..200)) {
            let all = events();
            let (mut state, mut waiting) = (SyncState::default(), 0);
            let mut has_query = false;
            for step in steps {
                let event = all[step];
                let (next, effects) = transition(state, event);
                for effect in effects {
                    match effect {
                        SyncEffect::Wait => waiting += 1,
                        SyncEffect::Query => has_query = true,
                        SyncEffect::EndQuery | SyncEffect::FailQuery | SyncEffect::NoteLoad => has_query = false,
                        SyncEffect::Resume => waiting = 0,
                        _ => {}
                    }
                }
                // A request waits for a query only if one is under way, or will be.
                has_query |= matches!(event, SyncEvent::Requested(_, Ahead::Asked)) && state == SyncState::Live;
                let is_under_way = matches!(next, SyncState::Subscribing | SyncState::Loading) || has_query;
                let unlinked = matches!(event, SyncEvent::Unlinked { has_query: false });
                let failed = event == SyncEvent::Loaded(LoadResult::Failed);
                if (unlinked || failed) && state == SyncState::Live && has_query {
                    // The event itself says that there is no query.
                    waiting = 0;
                    has_query = false;
                }
                prop_assert!(waiting == 0 || is_under_way, "{state:?} {event:?}: {waiting} wait");
                state = next;
            }
        }
    }
}
