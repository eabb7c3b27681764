//! Reads the parameters of the registry's methods. Each method has a type for its parameters, whose fields the
//! documentation lists.

use std::borrow::Cow;

use bytes::Bytes;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Deserialize;
use serde_json::value::RawValue;
use touchline_protocol::{Error, data};
use touchline_registry::Stamp;

use super::client_id::client_from_text;
use super::inbox::WINDOW;
use super::method::RegistryMethod;
use super::optional::given;
use super::params_fault::ParamsFault;
use super::request::{DirectoryRequest, Listing, Target};
use super::scope::{ScopeId, Scopes};
use super::watch_position::{self, EPOCH_LEN_MAX};
use crate::field_names::field_names;

/// How long a call waits if its parameters have no timeout, milliseconds.
const CALL_TIMEOUT_MS: u64 = 5_000;
/// The default number of entries on a page.
const PAGE: usize = 100;
const PAGE_MAX: usize = 1_000;
// The default page size is one that a client may ask for.
const _: () = assert!(PAGE <= PAGE_MAX);
/// The greatest number of messages that one `inbox.ack` may list.
const ACKNOWLEDGED_MAX: usize = 1_000;
// One request can acknowledge all messages that wait for an acknowledgement.
const _: () = assert!(WINDOW <= ACKNOWLEDGED_MAX);

/// The parameters of a registry method.
trait MethodParams<'a>: Deserialize<'a> {
    /// The request of a method with these parameters.
    fn request(&self, method: RegistryMethod, scopes: &Scopes) -> Result<DirectoryRequest, ParamsFault>;
}

