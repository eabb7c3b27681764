//! The methods of both API services, each with its operation.

use hyper::Request;
use tonic::Status;

use super::call::GrpcCall;
use super::json_calls::through_json;
use super::publishing;
use super::unary::{refuse, unary};
use crate::proto::{centrifugo_api as centrifugo, touchline_api as touchline};
use crate::transport::http::Routed;
use crate::transport::http::body::RequestBody;

/// The names of the two API services.
pub(super) const CENTRIFUGO: &str = "centrifugal.centrifugo.api.CentrifugoApi";
pub(super) const TOUCHLINE: &str = "touchline.api.v1.TouchlineApi";

/// Makes the table of methods. First come the methods with functions of their own. Then come those that go through
/// JSON, each with its two messages and the name of its operation.
macro_rules! methods {
    (
        $($own:literal $answer:path;)*
        $($service:ident: $($method:literal $request:ident $response:ident $operation:literal;)*)*
    ) => {
        /// Answers a call of a method.
        pub(super) async fn answer(call: &GrpcCall<'_>, request: Request<RequestBody>) -> Routed {
            let node = &*call.origin.node;
            let path = request.uri().path().to_owned();
            match path.strip_prefix('/').and_then(|path| path.split_once('/')).unwrap_or_default() {
                $((CENTRIFUGO, $own) => unary(node, request, |message| $answer(*call, message)).await,)*
                $($((service::$service, $method) => {
                    let run = |message| {
                        through_json::<$service::$request, $service::$response>(*call, $operation, message)
                    };
                    Box::pin(unary(node, request, run)).await
                })*)*
                _ => refuse(Status::unimplemented("there is no method of this name")),
            }
        }

        /// The operations that the methods of gRPC call.
        #[cfg(test)]
        const OPERATIONS: &[&str] = &["publish", "broadcast", $($($operation,)*)*];
    };
}

/// The names of the services, as the table writes them.
mod service {
    #![expect(non_upper_case_globals, reason = "the table uses them as it uses the modules of messages")]
    pub(super) const centrifugo: &str = super::CENTRIFUGO;
    pub(super) const touchline: &str = super::TOUCHLINE;
}

methods! {
    "Publish" publishing::publish;
    "Broadcast" publishing::broadcast;
    centrifugo:
    "Batch" BatchRequest BatchResponse "batch";
    "Subscribe" SubscribeRequest SubscribeResponse "subscribe";
    "Unsubscribe" UnsubscribeRequest UnsubscribeResponse "unsubscribe";
    "Disconnect" DisconnectRequest DisconnectResponse "disconnect";
    "Presence" PresenceRequest PresenceResponse "presence";
    "PresenceStats" PresenceStatsRequest PresenceStatsResponse "presence_stats";
    "History" HistoryRequest HistoryResponse "history";
    "HistoryRemove" HistoryRemoveRequest HistoryRemoveResponse "history_remove";
    "Info" InfoRequest InfoResponse "info";
    "RPC" RpcRequest RpcResponse "rpc";
    "Refresh" RefreshRequest RefreshResponse "refresh";
    "Channels" ChannelsRequest ChannelsResponse "channels";
    "Connections" ConnectionsRequest ConnectionsResponse "connections";
    "GetUserStatus" GetUserStatusRequest GetUserStatusResponse "get_user_status";
    "BlockUser" BlockUserRequest BlockUserResponse "block_user";
    "UnblockUser" UnblockUserRequest UnblockUserResponse "unblock_user";
    "RevokeToken" RevokeTokenRequest RevokeTokenResponse "revoke_token";
    "InvalidateUserTokens" InvalidateUserTokensRequest InvalidateUserTokensResponse "invalidate_user_tokens";
    touchline:
    "ClientUser" ClientUserRequest ClientUserResponse "client_user";
    "Register" RegisterRequest RegisterResponse "register";
    "Unregister" UnregisterRequest UnregisterResponse "unregister";
    "UpdateMeta" UpdateMetaRequest UpdateMetaResponse "update_meta";
    "Lookup" LookupRequest LookupResponse "lookup";
    "Names" NamesRequest NamesResponse "names";
    "Count" CountRequest CountResponse "count";
    "Join" JoinRequest JoinResponse "join";
    "Leave" LeaveRequest LeaveResponse "leave";
    "Members" MembersRequest MembersResponse "members";
    "Member" MemberRequest MemberResponse "member";
    "Groups" GroupsRequest GroupsResponse "groups";
    "Changes" ChangesRequest ChangesResponse "changes";
    "Send" SendRequest SendResponse "send";
    "Call" CallRequest CallResponse "call";
    "MultiCall" CallRequest MultiCallResponse "multi_call";
    "ChannelSet" ChannelSetRequest ChannelSetResponse "channel_set";
    "ChannelGet" ChannelGetRequest ChannelGetResponse "channel_get";
    "ChannelRemove" ChannelRemoveRequest ChannelRemoveResponse "channel_remove";
    "ChannelsSearch" ChannelsSearchRequest ChannelsSearchResponse "channels_search";
    "ChannelsSimilar" ChannelsSimilarRequest ChannelsSimilarResponse "channels_similar";
    "StatsAudience" StatsAudienceRequest StatsAudienceResponse "stats_audience";
    "StatsTop" StatsTopRequest StatsTopResponse "stats_top";
    "StatsEvents" StatsEventsRequest StatsEventsResponse "stats_events";
    "EventsDead" EventsDeadRequest EventsDeadResponse "events_dead";
    "EventsDeadRetry" EventsDeadChoice EventsDeadCountResponse "events_dead_retry";
    "EventsDeadDrop" EventsDeadChoice EventsDeadCountResponse "events_dead_drop";
    "EventsResume" EventsResumeRequest EventsResumeResponse "events_resume";
    "Reload" ReloadRequest ReloadResponse "reload";
    "Overview" OverviewRequest OverviewResponse "overview";
    "Activity" OverviewRequest ActivityResponse "activity";
    "Consumers" OverviewRequest ConsumersResponse "consumers";
    "Configuration" OverviewRequest ConfigurationResponse "configuration";
    "Channel" ChannelRequest ChannelResponse "channel";
    "OverviewHistory" OverviewRequest OverviewHistoryResponse "overview_history";
    "ForgetUser" ForgetUserRequest ForgetUserResponse "forget_user";
    "Bans" BansRequest BansResponse "bans";
    "TokenCheck" TokenCheckRequest TokenCheckResponse "token_check";
    "InboxNames" InboxNamesRequest InboxNamesResponse "inbox_names";
    "InboxList" InboxListRequest InboxListResponse "inbox_list";
    "InboxDrop" InboxDropRequest InboxDropResponse "inbox_drop";
    "Refusals" OverviewRequest RefusalsResponse "refusals";
    "Trace" TraceRequest TraceResponse "trace";
    "ReactionOpen" ReactionOpenRequest ReactionOpenResponse "reaction_open";
    "ReactionsAdd" ReactionsAddRequest ReactionsAddResponse "reactions_add";
    "ReactionsGet" ReactionsChannelRequest ReactionsResponse "reactions_get";
    "ReactionsClose" ReactionsChannelRequest ReactionsResponse "reactions_close";
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_operation_has_a_method() {
        let known: BTreeSet<&str> = crate::api::operations().map(|operation| operation.name).collect();
        let mut called: BTreeSet<&str> = OPERATIONS.iter().copied().collect();
        assert!(called.remove("batch"));
        assert_eq!(called, known);
    }
}
