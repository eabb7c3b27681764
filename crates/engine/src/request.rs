//! What travels between a session, or an operation of the server API, and the home of a channel.

use std::sync::Arc;

use bytes::Bytes;
use touchline_protocol::publication::{Content, EncodedPush};
use touchline_protocol::stream::{ChannelName, Offset, Run, RunStart};
use touchline_protocol::{Error, Publication};

use crate::directory::DirectoryReply;
use crate::namespace::RecoveryMode;
use crate::work::Work;

/// A shard of this node, from 0 on.
pub type ShardId = u16;

/// Where a connection lives. A slot that has a new tenant has a new generation, so a stale id reaches nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ConnectionId {
    /// The shard that owns the connection.
    pub shard: ShardId,
    /// The slot on that shard.
    pub slot: u32,
    /// The slot's tenant.
    pub generation: u32,
}

/// A place in a channel.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StreamPosition {
    /// The offset; 0 = before the first publication.
    pub offset: Offset,
    /// The epoch; empty in a channel without history.
    pub epoch: Epoch,
}

/// One life of a channel's history: eight letters; in a channel whose log backend may be set back to an earlier state,
/// these, a dot and the eight letters of the run that gave the offset.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Epoch([u8; EPOCH_LENGTH]);

/// Letters of a channel's epoch, and of a run.
const PART: usize = 8;
const EPOCH_LENGTH: usize = PART + 1 + PART;

impl Epoch {
    /// Eight letters out of the lowest 40 of 64 bits.
    pub fn from_bits(bits: u64) -> Self {
        let mut epoch = [0; EPOCH_LENGTH];
        epoch[..PART].copy_from_slice(&letters(bits));
        Epoch(epoch)
    }

    /// The same in a run, given by the lowest 40 bits of its id.
    pub fn in_run(mut self, run: u64) -> Self {
        self.0[PART] = b'.';
        self.0[PART + 1..].copy_from_slice(&letters(run));
        self
    }

    /// As it stands on the wire; empty for a channel without history.
    pub fn as_str(&self) -> &str {
        let length = match self.0 {
            [0, ..] => 0,
            epoch if epoch[PART] == 0 => PART,
            _ => EPOCH_LENGTH,
        };
        std::str::from_utf8(&self.0[..length]).unwrap_or_default()
    }

    /// The id of its run, 40 bits; 0 = it has none.
    pub(crate) fn run_id(&self) -> u64 {
        let value = |letter: &u8| LETTERS.iter().position(|known| known == letter).unwrap_or_default() as u64;
        self.0[PART + 1..].iter().rev().fold(0, |bits, letter| bits << 5 | value(letter))
    }

    /// Whether both are of one life of the channel, in whatever run.
    pub(crate) fn is_same_life(&self, other: &Epoch) -> bool {
        self.0[..PART] == other.0[..PART]
    }

    /// Whether another, which may say nothing of a run, can be this one.
    pub(crate) fn can_be(&self, other: &Epoch) -> bool {
        self == other || other.0[PART] == 0 && self.0[..PART] == other.0[..PART]
    }

    /// The run of an epoch as it stands on the wire, if it is of the same channel's life as this one.
    pub(crate) fn run_of<'t>(&self, text: &'t str) -> Option<&'t str> {
        let (channel, run) = text.split_once('.')?;
        (channel.as_bytes() == &self.0[..PART]).then_some(run)
    }
}

const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyzABCDEF";

fn letters(bits: u64) -> [u8; PART] {
    std::array::from_fn(|index| LETTERS[(bits >> (index * 5)) as usize & 31])
}

/// The runs of a log backend: in each it gave offsets without being set back to an earlier state. A position is one of
/// today's history if its run is known, and did not end before its offset.
#[derive(Debug, Clone, Default)]
pub struct Runs {
    /// The runs that the backend knows, by rising number. The last one is the current run. Empty = the backend has no
    /// runs.
    pub known: Arc<[Run]>,
    /// Where runs begin in the channel, by rising number.
    pub first: Vec<RunStart>,
}

impl Runs {
    /// The last offset of a run in a channel whose last offset is `top`; none = the run is not known. A run that gave
    /// none ends where it began.
    pub(crate) fn end(&self, run: &str, top: Offset) -> Option<Offset> {
        let is_it = |id: u64| letters(id) == *run.as_bytes();
        let run = self.known.iter().rev().find(|run| is_it(run.id))?;
        let next = self.first.get(self.first.partition_point(|later| later.number <= run.number));
        Some(next.map_or(top, |next| next.first.previous()))
    }

