//! The registry by `rpc`: names, groups, messages and calls. Also the names and groups of a token.

use std::borrow::Cow;

use serde::Deserialize;
use touchline_protocol::command::RpcCommand;
use touchline_protocol::message::Reply;
use touchline_protocol::payload::RawPayload;
use touchline_protocol::{Error, data};

use super::context::Context;
use super::effects::Outbound;
use super::refusal::is_outcome;
use super::rules::{DecisionRule, RuleLog, RuleSays};
use super::state::{Phase, Session};
use super::ticket::{ReplyKind, Ticket};
use super::weight::Weight;
use crate::claims::EntryClaim;
use crate::directory::{self, DirectoryRequest, ParamsFault, Registration, RegistryMethod, Requester, Scopes};
use crate::reactions::REACTIONS_ADD;
use crate::request::Response;

/// What answers a method.
pub(super) enum MethodOwner {
    /// The registry; `None` = the registry has no such method.
    Registry(Option<RegistryMethod>),
    /// The tracker, for events that clients report about themselves.
    Tracker,
    /// The reactions of channels.
    Reactions,
    /// A backend, if the method's namespace has one.
    Backend,
}

impl MethodOwner {
    pub(super) fn of(method: &str) -> Self {
        match RegistryMethod::from_rpc(method) {
            _ if method == "stats.track" => MethodOwner::Tracker,
            _ if method == REACTIONS_ADD => MethodOwner::Reactions,
            Some(method) => MethodOwner::Registry(method),
            None => MethodOwner::Backend,
        }
    }
}

impl Session {
    /// This client as the requester of a directory request.
    pub fn who(&self) -> Requester {
        Requester { owner: self.owner(), user: self.user.clone(), is_backend: false }
    }

    pub(super) fn rpc(&mut self, command: u32, rpc: &RpcCommand<'_>, context: &mut Context<'_>) {
        let method = match MethodOwner::of(&rpc.method) {
            MethodOwner::Tracker => return self.track(command, rpc, context),
            MethodOwner::Reactions => return self.rpc_reaction(command, rpc, context),
            MethodOwner::Backend => return self.rpc_of_backend(command, rpc, context),
            MethodOwner::Registry(method) => method,
        };
        let scopes = &context.node.scopes;
        // Parameters that are not JSON differ from absent parameters.
        let data = rpc.data.map_or("{}", RawPayload::text);
        match self.read_own(method, data, context, &mut ()) {
            Ok(request) => match scopes.answer(&request) {
                Some(outcome) => reply(
                    command,
                    ReplyKind::Rpc,
                    outcome.map_or_else(Response::Refused, |json| Response::Directory(json.into())),
                    context,
                ),
                None if weight_of(&request) == Weight::Large && context.room.is_scarce => {
                    context.effects.refuse(command, Error::TOO_MANY_REQUESTS);
                }
                None => self.send_to_directory(command, ReplyKind::Rpc, request, context),
            },
            Err(OwnRefusal { error, cause, field }) => {
                if let Some(cause) = cause.or((!is_outcome(&error)).then_some(error.message)) {
                    let field = field.map_or(String::new(), |field| format!(": {field}"));
                    let method = format!("{}{field}", rpc.method);
                    context.because_of_rpc(cause, &method, scope_of(data).as_deref());
                }
                context.effects.refuse(command, error);
            }
        }
    }

    /// Reads the data of a method of the server, and checks whether the client may call it.
    pub(super) fn read_own(
        &self,
        method: Option<RegistryMethod>,
        data: &str,
        context: &Context<'_>,
        log: &mut impl RuleLog,
    ) -> Result<DirectoryRequest, OwnRefusal> {
        let scopes = &context.node.scopes;
        let method = method.ok_or(ParamsFault::from(Error::METHOD_NOT_FOUND))?;
        let request = directory::read(method, data, scopes)?;
        log.note(DecisionRule::OwnMethod, RuleSays::Nothing);
        if !log.allows(DecisionRule::Insecure, self.is_insecure(context)) {
            let granted = self.rare.as_ref().map_or(&[][..], |rare| &*rare.granted);
            let permitted = directory::permit(&request, &self.user, granted, scopes);
            let says = if permitted.is_ok() { RuleSays::Allows } else { RuleSays::Refuses };
            log.note(DecisionRule::ScopePermission, says);
            permitted.map_err(|error| {
                let cause = directory::cause_of_denial(&request, &self.user, scopes);
                OwnRefusal { error, cause, field: None }
            })?;
        }
        Ok(request)
    }

    /// Handles an RPC that is not one of the server's methods. A backend answers it if its namespace has a backend.
    fn rpc_of_backend(&mut self, command: u32, rpc: &RpcCommand<'_>, context: &mut Context<'_>) {
        let data = rpc.data.map(RawPayload::checked).transpose();
        match (find_rpc_backend(&rpc.method, context, &mut ()), data) {
            (Ok(proxy), Ok(data)) => self.ask_rpc(command, &rpc.method, proxy, data, context),
            (Ok(_), Err(error)) => context.effects.refuse(command, error),
            (Err((error, cause)), _) => {
                context.because_of_rpc(cause, &rpc.method, None);
                context.effects.refuse(command, error);
            }
        }
    }

