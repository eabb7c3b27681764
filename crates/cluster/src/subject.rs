//! The NATS subjects. Names of channels, scopes and nodes may contain any character, so subjects contain them as
//! base64url.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use touchline_protocol::fact::FactKey;

/// Encodes a name as one token of a subject.
pub(crate) fn token(name: &str) -> String {
    if name.is_empty() { "-".into() } else { URL_SAFE_NO_PAD.encode(name) }
}

/// Decodes a token to a name. `None` = the token was not made by this module.
pub(crate) fn name(token: &str) -> Option<String> {
    if token == "-" {
        return Some(String::new());
    }
    String::from_utf8(URL_SAFE_NO_PAD.decode(token).ok()?).ok()
}

/// Decodes the epoch of a token: ten hexadecimal digits.
fn epoch(token: &str) -> Option<u64> {
    u64::from_str_radix(token, 16).ok().filter(|_| token.len() == 10)
}

/// The subjects of one cluster. Subjects for messages between nodes contain the version of the messages. So a node that
/// does not support it does not receive them.
#[derive(Debug, Clone)]
pub(crate) struct Subjects {
    prefix: String,
}

impl Subjects {
    pub(crate) fn new(cluster: &str) -> Self {
        Subjects { prefix: format!("touchline.{}", token(cluster)) }
    }

    /// The subject of hellos, which nodes of every version receive.
    pub(crate) fn hello(&self) -> String {
        format!("{}.hello", self.prefix)
    }

    /// The subject of probes of a node.
    pub(crate) fn probe(&self, node: &str) -> String {
        format!("{}.probe.{}", self.prefix, token(node))
    }

    /// The subject of messages for a registry scope on one node. `None` = on all nodes.
    pub(crate) fn scope_message(&self, version: u32, scope: &str, to: Option<&str>) -> String {
        match to {
            Some(node) => format!("{}.v{version}.link.{}.{}", self.prefix, token(scope), token(node)),
            None => format!("{}.v{version}.link.{}", self.prefix, token(scope)),
        }
    }

    /// The subject of messages to a node's directory from another node (or `*`).
    pub(crate) fn directory_message(&self, version: u32, to: &str, from: &str) -> String {
        let from = if from == "*" { "*".into() } else { token(from) };
        format!("{}.v{version}.node.{}.{from}", self.prefix, token(to))
    }

    /// The subject of broadcasts to all nodes from one node (or `*`).
    pub(crate) fn broadcast(&self, version: u32, from: &str) -> String {
        let from = if from == "*" { "*".into() } else { token(from) };
        format!("{}.v{version}.order.{from}", self.prefix)
    }

    /// The subject of a node's messages to itself. An echo proves that the server has processed all commands before it.
    pub(crate) fn echo(&self, node: &str) -> String {
        format!("{}.echo.{}", self.prefix, token(node))
    }

    /// The subject of all publications of a channel, stored and ephemeral, for subscribed nodes.
    pub(crate) fn channel_events(&self, channel: &str) -> String {
        format!("{}.happening.*.*.{}", self.prefix, token(channel))
    }

    /// The epoch of the stream that has republished a message under this subject.
    pub(crate) fn stored_epoch(&self, subject: &str) -> Option<u64> {
        epoch(subject.strip_prefix(&self.prefix)?.strip_prefix(".happening.stored.")?.split('.').next()?)
    }

    /// The subject of a channel's publications that are not stored. It tells a node what it has sent before its link
    /// was lost. `link`: the number of the node's link.
    pub(crate) fn ephemeral(&self, channel: &str, node: &str, link: u64) -> String {
        format!("{}.happening.passing.{}={link}.{}", self.prefix, token(node), token(channel))
    }

    /// The number of the link over which this node sent a publication under this subject. `None` = another node sent
    /// it.
    pub(crate) fn own_link(&self, subject: &str, node: &str) -> Option<u64> {
        let rest = subject.strip_prefix(&self.prefix)?.strip_prefix(".happening.passing.")?;
        let (sender, link) = rest.split('.').next()?.split_once('=')?;
        link.parse().ok().filter(|_| sender == token(node))
    }

    /// The subject under which a stream republishes the publications of all channels after storing them.
    pub(crate) fn republished(&self, epoch: u64) -> String {
        format!("{}.happening.stored.{epoch:010x}.>", self.prefix)
    }