/// Generates everything that depends on all methods' parameters from one table: the methods with their parameter types.
macro_rules! method_params {
    ($($($method:ident)|+ => $params:ident,)*) => {
        /// Reads the request of a method from its parameters (JSON).
        ///
        /// # Errors
        /// 107 for bad parameters, with the wrong one; 4003 for an unknown scope.
        pub fn read(method: RegistryMethod, params: &str, scopes: &Scopes) -> Result<DirectoryRequest, ParamsFault> {
            match method {
                $($(RegistryMethod::$method)|+ => parsed::<$params<'_>>(params)?.request(method, scopes),)*
            }
        }

        /// Whether a method can read parameters of these types (JSON). It may still refuse them.
        pub fn is_readable(method: RegistryMethod, params: &str) -> bool {
            match method {
                $($(RegistryMethod::$method)|+ => parsed::<$params<'_>>(params).is_ok(),)*
            }
        }

        /// The JSON schema of a method's parameters.
        pub fn request_schema(method: RegistryMethod, generator: &mut SchemaGenerator) -> Schema {
            match method {
                $($(RegistryMethod::$method)|+ => $params::json_schema(generator),)*
            }
        }

        /// The names of a method's parameters.
        pub fn request_fields(method: RegistryMethod) -> &'static [&'static str] {
            match method {
                $($(RegistryMethod::$method)|+ => field_names::<$params<'static>>(),)*
            }
        }
    };
}

method_params! {
    Register => RegisterParams,
    Unregister | Lookup => NameParams,
    UpdateMeta => UpdateMetaParams,
    Names => NamesParams,
    Groups => ListingParams,
    Count => ScopeParams,
    Join => JoinParams,
    Leave => GroupParams,
    Members => MembersParams,
    Member => MemberParams,
    Changes => ChangesParams,
    Send => SendParams,
    Call | MultiCall => CallParams,
    Reply => ReplyParams,
    AcknowledgeInbox => AcknowledgeParams,
}

fn parsed<'a, P: MethodParams<'a>>(params: &'a str) -> Result<P, Error> {
    serde_json::from_str(params).map_err(|_| Error::BAD_REQUEST)
}

/// Generates a type for parameters. Each parameter may be absent.
macro_rules! params {
    ($($(#[$doc:meta])* $name:ident { $($(#[$of:meta])* $field:ident: $type:ty,)* })*) => {
        $(#[derive(Deserialize, Default, JsonSchema)]
        $(#[$doc])*
        #[serde(default)]
        struct $name<'a> {
            $($(#[$of])* $field: $type,)*
        })*
    };
}

params! {
    #[schemars(extend("required" = ["scope", "name"]))]
    RegisterParams {
        /// The scope of the name.
        #[serde(borrow)]
        scope: Cow<'a, str>,
        /// The name to register.
        #[serde(borrow)]
        name: Cow<'a, str>,
        /// Metadata, any JSON; `null` = none.
        #[serde(borrow, deserialize_with = "given")]
        meta: Option<&'a RawValue>,
        /// What to do if the name has an owner. `newest`: take it over, if the scope allows it; empty, `oldest`,
        /// `reject`: do not.
        #[serde(borrow)]
        #[schemars(extend("enum" = ["", "newest", "oldest", "reject"]))]
        policy: Cow<'a, str>,
    }
    #[schemars(extend("required" = ["scope", "name"]))]
    NameParams {
        /// The scope of the name.
        #[serde(borrow)]
        scope: Cow<'a, str>,
        /// The name that the operation is about.
        #[serde(borrow)]
        name: Cow<'a, str>,
    }
    #[schemars(extend("required" = ["scope", "name", "meta"]))]
    UpdateMetaParams {
        /// The scope of the name.
        #[serde(borrow)]
        scope: Cow<'a, str>,
        /// The name whose metadata is replaced.
        #[serde(borrow)]
        name: Cow<'a, str>,
        /// The new metadata, any JSON; `null` = none.
        #[serde(borrow, deserialize_with = "given")]
        meta: Option<&'a RawValue>,
        /// The name's expected version, from the reply to a lookup.
        #[serde(borrow)]
        version: Cow<'a, str>,
    }
    #[schemars(extend("required" = ["scope"]))]
    NamesParams {
        /// The scope of the names.
        #[serde(borrow)]
        scope: Cow<'a, str>,
        /// The prefix of the names; empty = all names.
        #[serde(borrow)]
        prefix: Cow<'a, str>,
        /// The greatest number of entries on the page, at most 1,000; 0 = 100.
        limit: usize,
        /// Lists names in order, starting after this name: `last` of the previous page, from any node; empty = the
        /// first page. Absent = names in no order.
        #[serde(borrow)]
        after: Option<Cow<'a, str>>,
        /// For names in no order: where the page begins, the `cursor` of the previous page from the same node; 0 = the
        /// first page.
        cursor: u32,
    }
    #[schemars(extend("required" = ["scope"]))]
    ListingParams {
        /// The scope of the groups.
        #[serde(borrow)]
        scope: Cow<'a, str>,
        /// The prefix of the names; empty = all of them.
        #[serde(borrow)]
        prefix: Cow<'a, str>,
        /// The greatest number of entries on the page, at most 1,000; 0 = 100.
        limit: usize,
        /// Where the page begins: `cursor` of the previous page; 0 = the first page.
        cursor: u32,
    }
    #[schemars(extend("required" = ["scope"]))]
    ScopeParams {
        /// The scope to count.
        #[serde(borrow)]
        scope: Cow<'a, str>,
    }
    #[schemars(extend("required" = ["scope", "group"]))]
    JoinParams {
        /// The scope of the group.
        #[serde(borrow)]
        scope: Cow<'a, str>,
        /// The group to join.
        #[serde(borrow)]
        group: Cow<'a, str>,
        /// Metadata of the membership, any JSON; `null` = none.
        #[serde(borrow, deserialize_with = "given")]
        meta: Option<&'a RawValue>,
    }
    #[schemars(extend("required" = ["scope", "group"]))]
    GroupParams {
        /// The scope of the group.
        #[serde(borrow)]
        scope: Cow<'a, str>,
        /// The group to leave.
        #[serde(borrow)]
        group: Cow<'a, str>,
    }
    #[schemars(extend("required" = ["scope"]))]
    MembersParams {
        /// The scope of the group.
        #[serde(borrow)]
        scope: Cow<'a, str>,
        /// The group whose members are listed.
        #[serde(borrow)]
        group: Cow<'a, str>,
        /// The greatest number of entries on the page, at most 1,000; 0 = 100.
        limit: usize,
        /// Where the page begins: `cursor` of the previous page; 0 = the first page.
        cursor: u32,
    }
    #[schemars(extend("required" = ["scope", "group"]))]
    MemberParams {
        /// The scope of the group.
        #[serde(borrow)]
        scope: Cow<'a, str>,
        /// The group of the member.
        #[serde(borrow)]
        group: Cow<'a, str>,
        /// The client id of the member; empty = the requester.
        #[serde(borrow)]
        client: Cow<'a, str>,
    }
    /// The `offset` and `epoch` are a position in the scope's changes.
    #[schemars(extend("required" = ["scope"]))]
    ChangesParams {
        /// The scope whose changes are read.
        #[serde(borrow)]
        scope: Cow<'a, str>,
        /// The offset of the last change that the requester knows.
        offset: u64,
        /// The epoch of the offset. An empty epoch with an offset of 0 asks for the present position only.
        #[serde(borrow)]
        #[schemars(length(max = EPOCH_LEN_MAX))]
        epoch: Cow<'a, str>,
    }
    #[schemars(extend("required" = ["scope", "data"], "anyOf" = [{"required": ["name"]}, {"required": ["group"]}]))]
    SendParams {
        /// The scope of the name or group.
        #[serde(borrow)]
        scope: Cow<'a, str>,
        /// The name to send to.
        #[serde(borrow)]
        name: Cow<'a, str>,
        /// The group to send to.
        #[serde(borrow)]
        group: Cow<'a, str>,
        /// The data to send, any JSON.
        #[serde(borrow, deserialize_with = "given")]
        data: Option<&'a RawValue>,
        /// How long a message for a name is kept until its owner acknowledges it, seconds; 0 = it is not kept.
        store_for: u64,
    }
    #[schemars(extend("required" = ["scope", "data"], "anyOf" = [{"required": ["name"]}, {"required": ["group"]}]))]
    CallParams {
        /// The scope of the name or group.
        #[serde(borrow)]
        scope: Cow<'a, str>,
        /// The name to call.
        #[serde(borrow)]
        name: Cow<'a, str>,
        /// The group to call.
        #[serde(borrow)]
        group: Cow<'a, str>,
        /// The data of the call, any JSON.
        #[serde(borrow, deserialize_with = "given")]
        data: Option<&'a RawValue>,
        /// How long the call waits for replies, milliseconds; 0 = 5,000.
        timeout_ms: u64,
    }
    ReplyParams {
        /// The number of the call to reply to.
        call: u64,
        /// The data of the reply, any JSON.
        #[serde(borrow, deserialize_with = "given")]
        data: Option<&'a RawValue>,
        /// The client's own error instead of the data, any JSON.
        #[serde(borrow)]
        error: Option<&'a RawValue>,
    }
    AcknowledgeParams {
        /// The id of one message.
        #[serde(borrow)]
        id: Cow<'a, str>,
        /// The ids of several messages.
        ids: Vec<String>,
    }
}

impl<'a> MethodParams<'a> for RegisterParams<'a> {
    fn request(&self, _: RegistryMethod, scopes: &Scopes) -> Result<DirectoryRequest, ParamsFault> {
        let (name, scope) = (given_key("name", &self.name)?, found(scopes, &self.scope)?);
        let take_over = match &*self.policy {
            "newest" => true,
            "" | "oldest" | "reject" => false,
            _ => return Err(ParamsFault::bad("policy")),
        };
        Ok(DirectoryRequest::Register { scope, name, take_over, meta: metadata(self.meta)? })
    }
}

impl<'a> MethodParams<'a> for NameParams<'a> {
    fn request(&self, method: RegistryMethod, scopes: &Scopes) -> Result<DirectoryRequest, ParamsFault> {
        let (name, scope) = (given_key("name", &self.name)?, found(scopes, &self.scope)?);
        Ok(match method {
            RegistryMethod::Unregister => DirectoryRequest::Unregister { scope, name },
            _ => DirectoryRequest::Lookup { scope, name },
        })
    }
}

impl<'a> MethodParams<'a> for UpdateMetaParams<'a> {
    fn request(&self, _: RegistryMethod, scopes: &Scopes) -> Result<DirectoryRequest, ParamsFault> {
        let (name, scope) = (given_key("name", &self.name)?, found(scopes, &self.scope)?);
        if self.meta.is_none() {
            return Err(ParamsFault::bad("meta"));
        }
        let version = Some(&*self.version).filter(|text| !text.is_empty());
        let expected = version.map(|text| version_from_text(text).ok_or(ParamsFault::bad("version"))).transpose()?;
        Ok(DirectoryRequest::UpdateMeta { scope, name, expected, meta: metadata(self.meta)? })
    }
}

impl<'a> MethodParams<'a> for NamesParams<'a> {
    fn request(&self, _: RegistryMethod, scopes: &Scopes) -> Result<DirectoryRequest, ParamsFault> {
        let (prefix, scope) = (key("prefix", &self.prefix)?, found(scopes, &self.scope)?);
        let listing = listing(scope, prefix, self.limit, self.cursor);
        Ok(match &self.after {
            None => DirectoryRequest::Names(listing),
            // The page is either in order or not: the parameters exclude each other.
            Some(_) if self.cursor > 0 => return Err(ParamsFault::bad("cursor")),
            Some(after) => DirectoryRequest::NamesAfter { after: key("after", after)?, listing },
        })
    }
}

impl<'a> MethodParams<'a> for ListingParams<'a> {
    fn request(&self, _: RegistryMethod, scopes: &Scopes) -> Result<DirectoryRequest, ParamsFault> {
        let (prefix, scope) = (key("prefix", &self.prefix)?, found(scopes, &self.scope)?);
        Ok(DirectoryRequest::Groups(listing(scope, prefix, self.limit, self.cursor)))
    }
}

impl<'a> MethodParams<'a> for ScopeParams<'a> {
    fn request(&self, _: RegistryMethod, scopes: &Scopes) -> Result<DirectoryRequest, ParamsFault> {
        Ok(DirectoryRequest::Count { scope: found(scopes, &self.scope)? })
    }
}

