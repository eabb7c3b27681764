//! The cache of answers to subscribes that may be used again for a while (`cache_for`).

use std::collections::{BTreeMap, HashMap, HashSet};

use bytes::Bytes;
use touchline_engine::hook::SubscribeAnswer;

/// How long the cache remembers whether a backend's answers about a channel apply to other users, in milliseconds.
const REMEMBERED_MS: u64 = 600_000;
/// How long calls do not wait for another call about a channel after the backend did not answer one, in milliseconds.
const AFTER_FAILURE_MS: u64 = 10_000;

/// The question of a subscribe without its user.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Question {
    pub(super) endpoint: usize,
    pub(super) channel: Box<str>,
    /// The JSON data that the client sent.
    pub(super) data: Option<Bytes>,
    /// What the backend receives about the connection: its labels, its meta and the forwarded header fields.
    pub(super) told: Vec<Bytes>,
}

impl Question {
    /// Returns the number of bytes that the question uses.
    fn size(&self) -> usize {
        let told = self.told.iter().map(|told| size_of::<Bytes>() + told.len()).sum::<usize>();
        size_of::<Self>() + self.channel.len() + self.data.as_ref().map_or(0, Bytes::len) + told
    }
}

/// A question and the user that its answer applies to; None = the answer applies to all users.
type AnswerKey = (Question, Option<Box<str>>);

#[derive(Debug)]
struct Held {
    until_ms: u64,
    answer: SubscribeAnswer,
    /// The bytes of the answer, and of its key in both maps.
    size: usize,
    /// The place of the answer in the order of arrival.
    serial: u64,
}

/// What the last answer of a backend about a channel said about other users.
#[derive(Debug)]
struct Sharing {
    /// Whether the answer applies to other users.
    is_shared: bool,
    /// This is remembered until then, in Unix milliseconds.
    until_ms: u64,
}

/// What the caller is to do with a question.
#[derive(Debug)]
pub(super) enum Advice {
    /// Use this cached answer.
    Answer(SubscribeAnswer),
    /// Ask the backend.
    Ask,
    /// Ask the backend. Other calls about this channel wait, because the answer may apply to them.
    AskFirst,
    /// Wait for the answer to the equal question that is under way.
    Wait,
}

/// The cached answers. Times are Unix milliseconds.
#[derive(Debug, Default)]
pub(super) struct AnswerCache {
    limit: usize,
    size_limit: usize,
    /// The bytes of all cached answers.
    size: usize,
    held: HashMap<AnswerKey, Held>,
    /// The keys of `held`, in the order of arrival.
    order: BTreeMap<u64, AnswerKey>,
    last_serial: u64,
    sharing: HashMap<(usize, Box<str>), Sharing>,
    /// The questions under way for whose answer equal questions wait.
    asked: HashSet<Question>,
    /// The backends whose last answer, about any channel, did not apply to other users.
    single: HashSet<usize>,
}

impl AnswerCache {
    /// Returns an empty cache for at most this many answers and bytes.
    pub(super) fn new(limit: usize, size_limit: usize) -> Self {
        AnswerCache { limit, size_limit, ..AnswerCache::default() }
    }

    /// Says what to do with a user's question. `has_waited`: the question has already waited for another one, and is
    /// asked now.
    pub(super) fn advise(&mut self, question: &Question, user: &str, has_waited: bool, now_ms: u64) -> Advice {
        // Two anonymous clients are not the same user.
        let own = (!user.is_empty()).then(|| Some(Box::from(user)));
        for asker in [None].into_iter().chain(own) {
            let key = (question.clone(), asker);
            if let Some(held) = self.held.get(&key) {
                if held.until_ms > now_ms {
                    return Advice::Answer(held.answer.clone());
                }
                self.remove(&key);
            }
        }
        if has_waited || self.limit == 0 {
            return Advice::Ask;
        }
        if self.asked.contains(question) {
            return Advice::Wait;
        }
        let subject = (question.endpoint, question.channel.clone());
        let may_be_shared = match self.sharing.get(&subject) {
            Some(Sharing { is_shared, until_ms }) if *until_ms > now_ms => *is_shared,
            // No call waits for a backend whose last answer did not apply to other users.
            _ => !self.single.contains(&question.endpoint),
        };
        if !may_be_shared {
            return Advice::Ask;
        }
        self.asked.insert(question.clone());
        Advice::AskFirst
    }

    /// Whether the cache may remember one more channel.
    fn has_room(&mut self, now_ms: u64) -> bool {
        if self.sharing.len() >= self.limit {
            self.sharing.retain(|_, sharing| sharing.until_ms > now_ms);
        }
        self.sharing.len() < self.limit
    }

