//! Follows one channel with the JSON client protocol: what to send, what to print, and the position. It uses no
//! sockets.

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

/// Ids of the commands. A new subscribe command on the same connection uses the same id.
const CONNECT: u32 = 1;
const SUBSCRIBE: u32 = 2;

/// What the watcher must do after a message from the server.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Print this unchanged publication on stdout.
    Print(String),
    /// Print this event on stderr.
    Tell(String),
    /// Send this message to the server.
    Send(String),
    /// Expect a ping of the server within this time, seconds. 0 = the server sends no pings.
    Pings(u32),
    /// Reconnect, for this reason.
    Reconnect(String),
    /// Stop for good, for this reason.
    Fail(String),
}

/// The state of a followed channel: what to subscribe to, and the position reached.
pub(super) struct Follower {
    channel: String,
    token: Option<String>,
    subscription_token: Option<String>,
    position: Option<FollowerPosition>,
    answers_pings: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct FollowerPosition {
    offset: u64,
    epoch: String,
}

#[derive(Deserialize)]
struct ReplyJson<'a> {
    #[serde(default)]
    id: u32,
    error: Option<ErrorReply>,
    connect: Option<ConnectJson>,
    #[serde(borrow)]
    subscribe: Option<SubscribeJson<'a>>,
    #[serde(borrow)]
    push: Option<PushJson<'a>>,
}

#[derive(Deserialize)]
struct ErrorReply {
    code: u32,
    #[serde(default)]
    message: String,
    #[serde(default)]
    temporary: bool,
}

#[derive(Deserialize)]
struct ConnectJson {
    #[serde(default)]
    ping: u32,
    #[serde(default)]
    pong: bool,
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct SubscribeJson<'a> {
    epoch: String,
    offset: u64,
    positioned: bool,
    recoverable: bool,
    recovered: bool,
    was_recovering: bool,
    #[serde(borrow)]
    publications: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct PushJson<'a> {
    #[serde(default)]
    channel: String,
    #[serde(borrow, rename = "pub")]
    publication: Option<&'a RawValue>,
    unsubscribe: Option<EndReason>,
    disconnect: Option<EndReason>,
}

#[derive(Deserialize)]
struct EndReason {
    code: u32,
    #[serde(default)]
    reason: String,
}

#[derive(Deserialize)]
struct OffsetJson {
    #[serde(default)]
    offset: u64,
}

impl Follower {
    /// A follower without a position.
    pub(super) fn new(channel: String, token: Option<String>, subscription_token: Option<String>) -> Self {
        Follower { channel, token, subscription_token, position: None, answers_pings: false }
    }

    /// The first frame of a connection: the connect and the subscribe command.
    pub(super) fn greeting(&self) -> String {
        let mut connect = json!({"name": "touchline watch", "version": touchline_server::VERSION});
        if let Some(token) = &self.token {
            connect["token"] = json!(token);
        }
        format!("{}\n{}", json!({"id": CONNECT, "connect": connect}), self.subscribe())
    }

    fn subscribe(&self) -> String {
        let mut subscribe = json!({"channel": self.channel, "positioned": true, "recoverable": true});
        if let Some(token) = &self.subscription_token {
            subscribe["token"] = json!(token);
        }
        if let Some(FollowerPosition { offset, epoch }) = &self.position {
            subscribe["recover"] = json!(true);
            subscribe["offset"] = json!(offset);
            subscribe["epoch"] = json!(epoch);
        }
        json!({"id": SUBSCRIBE, "subscribe": subscribe}).to_string()
    }

    /// Processes one frame of the server: replies and pushes, one per line.
    pub(super) fn take(&mut self, frame: &str) -> Vec<Effect> {
        let mut effects = Vec::new();
        for line in frame.split('\n').filter(|line| !line.trim().is_empty()) {
            match serde_json::from_str::<ReplyJson<'_>>(line) {
                Ok(reply) => self.take_reply(reply, &mut effects),
                Err(error) => {
                    effects.push(Effect::Fail(format!("the server does not use the client protocol ({error})")))
                }
            }
        }
        effects
    }

    fn take_reply(&mut self, reply: ReplyJson<'_>, effects: &mut Vec<Effect>) {
        if let Some(error) = reply.error {
            let verb = if reply.id == CONNECT { "connect" } else { "subscribe" };
            let text = format!("failed to {verb}: error {}: {}", error.code, error.message);
            effects.push(if error.temporary { Effect::Reconnect(text) } else { Effect::Fail(text) });
        } else if let Some(connect) = reply.connect {
            self.answers_pings = connect.pong;
            effects.push(Effect::Pings(connect.ping));
        } else if let Some(subscribe) = reply.subscribe {
            self.take_subscription(subscribe, effects);
        } else if let Some(push) = reply.push {
            self.take_push(push, effects);
        } else if reply.id == 0 && self.answers_pings {
            effects.push(Effect::Send("{}".to_owned()));
        }
    }

    fn take_subscription(&mut self, result: SubscribeJson<'_>, effects: &mut Vec<Effect>) {
        let channel = &self.channel;
        effects.push(Effect::Tell(if !result.was_recovering {
            format!("watching {channel}")
        } else if result.recovered {
            format!("back on {channel}: caught up with {} publications", result.publications.len())
        } else {
            format!("back on {channel}: missed publications could not be recovered")
        }));
        let has_position = result.positioned || result.recoverable;
        self.position = has_position.then_some(FollowerPosition { offset: result.offset, epoch: result.epoch });
        for publication in result.publications {
            self.take_publication(publication, effects);
        }
    }

    fn take_push(&mut self, push: PushJson<'_>, effects: &mut Vec<Effect>) {
        if let Some(EndReason { code, reason }) = push.disconnect {
            effects.push(ended(code, &reason));
        } else if push.channel == self.channel {
            if let Some(publication) = push.publication {
                self.take_publication(publication, effects);
            } else if let Some(EndReason { code, reason }) = push.unsubscribe {
                let text = format!("unsubscribed: {reason} ({code})");
                if code < 2500 {
                    effects.push(Effect::Fail(text));
                } else {
                    effects.extend([Effect::Tell(text), Effect::Send(self.subscribe())]);
                }
            }
        }
    }

    fn take_publication(&mut self, publication: &RawValue, effects: &mut Vec<Effect>) {
        if let (Some(position), Ok(OffsetJson { offset })) =
            (&mut self.position, serde_json::from_str(publication.get()))
        {
            position.offset = position.offset.max(offset);
        }
        effects.push(Effect::Print(publication.get().to_owned()));
    }
}