impl<'a> MethodParams<'a> for JoinParams<'a> {
    fn request(&self, _: RegistryMethod, scopes: &Scopes) -> Result<DirectoryRequest, ParamsFault> {
        let (group, scope) = (given_key("group", &self.group)?, found(scopes, &self.scope)?);
        Ok(DirectoryRequest::Join { scope, group, meta: metadata(self.meta)? })
    }
}

impl<'a> MethodParams<'a> for GroupParams<'a> {
    fn request(&self, _: RegistryMethod, scopes: &Scopes) -> Result<DirectoryRequest, ParamsFault> {
        let (group, scope) = (given_key("group", &self.group)?, found(scopes, &self.scope)?);
        Ok(DirectoryRequest::Leave { scope, group })
    }
}

impl<'a> MethodParams<'a> for MembersParams<'a> {
    fn request(&self, _: RegistryMethod, scopes: &Scopes) -> Result<DirectoryRequest, ParamsFault> {
        let (group, scope) = (given_key("group", &self.group)?, found(scopes, &self.scope)?);
        if self.limit == 0 && self.cursor == 0 {
            return Ok(DirectoryRequest::Members { scope, group });
        }
        let listing = listing(scope, Box::default(), self.limit, self.cursor);
        Ok(DirectoryRequest::MemberPage { group, listing })
    }
}