    /// A run gave nothing of today's history from an offset on: the next one did.
    pub(crate) fn end_before(&mut self, id: u64, offset: Offset) {
        let Some(run) = self.known.iter().find(|run| run.id == id) else { return };
        let index = self.first.partition_point(|later| later.number <= run.number);
        match (self.first.get_mut(index), self.known.iter().find(|later| later.number > run.number)) {
            (Some(next), _) => next.first = next.first.min(offset),
            (None, Some(next)) => self.first.push(RunStart { number: next.number, first: offset }),
            (None, None) => {}
        }
    }

    /// The current run has given an offset.
    pub(crate) fn note(&mut self, offset: Offset) {
        if let Some(current) = self.known.last()
            && self.first.last().is_none_or(|last| last.number < current.number)
        {
            self.first.push(RunStart { number: current.number, first: offset });
        }
    }
}

impl std::fmt::Debug for Epoch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A request to the home of one channel.
#[derive(Debug)]
pub enum Request {
    /// Adds a subscriber and tells its position.
    Subscribe(Box<Subscribe>),
    /// Takes a subscriber away.
    Unsubscribe {
        /// The subscriber.
        connection: ConnectionId,
        /// It knows that it is one; else its subscribe may have been refused meanwhile.
        is_answered: bool,
    },
    /// Of the cluster: something that is not kept.
    Ephemeral(Bytes),
    /// Of the cluster or the store: a publication that it has stored.
    Appended(Appended),
    /// Of the store: somebody else has stored something in this life and run of the channel, and its last offset is
    /// this or higher.
    Advanced(Epoch, Offset),
    /// Of the cluster: the channel is heard from now on.
    SubscribedToBackend,
    /// Of the cluster or the store: what it keeps of the channel; none = it can't be had now.
    Loaded(Option<Box<Loaded>>),
    /// One that has waited, with the first load that was asked for after it came.
    Retry(u64, Box<Request>),
    /// Tells the subscribers who want to know that somebody came or went.
    Announce(Arc<EncodedPush>),
    /// Appends a publication.
    Publish(Box<Publish>),
    /// Asks for publications.
    History(Box<History>),
    /// Drops the publications, keeps the position.
    HistoryRemove,
}

impl Request {
    /// The subscriber that comes or goes.
    pub fn subscriber(&self) -> Option<ConnectionId> {
        match self {
            Request::Subscribe(subscribe) => Some(subscribe.connection),
            Request::Unsubscribe { connection, .. } => Some(*connection),
            Request::Retry(_, request) => request.subscriber(),
            _ => None,
        }
    }
}

/// A publication that is safe.
#[derive(Debug)]
pub struct Appended {
    /// Its offset.
    pub offset: Offset,
    /// The channel's offset before it.
    pub previous: Offset,
    /// The channel's epoch, where that may change unseen; without a run where it is not known which one stored it.
    pub epoch: Option<Epoch>,
    /// What was published.
    pub payload: Bytes,
}

/// What a cluster or a store keeps of a channel, behind the offset that was asked for.
#[derive(Debug)]
pub struct Loaded {
    /// The epoch.
    pub epoch: Epoch,
    /// The offset that was asked behind.
    pub behind: Offset,
    /// The number of the load, as it was asked for.
    pub number: u64,
    /// Offsets and payloads, oldest first.
    pub kept: Vec<(Offset, Bytes)>,
    /// The channel's last offset.
    pub top: Offset,
    /// Nothing behind it is missing in `kept`.
    pub floor: Offset,
    /// What may be missing up to the floor has gone by its age only: whoever knows the channel for a shorter time than
    /// that misses nothing.
    pub is_aged: bool,
    /// Which runs gave its offsets.
    pub runs: Runs,
}

/// A new subscriber.
#[derive(Debug)]
pub struct Subscribe {
    /// The subscriber.
    pub connection: ConnectionId,
    /// What it wants back.
    pub recover: Option<Recover>,
}

/// A position in the words of a client or of a backend, which need not be one of the channel.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClientPosition {
    /// The offset; 0 = before the first publication.
    pub offset: Offset,
    /// The epoch; empty = the channel's current epoch.
    pub epoch: Box<str>,
}