    fn track(&mut self, command: u32, request: &RpcCommand<'_>, context: &mut Context<'_>) {
        let params = request.data.map_or("{}", RawPayload::text);
        let Context { tracker, id, node, now_ms, .. } = context;
        match tracker.track(id.slot, &self.user, params, node.track, *now_ms) {
            Ok(()) => reply(command, ReplyKind::Rpc, Response::Directory(b"{}".to_vec().into()), context),
            Err(error) => context.effects.refuse(command, error),
        }
    }

    /// Prepares a request of the server API that acts for this client. The reply goes to the server API.
    pub fn act(&mut self, request: DirectoryRequest) -> (Requester, DirectoryRequest) {
        self.has_entries = true;
        (self.who(), request)
    }

    /// Sends a command's request to the directory. The client's entries and waiting calls end with the session.
    pub(super) fn send_to_directory(
        &mut self,
        command: u32,
        kind: ReplyKind,
        request: DirectoryRequest,
        context: &mut Context<'_>,
    ) {
        let weight = weight_of(&request);
        self.has_entries |= matches!(
            request,
            DirectoryRequest::Register { .. } | DirectoryRequest::Join { .. } | DirectoryRequest::Call { .. }
        ) || request.is_walk();
        self.flow.begin(weight);
        context.effects.directory_requests.push((
            Some(Ticket::Directory { command, kind, weight }),
            self.who(),
            request,
        ));
    }

    /// Requests the names and groups of the token, all or none. Other clients must not see any effect of the connect
    /// before they are registered. So the requests to homes of channels since `mark`, and the connect reply, wait for
    /// them.
    pub(super) fn register_entries(&mut self, entries: Box<[Registration]>, mark: usize, context: &mut Context<'_>) {
        if entries.is_empty() || context.effects.disconnect.is_some() {
            return;
        }
        if let Phase::Connecting(connecting) = &mut self.phase {
            connecting.awaited += 1;
            connecting.is_registering = true;
            connecting.deferred = context.effects.requests.split_off(mark);
        }
        self.has_entries = true;
        context.effects.directory_requests.push((
            Some(Ticket::Registrations),
            self.who(),
            DirectoryRequest::RegisterAll(entries),
        ));
    }

    /// Delays the requests to homes since `mark` until the names of the token are registered, if they are not yet.
    pub(super) fn defer_until_registered(&mut self, mark: usize, context: &mut Context<'_>) {
        if let Phase::Connecting(connecting) = &mut self.phase
            && connecting.is_registering
        {
            connecting.deferred.extend(context.effects.requests.drain(mark..));
        }
    }

    /// Releases the subscriptions whose requests to homes were delayed for the names of the token and not sent.
    pub(super) fn drop_deferred(&mut self, context: &mut Context<'_>) {
        let Phase::Connecting(connecting) = &mut self.phase else { return };
        for Outbound { channel, .. } in std::mem::take(&mut connecting.deferred) {
            if let Some(index) = self.find(&channel, context.hub) {
                context.hub.release(self.subscriptions.swap_remove(index).channel);
            }
        }
    }

    /// Whether the request to this channel's home is still delayed. Drops the request.
    pub(super) fn is_deferred(&mut self, channel: &str) -> bool {
        let Phase::Connecting(connecting) = &mut self.phase else { return false };
        // If all subscriptions end, the last one ends first.
        let Some(place) = connecting.deferred.iter().rposition(|outbound| *outbound.channel == *channel) else {
            return false;
        };
        connecting.deferred.remove(place);
        connecting.awaited -= 1;
        true
    }

    pub(super) fn handle_registered(&mut self, response: Response, context: &mut Context<'_>) {
        let Phase::Connecting(connecting) = &mut self.phase else { return };
        match response {
            Response::Refused(error) => {
                let command = connecting.command;
                self.refuse_connect(command, error, context);
            }
            _ => {
                connecting.awaited -= 1;
                connecting.is_registering = false;
                context.effects.requests.append(&mut connecting.deferred);
                self.finish_connect(context);
            }
        }
    }
}

/// The registrations for a token's names and groups.
///
/// # Errors
/// The scope of a name or group that is not valid, or whose scope does not exist.
pub(super) fn registrations(
    names: Vec<EntryClaim>,
    groups: Vec<EntryClaim>,
    scopes: &Scopes,
) -> Result<Box<[Registration]>, String> {
    let entries = names.into_iter().map(|claim| (claim, false)).chain(groups.into_iter().map(|claim| (claim, true)));
    let read = |(claim, is_group): (EntryClaim, bool)| {
        let scope = scopes.find(&claim.scope).filter(|_| !directory::has_control(&claim.name));
        let meta = claim.meta.map(|meta| data::checked_payload(&meta)).transpose();
        let (Some(scope), Ok(meta)) = (scope, meta) else { return Err(claim.scope) };
        Ok(Registration { scope, key: claim.name.into_boxed_str(), meta: meta.unwrap_or_default(), is_group })
    };
    entries.map(read).collect()
}

