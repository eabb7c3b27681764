//! Commands in their JSON form.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, Visitor};

use super::types::{Command, CommandKind};
use crate::data::Object;

/// The fields of a command object.
#[derive(Clone, Copy, serde::Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum JsonMember {
    Id,
    Connect,
    Send,
    Subscribe,
    Unsubscribe,
    Publish,
    Presence,
    PresenceStats,
    History,
    Rpc,
    Refresh,
    SubRefresh,
    #[serde(other)]
    Unknown,
}

/// Reads one command. Derived code would reserve space for every operation at once, and move it several times for each
/// command.
struct CommandReader;

impl<'de: 'a, 'a> Deserialize<'de> for Command<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(CommandReader)
    }
}

impl<'de> Visitor<'de> for CommandReader {
    type Value = Command<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a command")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Command<'de>, A::Error> {
        let mut command = Command::default();
        let mut seen = 0_u16;
        while let Some(member) = map.next_key::<JsonMember>()? {
            let bit = 1 << member as u16;
            if seen & bit != 0 && !matches!(member, JsonMember::Unknown) {
                return Err(A::Error::custom("a member is there twice"));
            }
            seen |= bit;
            let operation = match member {
                JsonMember::Id => {
                    command.id = map.next_value::<Option<u32>>()?.unwrap_or_default();
                    None
                }
                JsonMember::Connect => {
                    map.next_value::<Option<Object<_>>>()?.map(|request| CommandKind::Connect(request.0))
                }
                JsonMember::Send => map.next_value::<Option<Object<_>>>()?.map(|request| CommandKind::Send(request.0)),
                JsonMember::Subscribe => {
                    map.next_value::<Option<Object<_>>>()?.map(|request| CommandKind::Subscribe(request.0))
                }
                JsonMember::Unsubscribe => {
                    map.next_value::<Option<Object<_>>>()?.map(|request| CommandKind::Unsubscribe(request.0))
                }
                JsonMember::Publish => {
                    map.next_value::<Option<Object<_>>>()?.map(|request| CommandKind::Publish(request.0))
                }
                JsonMember::Presence => {
                    map.next_value::<Option<Object<_>>>()?.map(|request| CommandKind::Presence(request.0))
                }
                JsonMember::PresenceStats => {
                    map.next_value::<Option<Object<_>>>()?.map(|request| CommandKind::PresenceStats(request.0))
                }
                JsonMember::History => {
                    map.next_value::<Option<Object<_>>>()?.map(|request| CommandKind::History(request.0))
                }
                JsonMember::Rpc => map.next_value::<Option<Object<_>>>()?.map(|request| CommandKind::Rpc(request.0)),
                JsonMember::Refresh => {
                    map.next_value::<Option<Object<_>>>()?.map(|request| CommandKind::Refresh(request.0))
                }
                JsonMember::SubRefresh => {
                    map.next_value::<Option<Object<_>>>()?.map(|request| CommandKind::SubRefresh(request.0))
                }
                JsonMember::Unknown => {
                    map.next_value::<IgnoredAny>()?;
                    None
                }
            };
            if let Some(operation) = operation {
                command.name(operation);
            }
        }
        Ok(command)
    }
}