impl<'a> MethodParams<'a> for MemberParams<'a> {
    fn request(&self, _: RegistryMethod, scopes: &Scopes) -> Result<DirectoryRequest, ParamsFault> {
        let (group, scope) = (given_key("group", &self.group)?, found(scopes, &self.scope)?);
        let client = Some(&*self.client).filter(|text| !text.is_empty());
        let client = client.map(|text| client_from_text(text).ok_or(ParamsFault::bad("client"))).transpose()?;
        Ok(DirectoryRequest::Member { scope, group, client })
    }
}

impl<'a> MethodParams<'a> for ChangesParams<'a> {
    fn request(&self, _: RegistryMethod, scopes: &Scopes) -> Result<DirectoryRequest, ParamsFault> {
        let scope = found(scopes, &self.scope)?;
        let position =
            watch_position::position(&self.epoch, self.offset).map_err(|error| ParamsFault::of(error, "epoch"))?;
        Ok(DirectoryRequest::Changes { scope, position })
    }
}

impl<'a> MethodParams<'a> for SendParams<'a> {
    fn request(&self, _: RegistryMethod, scopes: &Scopes) -> Result<DirectoryRequest, ParamsFault> {
        let target = target(scopes, &self.scope, &self.name, &self.group)?;
        if target.is_group && self.store_for > 0 {
            return Err(ParamsFault::bad("store_for"));
        }
        let store_for_ms = self.store_for.saturating_mul(1_000);
        Ok(DirectoryRequest::Send { target, data: payload(self.data)?, store_for_ms })
    }
}

impl<'a> MethodParams<'a> for CallParams<'a> {
    fn request(&self, _: RegistryMethod, scopes: &Scopes) -> Result<DirectoryRequest, ParamsFault> {
        let target = target(scopes, &self.scope, &self.name, &self.group)?;
        let timeout_ms = if self.timeout_ms == 0 { CALL_TIMEOUT_MS } else { self.timeout_ms };
        Ok(DirectoryRequest::Call { target, data: payload(self.data)?, timeout_ms })
    }
}