    /// Notes the answer to a question. `may_hold`: nothing was forgotten since the question was asked. `is_first`:
    /// other calls wait for the answer.
    pub(super) fn note(
        &mut self,
        question: Question,
        user: &str,
        answer: Option<&SubscribeAnswer>,
        (may_hold, is_first): (bool, bool),
        now_ms: u64,
    ) {
        let shared = answer.filter(|answer| answer.cache_for > 0 && answer.is_for_channel);
        if is_first {
            self.asked.remove(&question);
        }
        let subject = (question.endpoint, question.channel.clone());
        let known = match answer {
            Some(_) if shared.is_some() => {
                self.single.remove(&question.endpoint);
                Some(Sharing { is_shared: true, until_ms: now_ms + REMEMBERED_MS })
            }
            Some(_) => {
                self.single.insert(question.endpoint);
                Some(Sharing { is_shared: false, until_ms: now_ms + REMEMBERED_MS })
            }
            // For a moment no call waits for a question that has just failed.
            None if is_first => Some(Sharing { is_shared: false, until_ms: now_ms + AFTER_FAILURE_MS }),
            None => None,
        };
        if let Some(known) = known
            && (self.sharing.contains_key(&subject) || self.has_room(now_ms))
        {
            self.sharing.insert(subject, known);
        }
        let holds = |answer: &&SubscribeAnswer| answer.cache_for > 0 && (answer.is_for_channel || !user.is_empty());
        let Some(answer) = answer.filter(holds).filter(|_| may_hold && self.limit > 0) else { return };
        let mut until_ms = now_ms + answer.cache_for * 1_000;
        if answer.expire_at > 0 {
            until_ms = until_ms.min(answer.expire_at.saturating_mul(1_000));
        }
        let asker = (!answer.is_for_channel).then(|| Box::from(user));
        let key = (question, asker);
        let size = 2 * (key.0.size() + user.len()) + size_of::<Held>() + answer.size();
        self.remove(&key);
        if size > self.size_limit {
            return;
        }
        self.last_serial += 1;
        let serial = self.last_serial;
        self.order.insert(serial, key.clone());
        self.size += size;
        self.held.insert(key, Held { until_ms, answer: answer.clone(), size, serial });
        while self.held.len() > self.limit || self.size > self.size_limit {
            let Some(oldest) = self.order.values().next().cloned() else { break };
            self.remove(&oldest);
        }
    }

    fn remove(&mut self, key: &AnswerKey) {
        if let Some(held) = self.held.remove(key) {
            self.size -= held.size;
            self.order.remove(&held.serial);
        }
    }

