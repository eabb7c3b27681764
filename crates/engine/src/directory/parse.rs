//! Reads the parameters of the registry's methods.

use std::borrow::Cow;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use touchline_protocol::{Error, data};
use touchline_registry::{OwnerId, Stamp};

use super::client_id::client_from_text;
use super::inbox::WINDOW;
use super::method::RegistryMethod;
use super::optional::given;
use super::request::{DirectoryRequest, Listing, Target};
use super::scope::{ScopeId, Scopes};
use super::watch_position;

/// How long a call waits if its parameters have no timeout, milliseconds.
const CALL_TIMEOUT_MS: u64 = 5_000;
/// Entries of a page: by default, and at most.
const PAGE: usize = 100;
const PAGE_MAX: usize = 1_000;
// A page by default is one that a client may ask for.
const _: () = assert!(PAGE <= PAGE_MAX);
/// Messages that one `inbox.ack` may name.
const ACKNOWLEDGED_MAX: usize = 1_000;
// One request acknowledges all messages that wait for it.
const _: () = assert!(WINDOW <= ACKNOWLEDGED_MAX);

/// The parameters of every method; each uses some.
#[derive(Deserialize, Default)]
#[serde(default)]
struct RequestParams<'a> {
    #[serde(borrow)]
    scope: Cow<'a, str>,
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    group: Cow<'a, str>,
    #[serde(borrow)]
    prefix: Cow<'a, str>,
    /// `newest`: take the name over.
    #[serde(borrow)]
    policy: Cow<'a, str>,
    /// The version from a lookup's reply.
    #[serde(borrow)]
    version: Cow<'a, str>,
    #[serde(borrow, deserialize_with = "given")]
    meta: Option<&'a RawValue>,
    /// `null` is a value as any other.
    #[serde(borrow, deserialize_with = "given")]
    data: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    /// A client id.
    #[serde(borrow)]
    client: Cow<'a, str>,
    cursor: u32,
    limit: usize,
    timeout_ms: u64,
    call: u64,
    /// Seconds.
    store_for: u64,
    #[serde(borrow)]
    id: Cow<'a, str>,
    ids: Vec<String>,
    /// A position of the scope's changes.
    #[serde(borrow)]
    epoch: Cow<'a, str>,
    offset: u64,
}

impl RequestParams<'_> {
    /// Metadata; empty = `null` or absent.
    fn meta(&self) -> Result<Bytes, Error> {
        self.meta
            .filter(|meta| meta.get() != "null")
            .map(data::checked_payload)
            .transpose()
            .map(Option::unwrap_or_default)
    }

    fn data(&self) -> Result<Bytes, Error> {
        data::checked_payload(self.data.ok_or(Error::BAD_REQUEST)?)
    }

    fn target(&self, scope: ScopeId) -> Result<Target, Error> {
        let is_group = !self.group.is_empty();
        if is_group != self.name.is_empty() {
            return Err(Error::BAD_REQUEST);
        }
        Ok(Target { scope, key: if is_group { &*self.group } else { &*self.name }.into(), is_group })
    }

    /// Whether `policy` asks to take a name over from its owner.
    fn take_over(&self) -> Result<bool, Error> {
        match &*self.policy {
            "newest" => Ok(true),
            "" | "oldest" | "reject" => Ok(false),
            _ => Err(Error::BAD_REQUEST),
        }
    }

    /// The version that a name must have; `None` = any.
    fn version(&self) -> Result<Option<(Stamp, u32)>, Error> {
        let text = Some(&*self.version).filter(|text| !text.is_empty());
        text.map(|text| version_from_text(text).ok_or(Error::BAD_REQUEST)).transpose()
    }

    /// The client id; `None` = it is absent.
    fn client(&self) -> Result<Option<OwnerId>, Error> {
        let text = Some(&*self.client).filter(|text| !text.is_empty());
        text.map(|text| client_from_text(text).ok_or(Error::BAD_REQUEST)).transpose()
    }

    /// The reply to a call: the data, or the client's own error.
    fn outcome(&self) -> Result<Result<Bytes, Bytes>, Error> {
        match (self.error, self.data) {
            (Some(error), _) => Ok(Err(data::checked_payload(error)?)),
            (None, Some(data)) => Ok(Ok(data::checked_payload(data)?)),
            // A function without a result replies with `null`.
            (None, None) => Ok(Ok(Bytes::from_static(b"null"))),
        }
    }

    /// Ids of inbox messages: `ids`, then `id`.
    fn message_ids(&self) -> Result<Vec<u64>, Error> {
        if self.ids.len() > ACKNOWLEDGED_MAX {
            return Err(Error::BAD_REQUEST);
        }
        let ids = self.ids.iter().map(|id| &**id).chain((!self.id.is_empty()).then_some(&*self.id));
        ids.map(str::parse).collect::<Result<_, _>>().map_err(|_| Error::BAD_REQUEST)
    }

    fn listing(&self, scope: ScopeId) -> Listing {
        let limit = if self.limit == 0 { PAGE } else { self.limit.min(PAGE_MAX) };
        Listing { scope, prefix: (*self.prefix).into(), cursor: self.cursor, limit }
    }
}

