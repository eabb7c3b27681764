//! What the caller of the server API can do about a refusal. The caller has a key, so the answer names the channel, the
//! scope, the key of the configuration and the nearest name.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::value::RawValue;
use touchline_config::nearest;
use touchline_protocol::Error;

use super::operation::{OperationError, RequestNode};

/// The longest name of a caller that an answer repeats, in bytes.
const SHOWN_MAX: usize = 64;
/// How many refused channels of one broadcast have a detail. The first ones show the mistake, and each is compared with
/// all namespaces.
pub(super) const EXPLAINED: usize = 16;
/// How many unknown fields of one request are compared with the known ones.
const UNKNOWN_FIELDS: usize = 16;

/// A refused request: the operation with the names of its fields, and the parameters as JSON.
pub(super) struct RefusedRequest<'r> {
    pub(super) operation: &'r str,
    pub(super) fields: Vec<&'static str>,
    pub(super) params: &'r [u8],
}

/// The members of the parameters.
type RequestMembers<'r> = BTreeMap<Cow<'r, str>, &'r RawValue>;

impl RefusedRequest<'_> {
    /// Adds the remedy to a refusal that has no detail, and the channel for the log.
    pub(super) fn explain(&self, node: RequestNode<'_>, refusal: OperationError) -> OperationError {
        let members: RequestMembers<'_> = serde_json::from_slice(self.params).unwrap_or_default();
        let channel = self.channel(node, &members, refusal.error);
        let detail = refusal.detail.or_else(|| {
            match refusal.error {
                Error::BAD_REQUEST => self.bad_field(node, refusal.field?, &members),
                Error::NO_SUCH_SCOPE => unknown_scope(node, &text(&members, "scope")?),
                Error::NOT_AVAILABLE if refusal.field.is_none() => {
                    feature(self.operation, &place(node, channel.as_deref()), text(&members, "scope").as_deref())
                }
                error => of_channel(node, error, channel.as_deref()),
            }
            .map(Into::into)
        });
        OperationError { detail, channel: channel.map(|name| cut(&name).into()), ..refusal }
    }

    /// A member that is not a field of the operation, with the nearest field. `None` = there is none.
    pub(super) fn unknown_field(&self) -> Option<String> {
        let members: RequestMembers<'_> = serde_json::from_slice(self.params).ok()?;
        let name = members.keys().find(|name| !self.fields.contains(&name.as_ref()))?;
        let suggestion = suggestion(name, self.fields.iter().copied());
        Some(format!("{} is not a field of {}{suggestion}", shown(name), self.operation))
    }

    /// The channel that the refusal is about.
    fn channel<'m>(&self, node: RequestNode<'_>, members: &RequestMembers<'m>, error: Error) -> Option<Cow<'m, str>> {
        let of_list = || {
            let channels: Vec<Cow<'m, str>> = serde_json::from_str(members.get("channels")?.get()).ok()?;
            let namespaces = &node.generation().session.namespaces;
            channels.into_iter().find(|channel| namespaces.resolve(channel).err() == Some(error))
        };
        text(members, "channel").or_else(of_list)
    }

    /// What is wrong with a field: it is missing, perhaps because another name was written.
    fn bad_field(&self, node: RequestNode<'_>, field: &str, members: &RequestMembers<'_>) -> Option<String> {
        match members.get(field).map(|value| value.get()) {
            None | Some("null") => {
                let is_unknown = |name: &&str| !self.fields.contains(name);
                let mut unknown = members.keys().map(AsRef::as_ref).filter(is_unknown).take(UNKNOWN_FIELDS);
                let written = unknown.find(|name| meant(name, self.fields.iter().copied()) == Some(field));
                Some(match written {
                    Some(name) => format!("{} is not a field of {}: write {field}", shown(name), self.operation),
                    None => format!("{field} is missing"),
                })
            }
            Some("\"\"") => Some(format!("{field} is empty")),
            Some("[]") => Some(format!("{field} is an empty list")),
            Some(_) => Some(match field {
                "channel" | "channels" => bad_channel(node, text(members, field).as_deref()),
                "b64data" | "b64info" => format!("{field} is not base64 of a payload"),
                "client" => "client is not the id of a client".to_owned(),
                _ => format!("{field} is too long, out of range, or contradicts another field"),
            }),
        }
    }
}

/// Adds the remedy to the refusal of one channel of a broadcast, and the channel for the log.
pub(super) fn explained_channel(node: RequestNode<'_>, channel: &str, refusal: OperationError) -> OperationError {
    let detail = refusal.detail.or_else(|| match refusal.error {
        Error::BAD_REQUEST if refusal.field == Some("channels") => Some(bad_channel(node, Some(channel)).into()),
        error => of_channel(node, error, Some(channel)).map(Into::into),
    });
    OperationError { detail, channel: Some(cut(channel).into()), ..refusal }
}