    /// Forgets the answers that would admit a user to a channel again; None = to any channel. `is_shared`: also forgets
    /// answers that apply to all users.
    pub(super) fn forget(&mut self, user: &str, channel: Option<&str>, is_shared: bool) {
        let is_touched = |(question, asker): &AnswerKey| {
            let is_channel = channel.is_none_or(|channel| *question.channel == *channel);
            is_channel && asker.as_ref().map_or(is_shared, |asker| **asker == *user)
        };
        let touched: Vec<AnswerKey> = self.held.keys().filter(|key| is_touched(key)).cloned().collect();
        for key in &touched {
            self.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(channel: &str) -> Question {
        Question { endpoint: 0, channel: channel.into(), data: None, told: Vec::new() }
    }

    fn answer(cache_for: u64, is_for_channel: bool) -> SubscribeAnswer {
        SubscribeAnswer { cache_for, is_for_channel, ..SubscribeAnswer::default() }
    }

    fn is_answered(cache: &mut AnswerCache, channel: &str, user: &str, now_ms: u64) -> bool {
        matches!(cache.advise(&question(channel), user, true, now_ms), Advice::Answer(_))
    }

    #[test]
    fn an_answer_holds_for_its_user_or_for_all_and_for_its_time() {
        let mut cache = AnswerCache::new(10, 100_000);
        cache.note(question("a"), "ann", Some(&answer(5, false)), (true, false), 1_000);
        cache.note(question("b"), "ann", Some(&answer(5, true)), (true, false), 1_000);
        cache.note(question("c"), "ann", Some(&answer(0, true)), (true, false), 1_000);
        cache.note(question("d"), "ann", Some(&answer(5, true)), (false, false), 1_000);
        for (channel, user, expected) in
            [("a", "ann", true), ("a", "bob", false), ("b", "bob", true), ("c", "ann", false), ("d", "ann", false)]
        {
            assert_eq!(is_answered(&mut cache, channel, user, 5_999), expected, "{channel} {user}");
        }
        assert!(!is_answered(&mut cache, "a", "ann", 6_000), "its time is over");
    }

    #[test]
    fn anonymous_clients_are_not_one_user() {
        let mut cache = AnswerCache::new(10, 100_000);
        cache.note(question("a"), "", Some(&answer(5, false)), (true, false), 0);
        assert!(!is_answered(&mut cache, "a", "", 1));
        cache.note(question("a"), "", Some(&answer(5, true)), (true, false), 0);
        assert!(is_answered(&mut cache, "a", "", 1));
    }

    #[test]
    fn an_answer_does_not_outlive_its_subscription() {
        let mut cache = AnswerCache::new(10, 100_000);
        let short = SubscribeAnswer { expire_at: 3, ..answer(300, true) };
        cache.note(question("a"), "ann", Some(&short), (true, false), 1_000);
        assert!(is_answered(&mut cache, "a", "bob", 2_999));
        assert!(!is_answered(&mut cache, "a", "bob", 3_000));
    }

    #[test]
    fn what_a_backend_ends_is_forgotten() {
        let mut cache = AnswerCache::new(10, 100_000);
        for (channel, is_for_channel) in [("a", false), ("b", true), ("c", false), ("d", true)] {
            cache.note(question(channel), "ann", Some(&answer(300, is_for_channel)), (true, false), 0);
        }
        cache.forget("ann", Some("b"), true);
        assert!(is_answered(&mut cache, "a", "ann", 1) && !is_answered(&mut cache, "b", "ann", 1));
        cache.forget("bob", None, false);
        assert!(is_answered(&mut cache, "c", "ann", 1));
        cache.forget("ann", None, false);
        assert!(!is_answered(&mut cache, "a", "ann", 1) && !is_answered(&mut cache, "c", "ann", 1));
        assert!(is_answered(&mut cache, "d", "ann", 1), "it holds for everybody, and says nothing of this user");
        cache.forget("ann", None, true);
        assert!(!is_answered(&mut cache, "d", "ann", 1));
    }

    #[test]
    fn others_wait_only_for_a_backend_that_shares_its_answers() {
        let mut cache = AnswerCache::new(10, 100_000);
        let advise = |cache: &mut AnswerCache, channel: &str| cache.advise(&question(channel), "ann", false, 0);
        assert!(matches!(advise(&mut cache, "a"), Advice::AskFirst), "nothing is known of the backend");
        assert!(matches!(advise(&mut cache, "a"), Advice::Wait));
        cache.note(question("a"), "ann", Some(&answer(0, false)), (true, true), 0);
        for channel in ["a", "b", "b"] {
            assert!(matches!(advise(&mut cache, channel), Advice::Ask), "it shares no answer: {channel}");
        }
        cache.note(question("b"), "ann", Some(&answer(1, true)), (true, false), 0);
        assert!(matches!(cache.advise(&question("b"), "bob", false, 2_000), Advice::AskFirst), "it shares those of b");
        assert!(matches!(cache.advise(&question("b"), "cid", false, 2_000), Advice::Wait));
        assert!(matches!(advise(&mut cache, "a"), Advice::Ask), "and those of a it does not");
        cache.note(question("b"), "bob", None, (false, true), 2_000);
        let again = cache.advise(&question("b"), "cid", false, 2_000);
        assert!(matches!(again, Advice::Ask), "nobody waits after a failure");
        let other = Question { data: Some("1".into()), ..question("b") };
        let later_ms = 2_000 + AFTER_FAILURE_MS;
        cache.note(question("b"), "ann", Some(&answer(1, true)), (true, false), 2_000);
        assert!(matches!(cache.advise(&question("b"), "ann", false, later_ms), Advice::AskFirst));
        assert!(matches!(cache.advise(&other, "bob", false, later_ms), Advice::AskFirst), "it is another question");
    }

    #[test]
    fn the_oldest_answer_goes_first() {
        let mut cache = AnswerCache::new(2, 100_000);
        for channel in ["a", "b", "c"] {
            cache.note(question(channel), "ann", Some(&answer(300, true)), (true, false), 0);
        }
        assert!(!is_answered(&mut cache, "a", "ann", 1));
        assert!(is_answered(&mut cache, "b", "ann", 1) && is_answered(&mut cache, "c", "ann", 1));
        assert_eq!((cache.order.len(), cache.held.len()), (2, 2));
    }

    #[test]
    fn bytes_of_what_is_held_are_bounded() {
        let mut cache = AnswerCache::new(1_000, 20_000);
        for number in 0..100_u8 {
            let large = SubscribeAnswer { data: Some(vec![b'1'; 5_000].into()), ..answer(300, true) };
            cache.note(question(&format!("c{number}")), "ann", Some(&large), (true, false), 0);
        }
        assert_eq!(cache.held.len(), 3, "a fourth is more than 20,000 bytes");
        assert!(is_answered(&mut cache, "c99", "bob", 1) && !is_answered(&mut cache, "c96", "bob", 1));
        let huge = SubscribeAnswer { data: Some(vec![b'1'; 20_000].into()), ..answer(300, true) };
        cache.note(question("c99"), "ann", Some(&huge), (true, false), 0);
        assert!(!is_answered(&mut cache, "c99", "bob", 1), "the newer answer is too large, the older one is outdated");
        for channel in ["c97", "c98"] {
            cache.forget("ann", Some(channel), true);
        }
        assert_eq!((cache.size, cache.order.len()), (0, 0));
    }
}