/// The effect of a disconnect. Its code says whether to reconnect.
pub(super) fn ended(code: u32, reason: &str) -> Effect {
    let remedy = if code == 3500 { ": `touchline token --check TOKEN --config FILE` says why" } else { "" };
    let text = format!("disconnected: {reason} ({code}){remedy}");
    let is_final = matches!(code, 1009 | 3500..=3999 | 4500..=4999);
    if is_final { Effect::Fail(text) } else { Effect::Reconnect(text) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Effect::{Fail, Pings, Print, Reconnect, Send, Tell};

    fn follower() -> Follower {
        Follower::new("match:live".into(), Some("jwt".into()), None)
    }

    #[test]
    fn a_greeting_connects_and_subscribes() {
        let greeting = follower().greeting();
        let (connect, subscribe) = greeting.split_once('\n').expect("two commands");
        assert!(connect.contains(r#""token":"jwt""#), "{connect}");
        assert!(!subscribe.contains("recover\""), "{subscribe}");
    }

    #[test]
    fn publications_are_printed_as_they_came_and_move_the_position() {
        let mut follower = follower();
        let replies = r#"{"id":1,"connect":{"client":"c","version":"1","ping":25,"pong":true}}
{"id":2,"subscribe":{"recoverable":true,"positioned":true,"epoch":"abc","offset":3}}"#;
        assert_eq!(follower.take(replies), [Pings(25), Tell("watching match:live".into())]);
        let push = r#"{"push":{"channel":"match:live","pub":{"data":{"a": 1},"offset":4}}}"#;
        assert_eq!(follower.take(push), [Print(r#"{"data":{"a": 1},"offset":4}"#.into())]);
        assert_eq!(follower.take("{}"), [Send("{}".into())]);
        let greeting = follower.greeting();
        assert!(
            greeting.contains(r#""epoch":"abc","offset":4"#) && greeting.contains(r#""recover":true"#),
            "{greeting}"
        );
        let back = concat!(
            r#"{"id":2,"subscribe":{"recoverable":true,"epoch":"abc","offset":4,"recovered":true,"#,
            r#""was_recovering":true,"publications":[{"data":1,"offset":5},{"data":2,"offset":6}]}}"#,
        );
        let effects = follower.take(back);
        assert_eq!(effects[0], Tell("back on match:live: caught up with 2 publications".into()));
        assert_eq!(effects[2], Print(r#"{"data":2,"offset":6}"#.into()));
        assert_eq!(follower.position, Some(FollowerPosition { offset: 6, epoch: "abc".into() }));
        let lost = r#"{"id":2,"subscribe":{"recoverable":true,"epoch":"xyz","offset":1,"was_recovering":true}}"#;
        assert_eq!(
            follower.take(lost),
            [Tell("back on match:live: missed publications could not be recovered".into())]
        );
        assert_eq!(follower.position, Some(FollowerPosition { offset: 1, epoch: "xyz".into() }));
    }

    #[test]
    fn codes_tell_whether_to_come_back() {
        let mut follower = follower();
        for (message, expected) in [
            (
                r#"{"push":{"disconnect":{"code":3001,"reason":"shutdown"}}}"#,
                Reconnect("disconnected: shutdown (3001)".into()),
            ),
            (
                r#"{"push":{"disconnect":{"code":3500,"reason":"invalid token"}}}"#,
                Fail(
                    "disconnected: invalid token (3500): `touchline token --check TOKEN --config FILE` says why".into(),
                ),
            ),
            (
                r#"{"id":2,"error":{"code":102,"message":"unknown channel"}}"#,
                Fail("failed to subscribe: error 102: unknown channel".into()),
            ),
            (
                r#"{"id":1,"error":{"code":100,"message":"internal","temporary":true}}"#,
                Reconnect("failed to connect: error 100: internal".into()),
            ),
            (
                r#"{"push":{"channel":"match:live","unsubscribe":{"code":2000,"reason":"server unsubscribe"}}}"#,
                Fail("unsubscribed: server unsubscribe (2000)".into()),
            ),
        ] {
            assert_eq!(follower.take(message), [expected], "{message}");
        }
        let insufficient =
            r#"{"push":{"channel":"match:live","unsubscribe":{"code":2500,"reason":"insufficient state"}}}"#;
        assert_eq!(follower.take(insufficient)[1], Send(follower.subscribe()));
        assert!(matches!(follower.take("no json")[..], [Fail(_)]));
    }
}