/// The name of the backend that answers a method.
///
/// # Errors
/// 104 if the namespace of the method does not exist, 108 if no backend answers it; each with its cause.
pub(super) fn find_rpc_backend<'c>(
    method: &str,
    context: &Context<'c>,
    log: &mut impl RuleLog,
) -> Result<&'c str, (Error, &'static str)> {
    let options = context.node.hooks.rpc.resolve(method);
    log.refuses(DecisionRule::RpcNamespace, options.is_none());
    let Some(options) = options else { return Err((Error::METHOD_NOT_FOUND, NO_RPC_NAMESPACE)) };
    match log.asks(DecisionRule::RpcHook, options.proxy_enabled) {
        true => Ok(&options.proxy_name),
        false if method.is_empty() => Err((Error::NOT_AVAILABLE, "the RPC names no method")),
        false => Err((Error::NOT_AVAILABLE, NO_RPC)),
    }
}

const NO_RPC_NAMESPACE: &str = "the namespace of the method is not in rpc.namespaces";
/// The cause when an RPC is refused because nothing answers it.
const NO_RPC: &str =
    "no RPC has this name (registry.…, reply, inbox.ack, stats.track, reactions.add), and proxy_enabled is off for it";

/// Why a method of the server is refused.
pub(super) struct OwnRefusal {
    pub(super) error: Error,
    /// What the configuration, the token or the parameters lack; `None` = the error says everything.
    pub(super) cause: Option<&'static str>,
    /// The wrong parameter; `None` = no single parameter is wrong.
    field: Option<&'static str>,
}

impl From<ParamsFault> for OwnRefusal {
    fn from(ParamsFault { error, field }: ParamsFault) -> Self {
        match error {
            Error::NO_SUCH_SCOPE => {
                OwnRefusal { error, cause: Some("the scope is not in registry.scopes"), field: None }
            }
            Error::BAD_REQUEST => OwnRefusal { error, cause: Some(BAD_PARAMETER), field },
            _ => OwnRefusal { error, cause: None, field },
        }
    }
}

const BAD_PARAMETER: &str = "a parameter of the RPC is missing or wrong";

/// The scope that the data of a registry method name.
fn scope_of(data: &str) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct ScopedData<'d> {
        #[serde(borrow)]
        scope: Cow<'d, str>,
    }
    serde_json::from_str(data).ok().map(|ScopedData { scope }| scope)
}

/// The size that the reply to a request can have.
fn weight_of(request: &DirectoryRequest) -> Weight {
    match request {
        DirectoryRequest::Names(_)
        | DirectoryRequest::NamesAfter { .. }
        | DirectoryRequest::Groups(_)
        | DirectoryRequest::Members { .. }
        | DirectoryRequest::MemberPage { .. }
        | DirectoryRequest::Changes { .. }
        | DirectoryRequest::Presence { .. } => Weight::Large,
        DirectoryRequest::Call { .. } => Weight::Waiting,
        DirectoryRequest::Register { .. }
        | DirectoryRequest::RegisterAll(_)
        | DirectoryRequest::Unregister { .. }
        | DirectoryRequest::UpdateMeta { .. }
        | DirectoryRequest::Join { .. }
        | DirectoryRequest::Leave { .. }
        | DirectoryRequest::Lookup { .. }
        | DirectoryRequest::Member { .. }
        | DirectoryRequest::Count { .. }
        | DirectoryRequest::Send { .. }
        | DirectoryRequest::Acknowledge { .. }
        | DirectoryRequest::Reply { .. }
        | DirectoryRequest::Enter { .. }
        | DirectoryRequest::Exit { .. }
        | DirectoryRequest::PresenceStats { .. }
        | DirectoryRequest::Close => Weight::Small,
    }
}

/// Writes the directory's response as the reply to a command.
pub(super) fn reply(command: u32, kind: ReplyKind, response: Response, context: &mut Context<'_>) {
    let json = match response {
        Response::Directory(reply) => reply.json(),
        Response::Refused(error) => return context.effects.refuse(command, error),
        Response::Subscribed(_) | Response::Published(_) | Response::History { .. } | Response::Done => {
            return context.effects.refuse(command, Error::INTERNAL);
        }
    };
    let reply = match kind {
        ReplyKind::Presence => Reply::Presence(&json),
        ReplyKind::PresenceStats => Reply::PresenceStats(&json),
        ReplyKind::Rpc => Reply::Rpc(&json),
    };
    context.effects.messages.reply(command, &reply);
}