/// The detail of an error that the channel of the request, or its home, causes.
fn of_channel(node: RequestNode<'_>, error: Error, channel: Option<&str>) -> Option<String> {
    match error {
        Error::UNKNOWN_CHANNEL => unknown_namespace(node, channel?),
        Error::CLUSTER_UNREACHABLE => Some(match node.stream_fault() {
            fault if fault.is_empty() => "NATS cannot be reached: start NATS, or correct cluster.nats_url".to_owned(),
            fault => fault,
        }),
        _ => None,
    }
}

/// What is wrong with the name of a channel. `None` = one of several channels.
fn bad_channel(node: RequestNode<'_>, channel: Option<&str>) -> String {
    let longest = node.generation().session.namespaces.settings().max_length;
    match channel {
        Some("") => "the name of a channel is empty".to_owned(),
        Some(channel) if channel.len() > longest => {
            format!("the name of the channel is longer than channel.max_length ({longest} bytes)")
        }
        Some(_) => "the name of the channel has control characters, or does not fit channel_regex".to_owned(),
        None => format!(
            "the name of a channel is empty, longer than channel.max_length ({longest} bytes), has control \
             characters, or does not fit channel_regex; or the list is too long"
        ),
    }
}

/// The detail of a refusal of a name that no operation has. `names`: the names of all operations.
pub(super) fn unknown_operation(name: &str, names: impl Iterator<Item = &'static str>) -> String {
    format!("no operation is named {}{}", shown(name), suggestion(name, names))
}

fn unknown_namespace(node: RequestNode<'_>, channel: &str) -> Option<String> {
    let generation = node.generation();
    let name = generation.session.namespaces.namespace_of(channel);
    let known = generation.settings.channel.namespaces.iter().map(|namespace| namespace.name.as_str());
    Some(format!("no namespace of channel.namespaces is named {}{}", shown(name), suggestion(name, known)))
}

fn unknown_scope(node: RequestNode<'_>, name: &str) -> Option<String> {
    let generation = node.generation();
    let known = generation.settings.registry.scopes.iter().map(|scope| scope.name.as_str());
    Some(format!("no scope of registry.scopes is named {}{}", shown(name), suggestion(name, known)))
}

/// What is off, and what to set. `place`: the section of the channel's options.
fn feature(operation: &str, place: &str, scope: Option<&str>) -> Option<String> {
    let of_scope = || scope.map_or("registry.scopes[]".to_owned(), |scope| format!("registry.scopes[{}]", cut(scope)));
    Some(match operation {
        "presence" | "presence_stats" => format!("presence is off: set {place}.presence = true"),
        "history" | "history_remove" => {
            format!("history is off: set {place}.history_size and {place}.history_ttl")
        }
        "changes" => format!("changes are off: set {}.allow_watch_for_client = true", of_scope()),
        "send" | "inbox_names" | "inbox_list" | "inbox_drop" => {
            format!("inboxes are off: set {}.inbox_size", of_scope())
        }
        "events_dead" | "events_dead_retry" | "events_dead_drop" | "events_resume" => {
            "no endpoint is in [[events]]: add one".to_owned()
        }
        "channel_set" | "channel_get" | "channel_remove" | "channels_search" | "channels_similar" => {
            "the directory of channels is off: set store.directory = true".to_owned()
        }
        _ if operation.starts_with("stats_") => "statistics are off: set store.stats.enabled = true".to_owned(),
        _ => return None,
    })
}

/// The section with the options of a channel, as `touchline check` writes it.
fn place(node: RequestNode<'_>, channel: Option<&str>) -> String {
    match channel.map(|channel| node.generation().session.namespaces.namespace_of(channel).to_owned()) {
        Some(name) if !name.is_empty() => format!("channel.namespaces[{}]", cut(&name)),
        _ => "channel.without_namespace".to_owned(),
    }
}

/// A member that is a text.
fn text<'r>(members: &RequestMembers<'r>, name: &str) -> Option<Cow<'r, str>> {
    serde_json::from_str(members.get(name)?.get()).ok()
}

fn suggestion<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> String {
    meant(name, known).map_or(String::new(), |known| format!("; did you mean {known}?"))
}

/// The known name that a mistyped one means. A long name is not compared, because that takes time.
fn meant<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    if name.len() > SHOWN_MAX { None } else { nearest(name, known) }
}

/// A name of the caller as an answer repeats it.
fn shown(name: &str) -> String {
    format!("{:?}", cut(name))
}

fn cut(name: &str) -> &str {
    &name[..name.floor_char_boundary(SHOWN_MAX)]
}