impl<'a> MethodParams<'a> for ReplyParams<'a> {
    /// The result of the call is the data, or the client's own error.
    fn request(&self, _: RegistryMethod, _: &Scopes) -> Result<DirectoryRequest, ParamsFault> {
        let outcome = match (self.error, self.data) {
            (Some(error), _) => Err(checked("error", error)?),
            (None, Some(data)) => Ok(checked("data", data)?),
            // A function without a result replies with `null`.
            (None, None) => Ok(Bytes::from_static(b"null")),
        };
        Ok(DirectoryRequest::Reply { call: self.call, outcome })
    }
}

impl<'a> MethodParams<'a> for AcknowledgeParams<'a> {
    /// The ids to acknowledge are `ids`, then `id`.
    fn request(&self, _: RegistryMethod, _: &Scopes) -> Result<DirectoryRequest, ParamsFault> {
        if self.ids.len() > ACKNOWLEDGED_MAX {
            return Err(ParamsFault::bad("ids"));
        }
        let ids = self.ids.iter().map(|id| &**id).chain((!self.id.is_empty()).then_some(&*self.id));
        let field = if self.ids.is_empty() { "id" } else { "ids" };
        let ids = ids.map(str::parse).collect::<Result<_, _>>().map_err(|_| ParamsFault::bad(field))?;
        Ok(DirectoryRequest::Acknowledge { ids })
    }
}

/// The scope of this name. A scope may have the empty name; without one, the parameter is missing.
fn found(scopes: &Scopes, name: &str) -> Result<ScopeId, ParamsFault> {
    let missing = || if name.is_empty() { ParamsFault::bad("scope") } else { Error::NO_SUCH_SCOPE.into() };
    scopes.find(name).ok_or_else(missing)
}

/// Reads a name, a group, or a prefix of one, from this parameter.
fn key(field: &'static str, text: &str) -> Result<Box<str>, ParamsFault> {
    if has_control(text) { Err(ParamsFault::bad(field)) } else { Ok(text.into()) }
}

/// Reads a name or a group that must be given, from this parameter.
fn given_key(field: &'static str, text: &str) -> Result<Box<str>, ParamsFault> {
    if text.is_empty() { Err(ParamsFault::bad(field)) } else { key(field, text) }
}

/// Reads any JSON from this parameter.
fn checked(field: &'static str, json: &RawValue) -> Result<Bytes, ParamsFault> {
    data::checked_payload(json).map_err(|error| ParamsFault::of(error, field))
}

/// Reads metadata; empty = `null` or absent.
fn metadata(meta: Option<&RawValue>) -> Result<Bytes, ParamsFault> {
    let meta = meta.filter(|meta| meta.get() != "null");
    meta.map(|meta| checked("meta", meta)).transpose().map(Option::unwrap_or_default)
}

fn payload(data: Option<&RawValue>) -> Result<Bytes, ParamsFault> {
    checked("data", data.ok_or(ParamsFault::bad("data"))?)
}

/// The receiver, which is either a name or a group.
fn target(scopes: &Scopes, scope: &str, name: &str, group: &str) -> Result<Target, ParamsFault> {
    let (name, group, scope) = (key("name", name)?, key("group", group)?, found(scopes, scope)?);
    let is_group = !group.is_empty();
    if is_group != name.is_empty() {
        // Both parameters are given, or neither is.
        return Err(ParamsFault::bad(if is_group { "group" } else { "name" }));
    }
    Ok(Target { scope, key: if is_group { group } else { name }, is_group })
}

fn listing(scope: ScopeId, prefix: Box<str>, limit: usize, cursor: u32) -> Listing {
    let limit = if limit == 0 { PAGE } else { limit.min(PAGE_MAX) };
    Listing { scope, prefix, cursor, limit }
}

/// Whether a text has characters that no name or group may contain: C0 and C1 controls and DEL. Databases and terminals
/// do not handle them well.
pub(crate) fn has_control(text: &str) -> bool {
    text.chars().any(char::is_control)
}

/// Reads the text of a stamp and revision as lookups show it; `None` = it is not valid.
fn version_from_text(text: &str) -> Option<(Stamp, u32)> {
    let (stamp, revision) = text.split_once('.')?;
    Some((Stamp(stamp.parse().ok()?), revision.parse().ok()?))
}
