//! Commands in their JSON form.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, Visitor};

use super::{ClientRequest, Command};
use crate::data::Object;

/// The members of a command.
#[derive(Clone, Copy, serde::Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum Member {
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

/// Reads one command. A derived visitor would keep room for every operation at once and move it several times for each
/// command.
struct Reader;

impl<'de: 'a, 'a> Deserialize<'de> for Command<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Reader)
    }
}

impl<'de> Visitor<'de> for Reader {
    type Value = Command<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a command")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Command<'de>, A::Error> {
        let mut command = Command::default();
        let mut seen = 0_u16;
        while let Some(member) = map.next_key::<Member>()? {
            let bit = 1 << member as u16;
            if seen & bit != 0 && !matches!(member, Member::Unknown) {
                return Err(A::Error::custom("a member is there twice"));
            }
            seen |= bit;
            let operation = match member {
                Member::Id => {
                    command.id = map.next_value::<Option<u32>>()?.unwrap_or_default();
                    None
                }
                Member::Connect => {
                    map.next_value::<Option<Object<_>>>()?.map(|request| ClientRequest::Connect(request.0))
                }
                Member::Send => map.next_value::<Option<IgnoredAny>>()?.map(|_| ClientRequest::Send),
                Member::Subscribe => {
                    map.next_value::<Option<Object<_>>>()?.map(|request| ClientRequest::Subscribe(request.0))
                }
                Member::Unsubscribe => {
                    map.next_value::<Option<Object<_>>>()?.map(|request| ClientRequest::Unsubscribe(request.0))
                }
                Member::Publish => {
                    map.next_value::<Option<Object<_>>>()?.map(|request| ClientRequest::Publish(request.0))
                }
                Member::Presence => {
                    map.next_value::<Option<Object<_>>>()?.map(|request| ClientRequest::Presence(request.0))
                }
                Member::PresenceStats => {
                    map.next_value::<Option<Object<_>>>()?.map(|request| ClientRequest::PresenceStats(request.0))
                }
                Member::History => {
                    map.next_value::<Option<Object<_>>>()?.map(|request| ClientRequest::History(request.0))
                }
                Member::Rpc => map.next_value::<Option<Object<_>>>()?.map(|request| ClientRequest::Rpc(request.0)),
                Member::Refresh => {
                    map.next_value::<Option<Object<_>>>()?.map(|request| ClientRequest::Refresh(request.0))
                }
                Member::SubRefresh => {
                    map.next_value::<Option<Object<_>>>()?.map(|request| ClientRequest::SubRefresh(request.0))
                }
                Member::Unknown => {
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
