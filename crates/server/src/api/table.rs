//! The table of all operations. HTTP, batches, calls of other nodes and the documentation are made from it.

use schemars::JsonSchema;
use touchline_protocol::Error;
use touchline_protocol::encode::ObjectWriter;

use super::cluster::{run_everywhere, run_here};
#[cfg(feature = "grpc")]
use super::description::OperationScope;
use super::description::{COMMON_ERRORS, OperationDescription};
use super::json::{ErrorJson, WriteJson};
#[cfg(test)]
use super::later::LaterInfoOperation;
use super::malformed::MalformedRequest;
use super::operation::{Operation, OperationError, Placed, RequestNode};
use super::operations::activity::ActivityOperation;
use super::operations::bans::{
    BlockUserOperation, InvalidateUserTokensOperation, RevokeTokenOperation, UnblockUserOperation,
};
use super::operations::bans_list::BansOperation;
use super::operations::channel::ChannelOperation;
use super::operations::channel_directory::{
    ChannelGetOperation, ChannelRemoveOperation, ChannelSetOperation, ChannelsSearchOperation, ChannelsSimilarOperation,
};
use super::operations::channels::ChannelsOperation;
use super::operations::configuration::ConfigurationOperation;
use super::operations::connected::ConnectionsOperation;
use super::operations::connections::{
    ClientUserOperation, DisconnectOperation, RefreshOperation, SubscribeOperation, UnsubscribeOperation,
};
use super::operations::consumers::ConsumersOperation;
use super::operations::dead_events::{EventsDeadDropOperation, EventsDeadOperation, EventsDeadRetryOperation};
use super::operations::events::EventsResumeOperation;
use super::operations::forget_user::ForgetUserOperation;
use super::operations::history::{HistoryOperation, HistoryRemoveOperation};
use super::operations::inbox::{InboxDropOperation, InboxListOperation, InboxNamesOperation};
use super::operations::info::InfoOperation;
use super::operations::overview::{OverviewHistoryOperation, OverviewOperation};
use super::operations::presence::{PresenceOperation, PresenceStatsOperation};
use super::operations::publish::{BroadcastOperation, PublishOperation};
use super::operations::reactions::{
    ReactionOpenOperation, ReactionsAddOperation, ReactionsCloseOperation, ReactionsGetOperation,
};
use super::operations::refusals::RefusalsOperation;
use super::operations::registry::{
    CallOperation, ChangesOperation, CountOperation, GroupsOperation, JoinOperation, LeaveOperation, LookupOperation,
    MemberOperation, MembersOperation, MultiCallOperation, NamesOperation, RegisterOperation, UnregisterOperation,
    UpdateMetaOperation,
};
use super::operations::reload::ReloadOperation;
use super::operations::rpc::RpcOperation;
use super::operations::send::SendOperation;
use super::operations::stats::{StatsAudienceOperation, StatsEventsOperation, StatsTopOperation};
use super::operations::token_check::TokenCheckOperation;
use super::operations::trace::TraceOperation;
use super::operations::user_status::GetUserStatusOperation;
use super::params::object;
use super::remedy::{RefusedRequest, unknown_operation};
use super::version::NEWEST;
use crate::auth::ApiRights;
use crate::node::Node;
use crate::runtime::operation_metrics::NO_OPERATION;

/// The name of the request that contains several operations: `POST /api/batch`. It is not an operation itself: a batch
/// cannot contain it, and its answer has no `result`.
pub const BATCH: &str = "batch";

/// One operation with its parameters, read and not yet run. All operations of a batch are read before the first is run,
/// so that a malformed one stops the batch before anything is done.
pub(super) struct Call<'a> {
    params: &'a [u8],
    request: CallRequest<'a>,
}

/// What the table knows of one operation.
struct OperationRow {
    description: OperationDescription,
    number: Option<usize>,
    since: u16,
}

const fn row<O: Operation>() -> OperationRow {
    OperationRow {
        description: OperationDescription {
            name: O::NAME,
            summary: O::SUMMARY,
            request_fields: O::request_fields,
            result: O::RESULT,
            example: O::EXAMPLE,
            reply_example: O::REPLY_EXAMPLE,
            request_schema: O::request_schema,
            reply_schema: O::Reply::json_schema,
            errors: O::ERRORS,
            scope: O::SCOPE,
            is_idempotent: O::IS_IDEMPOTENT,
        },
        number: O::NUMBER,
        since: O::SINCE,
    }
}