/// A position from which a returning client wants to go on.
#[derive(Debug, Clone)]
pub struct Recover {
    /// The last offset that it has.
    pub offset: Offset,
    /// Its epoch; empty = whichever is current.
    pub epoch: Box<str>,
    /// All that was missed, or the latest only.
    pub mode: RecoveryMode,
    /// More missed publications than this can't be recovered.
    pub limit: usize,
    /// More bytes of missed publications than this can't be recovered.
    pub size_max: usize,
}

/// A publication to be.
#[derive(Debug, Default)]
pub struct Publish {
    /// What it says.
    pub content: Content,
    /// Deliver it, but don't keep it.
    pub skip_history: bool,
    /// The same key again within five minutes gives the first result and publishes nothing.
    pub idempotency_key: Box<str>,
    /// A version at or below the channel's is dropped; 0 = unversioned.
    pub version: u64,
    /// Versions compare within one epoch of the application.
    pub version_epoch: Box<str>,
}

/// Which publications are asked for.
#[derive(Debug, Default, Clone)]
pub struct History {
    /// How many at most; `None` = all, 0 = the position only.
    pub limit: Option<usize>,
    /// Behind this position (before it, if reversed).
    pub since: Option<ClientPosition>,
    /// Newest first.
    pub reverse: bool,
    /// Bytes of publications, JSON: the answer ends before the publication that goes beyond, but holds one. None =
    /// any.
    pub size_max: Option<usize>,
}

/// A home's answer.
#[derive(Debug)]
pub enum Response {
    /// To [`Request::Subscribe`].
    Subscribed(Subscribed),
    /// To [`Request::Publish`]; no position in a channel without history.
    Published(Option<StreamPosition>),
    /// To [`Request::History`].
    History {
        /// What was asked for.
        publications: Vec<Arc<Publication>>,
        /// The channel's top.
        position: StreamPosition,
    },
    /// To [`Request::HistoryRemove`].
    Done,
    /// Of the directory, to any [`crate::directory::DirectoryRequest`].
    Answer(DirectoryReply),
    /// To any request.
    Refused(Error),
}

impl Response {
    /// The same without what makes it large, when there is no memory for it: error 111. A subscription begins all the
    /// same.
    pub(crate) fn without_contents(self) -> Self {
        match self {
            Response::History { .. } | Response::Answer(_) => Response::Refused(Error::TOO_MANY_REQUESTS),
            other => other,
        }
    }

    /// Whether it holds publications that were recovered.
    pub(crate) fn has_recovered(&self) -> bool {
        matches!(self, Response::Subscribed(Subscribed { recovered: Some(Some(missed)), .. }) if !missed.is_empty())
    }

    /// The same, not recovered if the missed publications are more than so many bytes of JSON.
    pub(crate) fn recovering_at_most(mut self, bytes: usize) -> Self {
        if let Response::Subscribed(Subscribed { recovered: Some(recovered), .. }) = &mut self {
            let size = recovered.iter().flatten().map(|publication| publication.size()).sum::<usize>();
            if size > bytes {
                *recovered = None;
            }
        }
        self
    }

    /// What the answer costs whoever has asked, besides the command itself, in units of commands: one for 8
    /// publications, members or entries, one for each copy of a message, one for 4,096 bytes. A small answer costs
    /// nothing.
    pub fn work(&self) -> u32 {
        match self {
            Response::Subscribed(subscribed) => {
                subscribed.recovered.iter().flatten().map(|missed| work_of(missed)).sum::<u32>()
                    + u32::from(subscribed.is_denied)
            }
            Response::History { publications, .. } => work_of(publications),
            Response::Answer(answered) => answered.work(),
            Response::Published(_) | Response::Done | Response::Refused(_) => 0,
        }
    }
}

fn work_of(publications: &[Arc<Publication>]) -> u32 {
    let bytes = publications.iter().map(|publication| publication.size()).sum();
    Work { items: publications.len(), bytes, ..Work::default() }.units()
}

/// Where a subscription begins.
#[derive(Debug, Clone, Default)]
pub struct Subscribed {
    /// The channel's top; every publication behind it will be delivered.
    pub position: StreamPosition,
    /// What came of recovery, if it was asked for: everything missed, or `None` = it can't be had.
    pub recovered: Option<Option<Vec<Arc<Publication>>>>,
    /// The client's position is ahead of all that the log backend has: the backend was asked, now or a moment ago. It
    /// costs a unit of work.
    pub is_denied: bool,
}

