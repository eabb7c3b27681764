//! Reads the methods of the registry. Clients call them by `rpc`, backends by the server API.

use std::borrow::Cow;

use bytes::Bytes;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use touchline_protocol::{Error, data};

use super::effect::{DirectoryRequest, Listing, Target, client_from_text};
use super::scope::{ScopeId, Scopes, fits};
use super::watch;

/// How long a call waits if its parameters have no timeout, milliseconds.
const CALL_TIMEOUT_MS: u64 = 5_000;
/// Entries of a page: by default, and at most.
const PAGE: usize = 100;
const PAGE_MAX: usize = 1_000;
/// Messages that one `inbox.ack` may name.
const ACKNOWLEDGED_MAX: usize = 1_000;

/// The methods that clients call as `registry.<method>`, and backends as operations.
pub const METHODS: [&str; 15] = [
    "register",
    "unregister",
    "update_meta",
    "lookup",
    "names",
    "count",
    "join",
    "leave",
    "members",
    "member",
    "groups",
    "changes",
    "send",
    "call",
    "multi_call",
];

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

/// A value that is present; `null` counts as present.
pub(super) fn given<'de: 'a, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
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

/// The request that a method with these parameters (JSON) makes. `method` is without the prefix `registry.`.
///
/// # Errors
/// 104 for an unknown method, 107 for bad parameters, 4003 for an unknown scope.
pub fn read(method: &str, params: &str, scopes: &Scopes) -> Result<DirectoryRequest, Error> {
    let p: RequestParams<'_> = serde_json::from_str(params).map_err(|_| Error::BAD_REQUEST)?;
    if method == "reply" {
        let outcome = match p.error {
            Some(error) => Err(data::checked_payload(error)?),
            // A function without a result replies with `null`.
            None => Ok(p.data.map_or_else(|| Ok(Bytes::from_static(b"null")), data::checked_payload)?),
        };
        return Ok(DirectoryRequest::Reply { call: p.call, outcome });
    }
    if method == "inbox.ack" {
        if p.ids.len() > ACKNOWLEDGED_MAX {
            return Err(Error::BAD_REQUEST);
        }
        let ids = p.ids.iter().map(|id| &**id).chain((!p.id.is_empty()).then_some(&*p.id));
        return Ok(DirectoryRequest::Acknowledge {
            ids: ids.map(str::parse).collect::<Result<_, _>>().map_err(|_| Error::BAD_REQUEST)?,
        });
    }
    if !METHODS.contains(&method) {
        return Err(Error::METHOD_NOT_FOUND);
    }
    if [&p.name, &p.group, &p.prefix].iter().any(|text| has_control(text)) {
        return Err(Error::BAD_REQUEST);
    }
    let scope = scopes.find(&p.scope).ok_or(Error::NO_SUCH_SCOPE)?;
    let (name, group) = (|| Box::<str>::from(&*p.name), || Box::<str>::from(&*p.group));
    Ok(match method {
        "register" => match &*p.policy {
            "" | "oldest" | "reject" => {
                DirectoryRequest::Register { scope, name: name(), meta: p.meta()?, take_over: false }
            }
            "newest" => DirectoryRequest::Register { scope, name: name(), meta: p.meta()?, take_over: true },
            _ => return Err(Error::BAD_REQUEST),
        },
        "unregister" => DirectoryRequest::Unregister { scope, name: name() },
        "update_meta" if p.meta.is_none() => return Err(Error::BAD_REQUEST),
        "update_meta" => {
            let expected = match &*p.version {
                "" => None,
                text => Some(super::version_from_text(text).ok_or(Error::BAD_REQUEST)?),
            };
            DirectoryRequest::UpdateMeta { scope, name: name(), meta: p.meta()?, expected }
        }
        "lookup" => DirectoryRequest::Lookup { scope, name: name() },
        "names" => DirectoryRequest::Names(p.listing(scope)),
        "groups" => DirectoryRequest::Groups(p.listing(scope)),
        "changes" => DirectoryRequest::Changes { scope, position: watch::position(&p.epoch, p.offset)? },
        "count" => DirectoryRequest::Count { scope },
        "join" => DirectoryRequest::Join { scope, group: group(), meta: p.meta()? },
        "leave" => DirectoryRequest::Leave { scope, group: group() },
        "members" if p.limit == 0 && p.cursor == 0 => DirectoryRequest::Members { scope, group: group() },
        "members" => DirectoryRequest::MemberPage { group: group(), listing: p.listing(scope) },
        "member" => {
            let client =
                (!p.client.is_empty()).then(|| client_from_text(&p.client).ok_or(Error::BAD_REQUEST)).transpose()?;
            DirectoryRequest::Member { scope, group: group(), client }
        }
        "send" => DirectoryRequest::Send {
            target: p.target(scope)?,
            data: p.data()?,
            store_for_ms: p.store_for.saturating_mul(1_000),
        },
        _ => {
            let timeout_ms = if p.timeout_ms == 0 { CALL_TIMEOUT_MS } else { p.timeout_ms };
            DirectoryRequest::Call { target: p.target(scope)?, data: p.data()?, timeout_ms }
        }
    })
}