/// Checks in builds with assertions that an operation declares the error that it returns.
fn declared<O: Operation>(refusal: &OperationError) {
    let is_declared = O::ERRORS.iter().chain(COMMON_ERRORS).any(|error| *error == refusal.error);
    debug_assert!(is_declared, "{} does not declare {}", O::NAME, refusal.error);
}

/// Checks that the caller may use an operation, in the channels that the request names.
fn permitted<O: Operation>(rights: &ApiRights, request: &O::Request<'_>) -> Result<(), OperationError> {
    rights.check(O::NAME, O::channels(request)).map_err(|why| OperationError::denied(why, O::NAME))
}

/// Writes the refusal of an operation as the member `error` of an object, and counts it. `place`: the operation's
/// place.
fn refuse(node: &Node, place: usize, object: &mut ObjectWriter<'_>, refusal: OperationError) -> OperationError {
    node.metrics_here().operations.count_error(place, refusal.error.code);
    ErrorJson::from(refusal.clone()).write(object.key("error"));
    refusal
}

/// Adds what the caller can do about it to a refusal.
fn explained(node: RequestNode<'_>, place: usize, params: &[u8], refusal: OperationError) -> OperationError {
    let Some(OperationRow { description, .. }) = TABLE.get(place) else { return refusal };
    let fields = (description.request_fields)();
    RefusedRequest { operation: description.name, fields, params }.explain(node, refusal)
}

/// What is written in parameters that no field of an operation reads. `None` = every member is a field.
/// Returns the name of the operation too.
pub(super) fn unknown_field(operation: &str, params: &[u8]) -> Option<(&'static str, String)> {
    let description = &TABLE.iter().find(|row| row.description.name == operation)?.description;
    let fields = (description.request_fields)();
    let request = RefusedRequest { operation: description.name, fields, params };
    request.unknown_field().map(|text| (description.name, text))
}

/// The refusal of a name that no operation has.
fn no_operation(name: &str) -> OperationError {
    let names = TABLE.iter().map(|row| row.description.name);
    OperationError { detail: Some(unknown_operation(name, names).into()), ..Error::METHOD_NOT_FOUND.into() }
}

/// Returns the place of the operation among the metrics; [`NO_OPERATION`] if no operation has this name.
pub(super) fn place_of(operation: &str) -> usize {
    TABLE.iter().position(|row| row.description.name == operation).unwrap_or(NO_OPERATION)
}

/// Returns the names of all operations in the order of their places.
pub(super) fn names_by_place() -> Vec<&'static str> {
    TABLE.iter().map(|row| row.description.name).collect()
}

/// Runs an operation that concerns only the asked node, for a request that is not JSON. Errors are counted.
///
/// # Errors
/// 103 if the caller may not use the operation, and the errors of the operation.
#[cfg(feature = "grpc")]
pub(super) async fn run_alone<'a, O: Operation + Placed>(
    node: RequestNode<'a>,
    rights: &ApiRights,
    request: Result<O::Request<'a>, OperationError>,
) -> Result<O::Reply, OperationError> {
    const { assert!(matches!(O::SCOPE, OperationScope::AnyNode)) };
    let outcome = match request {
        Ok(request) => match permitted::<O>(rights, &request) {
            Ok(()) => {
                let began_us = node.clock.elapsed_us();
                let outcome = O::run(node, request).await.inspect_err(declared::<O>);
                let took_us = node.clock.elapsed_us().saturating_sub(began_us);
                node.metrics_here().operations.observe_us(O::PLACE, took_us);
                outcome
            }
            Err(refusal) => Err(refusal),
        },
        Err(refusal) => Err(refusal),
    };
    let metrics = &node.metrics_here().operations;
    outcome.inspect_err(|refusal| metrics.count_error(O::PLACE, refusal.error.code))
}

/// Waits for an operation. `direct`: its future is a part of the request's future. `boxed`: its future is allocated on
/// its own, so that the copied futures of direct operations do not become as large.
macro_rules! wait {
    (direct $future:expr) => {
        $future.await
    };
    (boxed $future:expr) => {
        Box::pin($future).await
    };
}

