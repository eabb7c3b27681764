//! The message that a client sends to react.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use touchline_protocol::data::Object;

/// The method that counts a reaction.
pub const REACTIONS_ADD: &str = "reactions.add";
/// The greatest number of reactions in one message.
const N_MAX: u32 = 100;

/// A reaction of a client.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ReactionRequest<'a> {
    /// The channel to react in.
    #[serde(borrow)]
    pub channel: Cow<'a, str>,
    /// The option to react with.
    #[serde(borrow)]
    pub option: Cow<'a, str>,
    /// How many times the client reacts, 1–100.
    #[serde(default = "one")]
    pub n: u32,
}

fn one() -> u32 {
    1
}

/// The data of a `send`: a method and its data.
#[derive(Deserialize)]
struct SentMethod<'a> {
    #[serde(borrow)]
    method: Cow<'a, str>,
    #[serde(borrow)]
    data: &'a RawValue,
}

impl<'a> ReactionRequest<'a> {
    /// Reads the data of an `rpc` with the method [`REACTIONS_ADD`]; `None` = it cannot be read.
    pub fn read(data: &'a str) -> Option<Self> {
        let Object(request): Object<Self> = serde_json::from_str(data).ok()?;
        (1..=N_MAX).contains(&request.n).then_some(request)
    }

    /// Reads the data of `send`. Outer `None` = it has another method, inner `None` = it cannot be read.
    pub fn read_sent(data: &'a str) -> Option<Option<Self>> {
        let Object(sent): Object<SentMethod<'a>> = serde_json::from_str(data).ok()?;
        (sent.method == REACTIONS_ADD).then(|| Self::read(sent.data.get()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reaction_says_channel_and_option_and_perhaps_how_often() {
        let read = |data| ReactionRequest::read(data).map(|request| request.n);
        assert_eq!(read(r#"{"channel":"a","option":"boo"}"#), Some(1));
        assert_eq!(read(r#"{"channel":"a","option":"boo","n":100}"#), Some(100));
        let option = |number: &str| format!(r#"{{"channel":"a","option":"boo","n":{number}}}"#);
        for wrong in ["0", "101", "-1", "1.5", "\"1\"", "null", "99999999999999"] {
            assert_eq!(ReactionRequest::read(&option(wrong)), None, "{wrong}");
        }
        for wrong in [
            "{}",
            "[]",
            "",
            r#"["a","boo",3]"#,
            r#"{"channel":"a"}"#,
            r#"{"option":"a"}"#,
            r#"{"channel":1,"option":"a"}"#,
        ] {
            assert_eq!(ReactionRequest::read(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_sent_names_the_method() {
        let sent = |data| ReactionRequest::read_sent(data).map(|request| request.map(|request| request.n));
        assert_eq!(sent(r#"{"method":"reactions.add","data":{"channel":"a","option":"b","n":2}}"#), Some(Some(2)));
        assert_eq!(sent(r#"{"method":"reactions.add","data":{"channel":"a"}}"#), Some(None));
        assert_eq!(sent(r#"{"method":"other","data":{}}"#), None);
        assert_eq!(sent(r#"{"data":{}}"#), None);
        assert_eq!(sent(r#"["reactions.add",{"channel":"a","option":"b"}]"#), None);
    }
}