/// Checks whether a client may make this request. `granted`: scopes and patterns of names that its token allows.
///
/// # Errors
/// 103 if it may not.
pub(crate) fn permit(
    request: &DirectoryRequest,
    user: &str,
    granted: &[(Box<str>, Box<str>)],
    scopes: &Scopes,
) -> Result<(), Error> {
    let scope = match request {
        DirectoryRequest::Register { scope, .. }
        | DirectoryRequest::Join { scope, .. }
        | DirectoryRequest::Lookup { scope, .. } => *scope,
        DirectoryRequest::Members { scope, .. }
        | DirectoryRequest::Member { scope, .. }
        | DirectoryRequest::Changes { scope, .. }
        | DirectoryRequest::Count { scope } => *scope,
        DirectoryRequest::Names(listing)
        | DirectoryRequest::Groups(listing)
        | DirectoryRequest::MemberPage { listing, .. } => listing.scope,
        DirectoryRequest::Send { target, .. } | DirectoryRequest::Call { target, .. } => target.scope,
        // Requests about the client's own entries, or about a call to it.
        _ => return Ok(()),
    };
    let options = scopes.options(scope).ok_or(Error::NO_SUCH_SCOPE)?;
    let any = |patterns: &[String], key: &str| patterns.iter().any(|pattern| fits(pattern, key, user));
    let is_granted =
        |key: &str| granted.iter().any(|(scope, pattern)| **scope == *options.name && fits(pattern, key, user));
    let is_known = !user.is_empty() || options.allow_for_anonymous;
    let may = match request {
        DirectoryRequest::Register { name, .. } => is_granted(name) || is_known && any(&options.allow_register, name),
        DirectoryRequest::Join { group, .. } => is_known && any(&options.allow_join, group),
        DirectoryRequest::Send { store_for_ms: 0, .. } => is_known && options.allow_send_for_client,
        DirectoryRequest::Send { target, .. } => {
            is_known && options.allow_send_for_client && any(&options.allow_store, &target.key)
        }
        DirectoryRequest::Call { .. } => is_known && options.allow_call_for_client,
        DirectoryRequest::Changes { .. } => is_known && options.allow_watch_for_client,
        _ => is_known && options.allow_lookup_for_client,
    };
    if may { Ok(()) } else { Err(Error::PERMISSION_DENIED) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::{Directory, ScopeOptions};
    use touchline_registry::ReplicaTiming;

    type Switch = (&'static str, fn(&mut ScopeOptions));

    fn scopes(change: impl FnOnce(&mut ScopeOptions)) -> Scopes {
        let mut options = ScopeOptions { name: "devices".into(), ..ScopeOptions::default() };
        change(&mut options);
        Directory::<()>::new("here", &[options], &ReplicaTiming::default(), 7, false, 0).scopes()
    }

    fn request(method: &str, params: &str) -> DirectoryRequest {
        let params = format!(r#"{{"scope":"devices","data":1,{params}}}"#);
        read(method, &params, &scopes(|_| {})).expect("a request")
    }

    /// Every request is denied until its own switch allows it, and for anonymous clients until `allow_for_anonymous`
    /// does too.
    #[test]
    fn each_switch_allows_its_requests_and_no_others() {
        const STORE: fn(&mut ScopeOptions) = |options| {
            (options.allow_send_for_client, options.allow_store) = (true, vec!["bike".into()]);
        };
        let switches: [Switch; 7] = [
            ("register", |options| options.allow_register = vec!["bike".into()]),
            ("join", |options| options.allow_join = vec!["all".into()]),
            ("lookup", |options| options.allow_lookup_for_client = true),
            ("send", |options| options.allow_send_for_client = true),
            ("call", |options| options.allow_call_for_client = true),
            ("watch", |options| options.allow_watch_for_client = true),
            ("store", STORE),
        ];
        let (name, group, page) = (r#""name":"bike""#, r#""group":"all""#, r#""group":"all","limit":1"#);
        let requests = [
            (vec!["register"], request("register", name)),
            (vec!["join"], request("join", group)),
            (vec!["lookup"], request("lookup", name)),
            (vec!["lookup"], request("names", name)),
            (vec!["lookup"], request("groups", name)),
            (vec!["lookup"], request("members", group)),
            (vec!["lookup"], request("members", page)),
            (vec!["lookup"], request("member", group)),
            (vec!["lookup"], request("count", name)),
            (vec!["send", "store"], request("send", name)),
            (vec!["send", "store"], request("send", group)),
            (vec!["store"], request("send", r#""name":"bike","store_for":1"#)),
            (vec![], request("send", r#""name":"boat","store_for":1"#)),
            (vec![], request("register", r#""name":"boat""#)),
            (vec![], request("join", r#""group":"some""#)),
            (vec!["call"], request("call", name)),
            (vec!["call"], request("multi_call", group)),
            (vec!["watch"], request("changes", name)),
        ];
        for (switch, turn_on) in switches {
            for (allowed_by, request) in &requests {
                for (user, allow_for_anonymous) in [("ann", false), ("ann", true), ("", false), ("", true)] {
                    let scopes = scopes(|options| {
                        turn_on(options);
                        options.allow_for_anonymous = allow_for_anonymous;
                    });
                    let may = allowed_by.contains(&switch) && (user == "ann" || allow_for_anonymous);
                    let expected = if may { Ok(()) } else { Err(Error::PERMISSION_DENIED) };
                    assert_eq!(
                        permit(request, user, &[], &scopes),
                        expected,
                        "{request:?} with {switch}, {user:?} {allow_for_anonymous}"
                    );
                }
            }
        }
    }

    #[test]
    fn requests_about_the_clients_own_entries_are_always_allowed() {
        let scopes = scopes(|_| {});
        for (method, params) in [
            ("unregister", r#""name":"bike""#),
            ("update_meta", r#""name":"bike","meta":1"#),
            ("leave", r#""group":"all""#),
        ] {
            assert_eq!(permit(&request(method, params), "", &[], &scopes), Ok(()), "{method}");
        }
        assert_eq!(permit(&request("reply", r#""call":1"#), "", &[], &scopes), Ok(()));
        let unknown_scope = DirectoryRequest::Count { scope: ScopeId(9) };
        assert_eq!(permit(&unknown_scope, "ann", &[], &scopes), Err(Error::NO_SUCH_SCOPE));
    }

    #[test]
    fn a_token_allows_the_names_of_its_patterns_in_its_scope() {
        let scopes = scopes(|_| {});
        let granted = |scope: &str, pattern: &str| {
            permit(&request("register", r#""name":"ann/bike""#), "ann", &[(scope.into(), pattern.into())], &scopes)
        };
        assert_eq!((granted("devices", "{user}/*"), granted("devices", "ann/bike")), (Ok(()), Ok(())));
        let denied = Err(Error::PERMISSION_DENIED);
        assert_eq!((granted("robots", "{user}/*"), granted("devices", "bob/*")), (denied, denied));
        let group = request("join", r#""group":"ann/bike""#);
        assert_eq!(permit(&group, "ann", &[("devices".into(), "*".into())], &scopes), denied, "names only");
    }
}
