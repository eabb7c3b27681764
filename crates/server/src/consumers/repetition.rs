//! Decides which messages of a stream are not carried out when they are delivered again: those whose repetition could
//! undo later commands that this node has carried out. The code is pure.

use std::collections::HashMap;

use super::command::AskedCall;

/// The most channels and connections for which a node remembers the last message that it carried out. Beyond it, the
/// marks with the lowest numbers are forgotten.
const MARKS_MAX: usize = 100_000;

/// A place in the stream: the time when a message was stored, and its number. A recreated stream counts from 1 again,
/// but stores later.
type StreamPlace = (i128, u64);

/// The last message that was carried out for each thing that messages change. Only messages after the first
/// unacknowledged one matter, because earlier ones are never delivered again.
#[derive(Debug, Default)]
pub(super) struct RepetitionMarks(HashMap<String, StreamPlace>);

impl RepetitionMarks {
    /// Whether a command that is delivered again would undo later commands, or was carried out already.
    pub(super) fn undoes(&self, call: &AskedCall, place: StreamPlace) -> bool {
        let is_behind = |change: &String| self.0.get(change).is_some_and(|last| *last >= place);
        call.undoes() && call.changes().iter().any(is_behind)
    }

    /// Notes what a command that was carried out has changed.
    pub(super) fn note(&mut self, changes: Vec<String>, place: StreamPlace) {
        for change in changes {
            let last = self.0.entry(change).or_insert(place);
            *last = place.max(*last);
        }
        if self.0.len() > MARKS_MAX {
            let mut places: Vec<StreamPlace> = self.0.values().copied().collect();
            let half = places.len() / 2;
            let middle = *places.select_nth_unstable(half).1;
            self.0.retain(|_, place| *place > middle);
        }
    }

    /// Forgets what no message can follow any more. `floor`: the number up to which all messages are acknowledged.
    pub(super) fn forget(&mut self, floor: u64) {
        self.0.retain(|_, (_, sequence)| *sequence > floor);
    }
}

#[cfg(test)]
mod tests {
    use super::super::command::AskedCommand;
    use super::*;

    fn call(method: &str, payload: &str) -> AskedCall {
        match AskedCommand::read(method, payload) {
            AskedCommand::Publish { call, .. } | AskedCommand::Other(call) => call,
            AskedCommand::Nothing(why) | AskedCommand::Unreadable(why) => panic!("{why}"),
        }
    }

    #[test]
    fn what_would_undo_something_later_is_known_by_what_it_changes() {
        let mut marks = RepetitionMarks::default();
        for (number, method, payload) in [
            (5, "publish", r#"{"channel":"a"}"#),
            (6, "broadcast", r#"{"channels":["b","c"]}"#),
            (7, "subscribe", r#"{"user":"1","channel":"a"}"#),
            (8, "disconnect", r#"{"user":"2"}"#),
        ] {
            marks.note(call(method, payload).changes(), (number.into(), number));
        }
        for (method, payload, last) in [
            ("history_remove", r#"{"channel":"a"}"#, 5),
            ("history_remove", r#"{"channel":"c"}"#, 6),
            ("history_remove", r#"{"channel":"d"}"#, 0),
            ("unsubscribe", r#"{"user":"1","channel":"a"}"#, 7),
            ("unsubscribe", r#"{"user":"1","channel":"b"}"#, 0),
            ("disconnect", r#"{"user":"1"}"#, 0),
            ("disconnect", r#"{"user":"2"}"#, 8),
            ("disconnect", r#"{"users":["2"]}"#, 8),
            ("disconnect", r#"{"users":["2","3"]}"#, 0),
            ("disconnect", r#"{"user":"2","client":"c"}"#, 0),
            ("disconnect", r#"{"client":"c"}"#, 0),
            ("refresh", r#"{"user":"2"}"#, 0),
            ("publish", r#"{"channel":"a"}"#, 0),
        ] {
            let call = call(method, payload);
            let known = [4, 5, 6, 7, 8, 9].map(|number| marks.undoes(&call, (number.into(), number)));
            assert_eq!(known, [4, 5, 6, 7, 8, 9].map(|number| number <= last), "{method} {payload}");
        }
        let remove = call("history_remove", r#"{"channel":"a"}"#);
        assert!(!marks.undoes(&remove, (100, 1)), "a stream that was made anew");
        marks.forget(5);
        assert!(!marks.undoes(&remove, (4, 4)) && marks.0.len() == 4, "what is acknowledged does not come again");
    }

    #[test]
    fn marks_beyond_the_limit_are_forgotten_lowest_first() {
        let mut marks = RepetitionMarks::default();
        for number in 0..=MARKS_MAX as u64 {
            marks.note(vec![number.to_string()], (number.into(), number));
        }
        assert!(marks.0.len() <= MARKS_MAX && marks.0.contains_key(&MARKS_MAX.to_string()));
        assert!(!marks.0.contains_key("0"));
    }
}