    /// The subject under which publications of a channel with history are stored, in one life of its stream. `channel`
    /// may be `>`.
    pub(crate) fn stored(&self, namespace: &str, epoch: u64, channel: &str) -> String {
        let channel = if channel == ">" { ">".into() } else { token(channel) };
        format!("{}.keep.{}.{epoch:010x}.{channel}", self.prefix, token(namespace))
    }

    /// The epoch of a namespace's stream from its subjects. `None` = they were not made by this program.
    pub(crate) fn epoch_of(&self, namespace: &str, subjects: &[String]) -> Option<u64> {
        let [subject] = subjects else { return None };
        let epoch = self::epoch(subject.strip_suffix(".>")?.rsplit('.').next()?)?;
        (*subject == self.stored(namespace, epoch, ">")).then_some(epoch)
    }

    /// The name of the bucket of shared facts.
    pub(crate) fn fact_bucket(&self) -> String {
        format!("{}_facts", self.prefix.replace('.', "_"))
    }

    /// The subjects of all shared facts, in the usual format of a key-value bucket.
    pub(crate) fn facts(&self) -> String {
        format!("$KV.{}.>", self.fact_bucket())
    }

    /// The subject of a shared fact.
    pub(crate) fn fact(&self, key: &FactKey) -> String {
        format!("$KV.{}.{}.{}", self.fact_bucket(), key.kind, token(&key.name))
    }

    /// The key of the fact with this subject. `None` = it is not the subject of a fact.
    pub(crate) fn fact_key(&self, subject: &str) -> Option<FactKey> {
        let prefix = format!("$KV.{}.", self.fact_bucket());
        let (kind, name) = subject.strip_prefix(&prefix)?.split_once('.')?;
        Some(FactKey { kind: kind.into(), name: self::name(name)?.into() })
    }

    /// The name of a namespace's stream.
    pub(crate) fn stream(&self, namespace: &str) -> String {
        format!("{}_{}", self.prefix.replace('.', "_"), token(namespace))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_name_is_one_token_and_comes_back() {
        for text in ["", "news", "a.b", "*", ">", "match:live game#1,2", "日本"] {
            let token = token(text);
            assert!(!token.contains(['.', '*', '>', ' ']) && !token.is_empty(), "{token}");
            assert_eq!(name(&token).as_deref(), Some(text));
        }
        assert_eq!(name("!"), None);
    }

    #[test]
    fn any_fact_has_a_subject_and_comes_back() {
        let subjects = Subjects::new("live");
        for name in ["ann", "a.b", "*", ">", "日本"] {
            let key = FactKey { kind: "user_block".into(), name: name.into() };
            let subject = subjects.fact(&key);
            assert_eq!(subject.split('.').count(), 4, "{subject}");
            assert_eq!(subjects.fact_key(&subject), Some(key));
        }
        for other in ["$KV.other.user_block.YQ", "$KV.touchline_bGl2ZQ_facts.user_block", "x"] {
            assert_eq!(subjects.fact_key(other), None, "{other}");
        }
        // Clusters find their existing facts by this subject.
        assert_eq!(subjects.facts(), "$KV.touchline_bGl2ZQ_facts.>");
    }

    #[test]
    fn a_streams_epoch_stands_in_its_subjects() {
        let subjects = Subjects::new("live");
        let of = |subject: String| subjects.epoch_of("news", &[subject]);
        assert_eq!(of(subjects.stored("news", 0xab_cdef_0123, ">")), Some(0xab_cdef_0123));
        assert_eq!(of(subjects.stored("news", 7, ">")), Some(7));
        assert_eq!(of(subjects.stored("other", 7, ">")), None);
        assert_eq!(of("orders.>".into()), None);
        let republished = subjects.republished(7).replace('>', &token("news:1"));
        assert_eq!(subjects.stored_epoch(&republished), Some(7));
        assert_eq!(subjects.stored_epoch(&subjects.ephemeral("news:1", "node", 7)), None);
        let sent = subjects.ephemeral("news:1", "a", 7);
        assert_eq!((subjects.own_link(&sent, "a"), subjects.own_link(&sent, "b")), (Some(7), None));
    }
}