/// What the home of a channel sends to a shard that listens to it.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// The channel.
    pub channel: ChannelName,
    /// What is to be delivered.
    pub event: ChannelEvent,
    /// Subscribers of the channel on all shards.
    pub audience: u32,
}

/// An event of a channel.
#[derive(Debug, Clone)]
pub enum ChannelEvent {
    /// For every subscriber.
    Publication {
        /// What was published.
        publication: Arc<Publication>,
        /// The one before it, where subscribers may ask for changes only.
        previous: Option<Arc<Publication>>,
    },
    /// A join or leave push, for those who want them.
    Membership(Arc<EncodedPush>),
    /// Some of it is lost and can't be had again: subscribers must begin anew.
    Broken,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Runs by their numbers and ids, and where they begin in the channel.
    pub(crate) fn runs(known: &[(u64, u64)], first: &[(u64, u64)]) -> Runs {
        let known = known.iter().map(|&(number, id)| Run { number, id }).collect();
        let first = first.iter().map(|&(number, first)| RunStart { number, first: Offset(first) }).collect();
        Runs { known, first }
    }

    fn starts(runs: &Runs) -> Vec<(u64, u64)> {
        runs.first.iter().map(|start| (start.number, start.first.0)).collect()
    }

    fn publications(count: u64, bytes: usize) -> Vec<Arc<Publication>> {
        let content = Content { data: Bytes::from(format!("\"{}\"", "x".repeat(bytes))), ..Content::default() };
        (0..count).map(|_| Arc::new(Publication::encode("a", &content, None))).collect()
    }

    fn recovered(missed: Option<Option<Vec<Arc<Publication>>>>) -> Response {
        Response::Subscribed(Subscribed { recovered: missed, ..Subscribed::default() })
    }

    #[test]
    fn an_epoch_is_eight_letters_and_perhaps_those_of_a_run() {
        assert_eq!(Epoch::default().as_str(), "");
        let low: u64 = (0..8).map(|index| (index as u64 * 4 + 1) << (index * 5)).sum();
        assert_eq!(Epoch::from_bits(low).as_str(), "bfjnrvzD");
        assert_eq!(Epoch::from_bits(low | 1 << 40), Epoch::from_bits(low), "the lowest 40 bits");
        let epoch = Epoch::from_bits(0).in_run(31 << 35);
        assert_eq!((epoch.as_str(), format!("{epoch:?}")), ("aaaaaaaa.aaaaaaaF", "aaaaaaaa.aaaaaaaF".into()));
        let of = |text| Epoch::from_bits(0).in_run(5).run_of(text);
        assert_eq!(
            (of("aaaaaaaa.baaaaaaa"), of("baaaaaaa.baaaaaaa"), of("aaaaaaaa"), of("")),
            (Some("baaaaaaa"), None, None, None)
        );
    }

    #[test]
    fn a_run_ends_where_the_next_one_began() {
        let mut runs = runs(&[(1, 11), (2, 12), (5, 15)], &[(1, 1), (5, 8)]);
        let end = |runs: &Runs, id: u64| {
            runs.end(Epoch::from_bits(0).in_run(id).as_str().split_once('.').map_or("", |(_, run)| run), Offset(20))
                .map(|end| end.0)
        };
        assert_eq!(
            [end(&runs, 11), end(&runs, 12), end(&runs, 15), end(&runs, 16)],
            [Some(7), Some(7), Some(20), None]
        );
        // The current run notes the first offset that it gives, once.
        runs.first.truncate(1);
        runs.note(Offset(8));
        runs.note(Offset(9));
        assert_eq!(starts(&runs), [(1, 1), (5, 8)]);
        let mut none = Runs::default();
        none.note(Offset(8));
        assert!(none.first.is_empty());
    }

