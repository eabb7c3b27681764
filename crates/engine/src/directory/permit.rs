//! Which requests a client may make, because of the scope's options and its token.

use touchline_protocol::Error;

use super::request::DirectoryRequest;
use super::scope::{ScopeId, Scopes, fits};

/// The actions that a client needs permission for.
enum Permission<'r> {
    /// To register this name.
    Register(&'r str),
    /// To join this group.
    Join(&'r str),
    /// To read names, groups and members.
    Lookup,
    /// To send a message to a name or a group.
    Send,
    /// To send a message that is kept for this name.
    Store(&'r str),
    /// To call a name or a group.
    Call,
    /// To watch the changes of the scope.
    Watch,
}

impl Permission<'_> {
    /// The options of a scope that grant the permission.
    fn options(&self) -> &'static [&'static str] {
        match self {
            Permission::Register(_) => &["allow_register"],
            Permission::Join(_) => &["allow_join"],
            Permission::Lookup => &["allow_lookup_for_client"],
            Permission::Send => &["allow_send_for_client"],
            Permission::Store(_) => &["allow_send_for_client", "allow_store"],
            Permission::Call => &["allow_call_for_client"],
            Permission::Watch => &["allow_watch_for_client"],
        }
    }
}

/// The scope of a client's request, and the options of the scope that permit it; `None` = it needs no permission.
pub(crate) fn deciding_options(request: &DirectoryRequest) -> Option<(ScopeId, &'static [&'static str])> {
    needed(request).map(|(scope, permission)| (scope, permission.options()))
}

/// The scope and the permission that a request needs. `None` = it needs none: it concerns the client's own entries, a
/// call or a message to the client, or a channel, which has its own permissions.
fn needed(request: &DirectoryRequest) -> Option<(ScopeId, Permission<'_>)> {
    Some(match request {
        DirectoryRequest::Register { scope, name, .. } => (*scope, Permission::Register(name)),
        DirectoryRequest::Join { scope, group, .. } => (*scope, Permission::Join(group)),
        DirectoryRequest::Lookup { scope, .. }
        | DirectoryRequest::Members { scope, .. }
        | DirectoryRequest::Member { scope, .. }
        | DirectoryRequest::Count { scope } => (*scope, Permission::Lookup),
        DirectoryRequest::Names(listing)
        | DirectoryRequest::Groups(listing)
        | DirectoryRequest::NamesAfter { listing, .. }
        | DirectoryRequest::MemberPage { listing, .. } => (listing.scope, Permission::Lookup),
        DirectoryRequest::Changes { scope, .. } => (*scope, Permission::Watch),
        DirectoryRequest::Send { target, store_for_ms: 0, .. } => (target.scope, Permission::Send),
        DirectoryRequest::Send { target, .. } => (target.scope, Permission::Store(&target.key)),
        DirectoryRequest::Call { target, .. } => (target.scope, Permission::Call),
        DirectoryRequest::RegisterAll(_)
        | DirectoryRequest::Unregister { .. }
        | DirectoryRequest::UpdateMeta { .. }
        | DirectoryRequest::Leave { .. }
        | DirectoryRequest::Acknowledge { .. }
        | DirectoryRequest::Reply { .. }
        | DirectoryRequest::Enter { .. }
        | DirectoryRequest::Exit { .. }
        | DirectoryRequest::Presence { .. }
        | DirectoryRequest::PresenceStats { .. }
        | DirectoryRequest::Close => return None,
    })
}

/// Checks whether a client may make this request. `granted`: the scopes and patterns of names that its token allows.
///
/// # Errors
/// 103 if the client may not make the request, 4003 if the scope does not exist.
pub(crate) fn permit(
    request: &DirectoryRequest,
    user: &str,
    granted: &[(Box<str>, Box<str>)],
    scopes: &Scopes,
) -> Result<(), Error> {
    let Some((scope, permission)) = needed(request) else { return Ok(()) };
    let options = scopes.options(scope).ok_or(Error::NO_SUCH_SCOPE)?;
    let any = |patterns: &[String], key: &str| patterns.iter().any(|pattern| fits(pattern, key, user));
    let is_granted =
        |key: &str| granted.iter().any(|(scope, pattern)| **scope == *options.name && fits(pattern, key, user));
    let is_known = !user.is_empty() || options.allow_for_anonymous;
    let may = match permission {
        Permission::Register(name) => is_granted(name) || is_known && any(&options.allow_register, name),
        Permission::Join(group) => is_known && any(&options.allow_join, group),
        Permission::Lookup => is_known && options.allow_lookup_for_client,
        Permission::Send => is_known && options.allow_send_for_client,
        Permission::Store(name) => is_known && options.allow_send_for_client && any(&options.allow_store, name),
        Permission::Call => is_known && options.allow_call_for_client,
        Permission::Watch => is_known && options.allow_watch_for_client,
    };
    if may { Ok(()) } else { Err(Error::PERMISSION_DENIED) }
}

/// Why [`permit`] denies a request: what the scope, or the token, lacks.
pub(crate) fn cause_of_denial(request: &DirectoryRequest, user: &str, scopes: &Scopes) -> Option<&'static str> {
    let (scope, permission) = needed(request)?;
    let is_anonymous = user.is_empty() && !scopes.options(scope)?.allow_for_anonymous;
    Some(match permission {
        Permission::Register(_) if is_anonymous => {
            "the client is anonymous, the scope lacks allow_for_anonymous, and register of the token lacks the name"
        }
        _ if is_anonymous => "the client is anonymous, and the scope lacks allow_for_anonymous",
        Permission::Register(_) => "allow_register of the scope and register of the token lack the name",
        Permission::Join(_) => "allow_join of the scope lacks the group",
        Permission::Lookup => "the scope lacks allow_lookup_for_client",
        Permission::Send => "the scope lacks allow_send_for_client",
        Permission::Store(_) => "the scope lacks allow_send_for_client, or its allow_store lacks the name",
        Permission::Call => "the scope lacks allow_call_for_client",
        Permission::Watch => "the scope lacks allow_watch_for_client",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::{Directory, RegistryMethod, ScopeId, ScopeOptions, read};
    use touchline_registry::{HashSeed, ReplicaTiming};

    type Switch = (&'static str, fn(&mut ScopeOptions));

    fn scopes(change: impl FnOnce(&mut ScopeOptions)) -> Scopes {
        let mut options = ScopeOptions { name: "devices".into(), ..ScopeOptions::default() };
        change(&mut options);
        Directory::<()>::new("here", &[options], &ReplicaTiming::default(), 7, HashSeed::repeatable(7), false, 0)
            .scopes()
    }

    fn request(method: &str, params: &str) -> DirectoryRequest {
        let params = format!(r#"{{"scope":"devices","data":1,{params}}}"#);
        let method = RegistryMethod::from_name(method).expect("a method");
        read(method, &params, &scopes(|_| {})).expect("a request")
    }

    /// Every request is denied until its own switch allows it. For anonymous clients `allow_for_anonymous` must allow
    /// it too.
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