/// Whether a text has characters that no name or group may have: C0 and C1 controls and DEL. Databases and terminals do
/// not handle them.
pub(crate) fn has_control(text: &str) -> bool {
    text.chars().any(char::is_control)
}

/// The request that a method with these parameters (JSON) makes.
///
/// # Errors
/// 107 for bad parameters, 4003 for an unknown scope.
pub fn read(method: RegistryMethod, params: &str, scopes: &Scopes) -> Result<DirectoryRequest, Error> {
    let p: RequestParams<'_> = serde_json::from_str(params).map_err(|_| Error::BAD_REQUEST)?;
    if [&p.name, &p.group, &p.prefix].iter().any(|text| has_control(text)) && method.is_operation() {
        return Err(Error::BAD_REQUEST);
    }
    let scope = || scopes.find(&p.scope).ok_or(Error::NO_SUCH_SCOPE);
    let (name, group) = (|| Box::<str>::from(&*p.name), || Box::<str>::from(&*p.group));
    Ok(match method {
        RegistryMethod::Register => {
            let scope = scope()?;
            DirectoryRequest::Register { scope, name: name(), take_over: p.take_over()?, meta: p.meta()? }
        }
        RegistryMethod::Unregister => DirectoryRequest::Unregister { scope: scope()?, name: name() },
        RegistryMethod::UpdateMeta => {
            let scope = scope()?;
            if p.meta.is_none() {
                return Err(Error::BAD_REQUEST);
            }
            DirectoryRequest::UpdateMeta { scope, name: name(), expected: p.version()?, meta: p.meta()? }
        }
        RegistryMethod::Lookup => DirectoryRequest::Lookup { scope: scope()?, name: name() },
        RegistryMethod::Names => DirectoryRequest::Names(p.listing(scope()?)),
        RegistryMethod::Groups => DirectoryRequest::Groups(p.listing(scope()?)),
        RegistryMethod::Changes => {
            DirectoryRequest::Changes { scope: scope()?, position: watch_position::position(&p.epoch, p.offset)? }
        }
        RegistryMethod::Count => DirectoryRequest::Count { scope: scope()? },
        RegistryMethod::Join => DirectoryRequest::Join { scope: scope()?, group: group(), meta: p.meta()? },
        RegistryMethod::Leave => DirectoryRequest::Leave { scope: scope()?, group: group() },
        RegistryMethod::Members if p.limit == 0 && p.cursor == 0 => {
            DirectoryRequest::Members { scope: scope()?, group: group() }
        }
        RegistryMethod::Members => DirectoryRequest::MemberPage { group: group(), listing: p.listing(scope()?) },
        RegistryMethod::Member => DirectoryRequest::Member { scope: scope()?, group: group(), client: p.client()? },
        RegistryMethod::Send => {
            let store_for_ms = p.store_for.saturating_mul(1_000);
            DirectoryRequest::Send { target: p.target(scope()?)?, data: p.data()?, store_for_ms }
        }
        RegistryMethod::Call | RegistryMethod::MultiCall => {
            let timeout_ms = if p.timeout_ms == 0 { CALL_TIMEOUT_MS } else { p.timeout_ms };
            DirectoryRequest::Call { target: p.target(scope()?)?, data: p.data()?, timeout_ms }
        }
        RegistryMethod::Reply => DirectoryRequest::Reply { call: p.call, outcome: p.outcome()? },
        RegistryMethod::AcknowledgeInbox => DirectoryRequest::Acknowledge { ids: p.message_ids()? },
    })
}

/// Reads the text of a stamp and revision, as lookups show it; `None` = it is not valid.
fn version_from_text(text: &str) -> Option<(Stamp, u32)> {
    let (stamp, revision) = text.split_once('.')?;
    Some((Stamp(stamp.parse().ok()?), revision.parse().ok()?))
}