    #[test]
    fn an_answer_without_room_loses_what_makes_it_large() {
        let history = || Response::History { publications: publications(1, 5), position: StreamPosition::default() };
        assert!(matches!(history().without_contents(), Response::Refused(Error::TOO_MANY_REQUESTS)));
        assert!(matches!(
            Response::Answer(Vec::new().into()).without_contents(),
            Response::Refused(Error::TOO_MANY_REQUESTS)
        ));
        assert!(matches!(recovered(None).without_contents(), Response::Subscribed(_)));
        assert!(matches!(Response::Refused(Error::EXPIRED).without_contents(), Response::Refused(Error::EXPIRED)));
        let has = [recovered(None), recovered(Some(None)), recovered(Some(Some(Vec::new()))), history()]
            .map(|response| response.has_recovered());
        assert_eq!((has, recovered(Some(Some(publications(1, 5)))).has_recovered()), ([false; 4], true));
    }

    #[test]
    fn what_is_recovered_has_so_many_bytes_or_is_not_recovered() {
        let size = 2 * publications(1, 5)[0].size();
        for (bytes, is_left) in [(size, true), (size - 1, false)] {
            let response = recovered(Some(Some(publications(2, 5)))).recovering_at_most(bytes);
            let Response::Subscribed(Subscribed { recovered: Some(missed), .. }) = response else {
                panic!("{response:?}")
            };
            assert_eq!(missed.map(|missed| missed.len()), is_left.then_some(2));
        }
        assert!(matches!(
            recovered(None).recovering_at_most(0),
            Response::Subscribed(Subscribed { recovered: None, .. })
        ));
        assert!(matches!(Response::Done.recovering_at_most(0), Response::Done));
    }

    #[test]
    fn an_answer_costs_by_what_was_read_and_what_it_holds() {
        let denied = Response::Subscribed(Subscribed { is_denied: true, ..Subscribed::default() });
        assert_eq!((denied.work(), recovered(None).work(), Response::Done.work()), (1, 0, 0));
        let (eight, large) = (publications(8, 5), publications(1, 3 * 4_096));
        assert_eq!((recovered(Some(Some(eight.clone()))).work(), recovered(Some(Some(large.clone()))).work()), (1, 3));
        let history = |publications| Response::History { publications, position: StreamPosition::default() }.work();
        assert_eq!((history(eight), history(large), history(publications(7, 5))), (1, 3, 0));
    }

    #[test]
    fn an_epoch_tells_its_run_and_which_others_it_can_be() {
        let life = Epoch::from_bits(1);
        for run in [0, 1, 31 << 35, 0x12_3456_789a, (1 << 40) - 1] {
            assert_eq!(life.in_run(run).run_id(), run);
        }
        assert_eq!(life.run_id(), 0);
        let others = [life.in_run(4), life, life.in_run(5), Epoch::from_bits(2), Epoch::from_bits(2).in_run(4)];
        assert_eq!(others.map(|other| life.in_run(4).can_be(&other)), [true, true, false, false, false]);
        assert_eq!(others.map(|other| life.can_be(&other)), [false, true, false, false, false]);
        assert_eq!(others.map(|other| life.is_same_life(&other)), [true, true, true, false, false]);
    }

    #[test]
    fn a_run_that_gave_nothing_from_an_offset_on_ends_before_it() {
        let ended = |first: &[(u64, u64)], id: u64, offset: u64| {
            let mut runs = runs(&[(1, 11), (2, 12), (5, 15)], first);
            runs.end_before(id, Offset(offset));
            starts(&runs)
        };
        let two = [(1, 1), (5, 8)];
        for (id, offset, next) in [(11, 4, 4), (12, 3, 3), (11, 9, 8), (15, 2, 8), (99, 2, 8)] {
            assert_eq!(ended(&two, id, offset), [(1, 1), (5, next)], "run {id} before {offset}");
        }
        for (id, next) in [(11, &[(2, 6)][..]), (12, &[(5, 6)]), (15, &[])] {
            assert_eq!(
                ended(&two[..1], id, 6),
                [&two[..1], next].concat(),
                "run {id}, where no later one has given an offset"
            );
        }
    }

    #[test]
    fn a_request_is_of_the_subscriber_that_comes_or_goes() {
        let connection = ConnectionId { shard: 1, slot: 2, generation: 3 };
        let subscribe = || Request::Subscribe(Box::new(Subscribe { connection, recover: None }));
        assert_eq!(subscribe().subscriber(), Some(connection));
        assert_eq!(Request::Unsubscribe { connection, is_answered: true }.subscriber(), Some(connection));
        assert_eq!(Request::Retry(1, Box::new(subscribe())).subscriber(), Some(connection));
        assert_eq!(Request::HistoryRemove.subscriber(), None);
    }
}