/// Makes the table, the enums and the functions from the list of operations. Each entry says how the operation is
/// awaited (see [`wait`]). If an operation has several forms, the newest comes first: a version of the server API has
/// the first form that is not newer than itself.
macro_rules! operations {
    ($($(#[$only:meta])? $operation:ident $wait:ident,)*) => {
        /// The parameters of a call, by operation.
        enum CallRequest<'a> {
            $($(#[$only])? $operation(<$operation as Operation>::Request<'a>),)*
            /// No operation has this name.
            Unknown(Box<str>),
        }

        static TABLE: &[OperationRow] = &[$($(#[$only])? row::<$operation>()),*];
        const _: () = assert!(TABLE.len() < NO_OPERATION);

        /// The places of the operations in the table.
        #[expect(clippy::enum_variant_names, reason = "they are the names of the operations")]
        enum OperationPlace {
            $($(#[$only])? $operation,)*
        }

        $($(#[$only])? impl Placed for $operation {
            const PLACE: usize = OperationPlace::$operation as usize;
        })*

        impl<'a> Call<'a> {
            /// Reads the parameters of an operation in a version of the server API. An unknown operation is read too,
            /// and refused when it is run.
            ///
            /// # Errors
            /// When the parameters are not a JSON object, or not of the operation's shape.
            pub(super) fn read(method: &str, params: &'a [u8], version: u16) -> Result<Self, MalformedRequest> {
                let params = params.trim_ascii();
                let params = if params.is_empty() { b"{}" } else { params };
                let request = match method {
                    $($(#[$only])? <$operation as Operation>::NAME if $operation::SINCE <= version => {
                        let read = object(params).map_err(|cause| MalformedRequest::of::<$operation>(params, cause));
                        CallRequest::$operation(read?)
                    })*
                    _ => CallRequest::Unknown(method.into()),
                };
                Ok(Call { params, request })
            }

            /// Runs the operation on all nodes that it concerns, if the caller may use it. Its result becomes the
            /// member `key` of an object. An error becomes the member `error`, is counted and returned.
            pub(super) async fn run(
                self,
                node: RequestNode<'a>,
                rights: &ApiRights,
                object: &mut ObjectWriter<'_>,
                key: &str,
            ) -> Option<OperationError> {
                let began_us = node.clock.elapsed_us();
                let (place, outcome) = match self.request {
                    $($(#[$only])? CallRequest::$operation(request) => {
                        let place = $operation::PLACE;
                        if let Err(refusal) = permitted::<$operation>(rights, &request) {
                            let refusal = explained(node, place, self.params, refusal);
                            return Some(refuse(&node, place, object, refusal));
                        }
                        let run = run_everywhere::<$operation>(node, request, self.params, object, key);
                        (place, wait!($wait run).inspect_err(declared::<$operation>))
                    })*
                    CallRequest::Unknown(name) => (NO_OPERATION, Err(no_operation(&name))),
                };
                let took_us = node.clock.elapsed_us().saturating_sub(began_us);
                node.metrics_here().operations.observe_us(place, took_us);
                Some(refuse(&node, place, object, explained(node, place, self.params, outcome.err()?)))
            }

            /// Runs the operation on this node alone. Its result becomes the member `key` of an object. An error
            /// becomes the member `error`, and the requesting node counts it.
            pub(super) async fn run_here(self, node: RequestNode<'a>, object: &mut ObjectWriter<'_>, key: &str) {
                let outcome = match self.request {
                    $($(#[$only])? CallRequest::$operation(request) => {
                        Box::pin(run_here::<$operation>(node, request, object, key)).await
                    })*
                    CallRequest::Unknown(name) => Err(no_operation(&name)),
                };
                if let Err(refusal) = outcome {
                    ErrorJson::from(refusal).write(object.key("error"));
                }
            }
        }
    };
}

operations! {
    PublishOperation direct,
    BroadcastOperation boxed,
    SubscribeOperation boxed,
    UnsubscribeOperation boxed,
    DisconnectOperation boxed,
    RefreshOperation boxed,
    ClientUserOperation boxed,
    ConnectionsOperation boxed,
    GetUserStatusOperation boxed,
    BlockUserOperation boxed,
    UnblockUserOperation boxed,
    RevokeTokenOperation boxed,
    InvalidateUserTokensOperation boxed,
    BansOperation boxed,
    ForgetUserOperation boxed,
    TokenCheckOperation boxed,
    PresenceOperation boxed,
    PresenceStatsOperation boxed,
    HistoryOperation boxed,
    HistoryRemoveOperation boxed,
    ChannelsOperation boxed,
    ChannelOperation boxed,
    #[cfg(test)]
    LaterInfoOperation boxed,
    ReactionOpenOperation boxed,
    ReactionsAddOperation boxed,
    ReactionsGetOperation boxed,
    ReactionsCloseOperation boxed,
    InfoOperation boxed,
    OverviewOperation boxed,
    OverviewHistoryOperation boxed,
    ActivityOperation boxed,
    ConsumersOperation boxed,
    ConfigurationOperation boxed,
    RefusalsOperation boxed,
    TraceOperation boxed,
    RegisterOperation boxed,
    UnregisterOperation boxed,
    UpdateMetaOperation boxed,
    LookupOperation boxed,
    NamesOperation boxed,
    CountOperation boxed,
    JoinOperation boxed,
    LeaveOperation boxed,
    MembersOperation boxed,
    MemberOperation boxed,
    GroupsOperation boxed,
    ChangesOperation boxed,
    SendOperation boxed,
    CallOperation boxed,
    MultiCallOperation boxed,
    InboxNamesOperation boxed,
    InboxListOperation boxed,
    InboxDropOperation boxed,
    ChannelSetOperation boxed,
    ChannelGetOperation boxed,
    ChannelRemoveOperation boxed,
    ChannelsSearchOperation boxed,
    ChannelsSimilarOperation boxed,
    StatsAudienceOperation boxed,
    StatsTopOperation boxed,
    StatsEventsOperation boxed,
    EventsDeadOperation boxed,
    EventsDeadRetryOperation boxed,
    EventsDeadDropOperation boxed,
    EventsResumeOperation boxed,
    ReloadOperation boxed,
    RpcOperation boxed,
}

impl Call<'_> {
    /// Whether no operation has this name.
    pub(super) fn is_unknown(&self) -> bool {
        matches!(self.request, CallRequest::Unknown(_))
    }
}

/// Returns the operation that older libraries call by this number; None = no operation has the number.
pub(super) fn numbered(number: usize) -> Option<&'static str> {
    TABLE.iter().find(|row| row.number == Some(number)).map(|row| row.description.name)
}

/// Returns how many operations have a number for older libraries.
pub(super) fn numbers() -> usize {
    TABLE.iter().filter(|row| row.number.is_some()).count()
}

/// The groups of operations that a key of the server API may have, besides single operations. Each has the operations
/// in it.
const GROUPS: &[(&str, &[&str])] = &[
    ("@publish", &["publish", "broadcast"]),
    (
        "@read",
        &[
            "presence",
            "presence_stats",
            "history",
            "channels",
            "channel",
            "info",
            "overview",
            "overview_history",
            "activity",
            "consumers",
            "configuration",
            "refusals",
            "client_user",
            "connections",
            "get_user_status",
            "lookup",
            "names",
            "count",
            "members",
            "member",
            "groups",
            "changes",
            "channel_get",
            "channels_search",
            "channels_similar",
            "stats_audience",
            "stats_top",
            "stats_events",
            "events_dead",
            "reactions_get",
            "bans",
            "inbox_names",
            "inbox_list",
        ],
    ),
    ("@reactions", &["reaction_open", "reactions_add", "reactions_get", "reactions_close"]),
    (
        "@connections",
        &["subscribe", "unsubscribe", "disconnect", "refresh", "client_user", "connections", "get_user_status"],
    ),
    (
        "@registry",
        &[
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
        ],
    ),
    ("@directory", &["channel_set", "channel_get", "channel_remove", "channels_search", "channels_similar"]),
    ("@bans", &["block_user", "unblock_user", "revoke_token", "invalidate_user_tokens", "bans"]),
    ("@inbox", &["inbox_names", "inbox_list", "inbox_drop"]),
    // The operation shows details of a token that no other answer shows, so it is not in `@read`.
    ("@tokens", &["token_check"]),
    ("@statistics", &["stats_audience", "stats_top", "stats_events"]),
    ("@events", &["events_resume", "events_dead", "events_dead_retry", "events_dead_drop"]),
];

/// Returns the groups of operations, each with the operations in it.
pub fn operation_groups() -> impl ExactSizeIterator<Item = &'static (&'static str, &'static [&'static str])> {
    GROUPS.iter()
}

/// Returns the operations that a word stands for: one operation by its name, or those of a group; None = the word is
/// unknown.
pub(crate) fn operations_named(word: &str) -> Option<Vec<&'static str>> {
    let group = GROUPS.iter().find(|(name, _)| *name == word).map(|(_, operations)| operations.to_vec());
    group.or_else(|| operations().find(|operation| operation.name == word).map(|operation| vec![operation.name]))
}

/// Whether an operation only reads.
pub(super) fn reads(operation: &str) -> bool {
    GROUPS.iter().any(|(name, operations)| *name == "@read" && operations.contains(&operation))
}

/// Describes every operation of the newest stable version of the server API, in the order of the documentation.
pub fn operations() -> impl Iterator<Item = &'static OperationDescription> {
    operations_of(NEWEST.number)
}

/// Describes every operation of a version.
pub(super) fn operations_of(version: u16) -> impl Iterator<Item = &'static OperationDescription> {
    let is_in = move |row: &&OperationRow| row.since <= version;
    TABLE
        .iter()
        .enumerate()
        .filter(move |(index, row)| {
            // The first entry of a name is the newest form.
            is_in(row)
                && !TABLE[..*index].iter().any(|newer| is_in(&newer) && newer.description.name == row.description.name)
        })
        .map(|(_, row)| &row.description)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_operation_has_a_name_of_its_own_a_summary_and_an_example_that_it_reads() {
        let names: BTreeSet<&str> = operations().map(|operation| operation.name).collect();
        assert_eq!(names.len(), operations().count());
        assert!(!names.contains(BATCH));
        for operation in operations() {
            let name = operation.name;
            assert!(!operation.summary.is_empty() && !operation.summary.ends_with('.'), "{name}");
            assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{name}");
            let call =
                Call::read(name, operation.example.as_bytes(), 1).expect("the example is of the operation's shape");
            assert!(!call.is_unknown(), "{name}");
        }
        assert!(Call::read("nothing", b"{}", 1).is_ok_and(|call| call.is_unknown()));
    }

    #[test]
    fn every_field_of_an_example_is_one_of_the_request() {
        for operation in operations() {
            let example: serde_json::Map<String, serde_json::Value> =
                serde_json::from_str(operation.example).expect("an object");
            let fields = (operation.request_fields)();
            for field in example.keys() {
                assert!(fields.contains(&field.as_str()), "{}: {field} is not in {fields:?}", operation.name);
            }
        }
    }

    #[test]
    fn every_operation_of_a_group_exists_and_every_operation_is_in_a_group() {
        let known: BTreeSet<&str> = operations().map(|operation| operation.name).collect();
        let grouped: BTreeSet<&str> =
            operation_groups().flat_map(|(_, operations)| operations.iter().copied()).collect();
        assert_eq!(grouped.difference(&known).count(), 0, "{grouped:?}");
        // Operations that delete for good, change the node, show what clients do, or do not exist yet are granted by
        // name only.
        assert_eq!(
            known.difference(&grouped).copied().collect::<Vec<_>>(),
            ["forget_user", "history_remove", "reload", "rpc", "trace"]
        );
        assert_eq!(operations_named("publish"), Some(vec!["publish"]));
        assert_eq!(operations_named("@publish"), Some(vec!["publish", "broadcast"]));
        assert_eq!((operations_named("@nothing"), operations_named("batch")), (None, None));
    }

    #[test]
    fn every_error_is_declared_once_and_is_not_a_common_one() {
        for operation in operations() {
            let codes: BTreeSet<u32> = operation.errors.iter().map(|error| error.code).collect();
            assert_eq!(codes.len(), operation.errors.len(), "{}", operation.name);
            for error in operation.errors {
                assert!(Error::ALL.contains(error) && !COMMON_ERRORS.contains(error), "{}: {error}", operation.name);
            }
        }
    }

    #[test]
    fn the_numbers_of_older_libraries_are_those_of_their_protocol() {
        let names: Vec<&str> = (0..).map_while(numbered).collect();
        let expected = "publish broadcast unsubscribe disconnect presence presence_stats history history_remove \
                        channels info rpc subscribe refresh";
        assert_eq!(names.join(" "), expected);
    }

    /// A malformed operation is refused when it is read, before its batch has done anything.
    #[test]
    fn parameters_of_another_shape_are_refused_when_they_are_read() {
        for operation in operations() {
            assert!(Call::read(operation.name, b"[]", 1).is_err(), "{}", operation.name);
            assert!(Call::read(operation.name, b"{", 1).is_err(), "{}", operation.name);
        }
        assert!(Call::read("publish", b"{\"channel\":7}", 1).is_err());
        assert!(Call::read("publish", b" ", 1).is_ok(), "no body stands for an empty object");
    }
}
