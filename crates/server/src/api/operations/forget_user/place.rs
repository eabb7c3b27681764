//! How far the work of forgetting a user is. The caller gets it as a cursor. The code is pure.

use aws_lc_rs::digest::{Context, SHA256};

use super::named_inbox::NamedInbox;

/// Returns a hash of what a request asks for, so that a cursor of another user or with other names is refused. A caller
/// that forges a cursor only skips work of its own request.
pub(super) fn digest_of(user: &str, names: &[NamedInbox]) -> u64 {
    let mut context = Context::new(&SHA256);
    let texts = names.iter().flat_map(|inbox| [&*inbox.scope, &*inbox.name]);
    for text in [user].into_iter().chain(texts) {
        context.update(&(text.len() as u64).to_be_bytes());
        context.update(text.as_bytes());
    }
    context.finish().as_ref().first_chunk().map_or(0, |first| u64::from_be_bytes(*first))
}

/// The next step of the work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ForgetPlace {
    /// Delete messages that wait for names. `index`: the position among the user's own inboxes, in their order.
    /// `behind`: a name of a pattern. Its messages and those of the names before it are deleted; empty = none are
    /// deleted yet.
    Inboxes { index: usize, behind: Box<str> },
    /// Delete dead letters with higher numbers than this.
    DeadLetters { behind: u64 },
    /// Delete events of the statistics, from this position on.
    StatsEvents { from: u64 },
}

impl Default for ForgetPlace {
    fn default() -> Self {
        ForgetPlace::inbox(0)
    }
}

/// The words that cursors contain.
const INBOXES: &str = "inboxes";
const DEAD_LETTERS: &str = "dead_letters";
const STATS_EVENTS: &str = "stats_events";

impl ForgetPlace {
    /// Returns the beginning of an inbox.
    pub(super) fn inbox(index: usize) -> Self {
        ForgetPlace::Inboxes { index, behind: "".into() }
    }

    /// Writes the place as text that [`ForgetPlace::read`] reads with the same digest. `inboxes`: a hash of the inboxes
    /// that the configuration gives to the user.
    pub(super) fn cursor(&self, digest: u64, inboxes: u64) -> String {
        format!("{digest:016x}:{inboxes:x}:{}", self.text())
    }

    fn text(&self) -> String {
        match self {
            ForgetPlace::Inboxes { index, behind } => format!("{INBOXES}:{index}:{behind}"),
            ForgetPlace::DeadLetters { behind } => format!("{DEAD_LETTERS}:{behind}"),
            ForgetPlace::StatsEvents { from } => format!("{STATS_EVENTS}:{from}"),
        }
    }

    /// Reads a cursor and its hash of inboxes; empty = the beginning. None = no answer to this request can contain the
    /// cursor.
    pub(super) fn read(cursor: &str, digest: u64) -> Option<(Self, u64)> {
        if cursor.is_empty() {
            return Some((ForgetPlace::default(), 0));
        }
        let (of, cursor) = cursor.split_once(':')?;
        if of != format!("{digest:016x}") {
            return None;
        }
        let (inboxes, cursor) = cursor.split_once(':')?;
        let inboxes = u64::from_str_radix(inboxes, 16).ok()?;
        // The databases count in 63 bits.
        let number = |text: &str| text.parse().ok().filter(|number| i64::try_from(*number).is_ok());
        let (word, rest) = cursor.split_once(':')?;
        let place = match word {
            INBOXES => {
                let (index, behind) = rest.split_once(':')?;
                ForgetPlace::Inboxes { index: index.parse().ok()?, behind: behind.into() }
            }
            DEAD_LETTERS => ForgetPlace::DeadLetters { behind: number(rest)? },
            STATS_EVENTS => ForgetPlace::StatsEvents { from: number(rest)? },
            _ => return None,
        };
        Some((place, inboxes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_was_written() {
        for place in [
            ForgetPlace::default(),
            ForgetPlace::Inboxes { index: 7, behind: "a:b".into() },
            ForgetPlace::DeadLetters { behind: 3 },
            ForgetPlace::StatsEvents { from: i64::MAX as u64 },
        ] {
            let cursor = place.cursor(7, 9);
            assert_eq!(ForgetPlace::read(&cursor, 7), Some((place, 9)), "{cursor}");
            assert_eq!(ForgetPlace::read(&cursor, 8), None, "of another request");
        }
        assert_eq!(ForgetPlace::read("", 7), Some((ForgetPlace::default(), 0)));
    }

    #[test]
    fn what_no_answer_has_had_is_no_cursor() {
        for bad in
            ["x", "inboxes", "inboxes:", "inboxes:a:", "dead_letters:", "stats_events:9223372036854775808", "x:1"]
        {
            assert_eq!(ForgetPlace::read(bad, 7), None, "{bad}");
            assert_eq!(ForgetPlace::read(&format!("{:016x}:9:{bad}", 7), 7), None, "{bad}");
        }
    }

    #[test]
    fn a_digest_is_of_one_user_and_its_names() {
        let named = |scope: &str, name: &str| NamedInbox { scope: scope.into(), name: name.into() };
        let requests = [
            ("ann", vec![]),
            ("bob", vec![]),
            ("ann", vec![named("a", "b")]),
            ("ann", vec![named("ab", "")]),
            ("anna", vec![named("", "b")]),
            ("ann", vec![named("a", "b"), named("a", "c")]),
            ("ann", vec![named("a", "c"), named("a", "b")]),
        ];
        let digests: std::collections::BTreeSet<u64> =
            requests.iter().map(|(user, names)| digest_of(user, names)).collect();
        assert_eq!(digests.len(), requests.len());
        assert_eq!(digest_of("ann", &[named("a", "b")]), digest_of("ann", &[named("a", "b")]));
    }
}
