//! The server that people embed or run: shards, HTTP, operations and metrics. It joins the other crates. It passes time
//! and random numbers to the engine, and carries out what sessions, homes and the registry decide.
//!
//! The rules of the protocol are in `touchline-engine` and `touchline-protocol`, not here. This crate reads neither
//! configuration files nor command lines: it takes [`Settings`].
//!
//! ```
//! let mut settings = touchline_server::Settings::default();
//! settings.http_server.address = "127.0.0.1".into();
//! settings.http_server.port = 0; // Any free one.
//! settings.http_api.key = "a long secret".into();
//! settings.client.token.hmac_secret_key = "another long secret".into();
//! let running = touchline_server::Server::bind(settings)?.start()?;
//! println!("listening on {}", running.address());
//! assert_ne!(running.address().port(), 0);
//! running.stop();
//! # Ok::<(), touchline_server::StartError>(())
//! ```
//!
//! A program that decides by itself which client may do what passes a [`HookHandler`] to [`Server::builder`]. It adds
//! paths of its own by [`ServerBuilder::route`], and pages by [`ServerBuilder::site`]. Its tests stop the
//! node's clock and move it by [`ServerBuilder::clock`].
//!
//! # Where to begin
//!
//! 1. `builder.rs`: how a node is put together; `server.rs`: how it starts and stops.
//! 2. `shard/state.rs`: what a shard owns; `shard/turn.rs`: what it does in each turn of its loop.
//! 3. `api/operations/publish.rs`: one operation of the server API, from its request to its answer.
//! 4. `backend/store.rs` and `backend/nats.rs`: how events of the databases and of other nodes reach the shards.
//!
//! # What never happens
//!
//! - No shard waits for another one: a message for another shard is put into its mailbox.
//! - No shard waits for a database or for NATS: the answer arrives as an event.
//! - A panic in the code of one connection never ends another connection; the shard counts it.
//! - No file imports from a layer above its own.
//!
//! # Layers
//!
//! A file imports only from its own layer and from lower ones. No files import each other in a circle. Bottom first:
//!
//! 1. `proto`: the messages of gRPC, generated from the `.proto` files.
//! 2. `tls`: certificates and the TLS configuration of ports.
//! 3. `outbound`: the HTTP client of the node, for requests to other servers.
//! 4. `net`: what is known of a connection before it is served: addresses, header fields, sockets, ports, limits.
//! 5. `start_error`: why a node can't start.
//! 6. `auth`: tokens, the keys that verify them, and the keys of the server API.
//! 7. `runtime`: what every thread uses: mailboxes, handles of shards, clock, metrics, random numbers.
//! 8. `web`: what the program around the server serves: pages with their assets, and routes.
//! 9. `node`: what the threads of a node share: settings and handles.
//! 10. `backend`: NATS and the databases: how they are opened, and what their events do.
//! 11. `registry`: the registry actor.
//! 12. `hooks`: the thread that asks backends.
//! 13. `transport`: HTTP, the handshakes, streams and emulation. A trait, `Router`, answers the requests.
//! 14. `shard`: the event loops. They call higher layers through a trait, `ShardServices`.
//! 15. `api`: the router and the operations, which implement both traits.
//! 16. `trial`: tries tokens without a node.
//! 17. `action_trial`: tries actions of clients without a node.
//! 18. `connecting`: tries the databases, servers and backends that the settings name.
//! 19. `preparation`: checks the settings.
//! 20. `listening`: binds the ports.
//! 21. `handle`: the handle of a running server, for the program that embeds it.
//! 22. `making`: makes a generation of settings, and the threads that begin with it.
//! 23. `reloading`: replaces one generation by the next.
//! 24. `server`: a node that is ready to start, and one that runs.
//! 25. `builder`: puts the parts of a node together, and passes the implementations of the traits down.
//!
//! The ownership has no cycles. Events of the backends reach the node by a `Weak`, and a shard leaves its handle when
//! its thread ends. So a node that has stopped is freed.

mod action_trial;
mod api;
mod auth;
mod backend;
mod builder;
mod connecting;
mod console;
mod consumers;
mod drain;
mod draining;
mod events;
mod handle;
mod hooks;
mod listening;
mod making;
mod net;
mod node;
mod outbound;
mod preparation;
#[cfg(feature = "grpc")]
mod proto;
mod reactions;
mod registry;
mod reloading;
mod runtime;
mod server;
mod shard;
mod start_error;
mod tls;
mod traces;
mod transport;
mod trial;
mod web;

pub use action_trial::{TriedAction, TriedClient, try_action};
pub use api::{
    BATCH, COMMON_ERRORS, DOCUMENTS, FieldKind, MetricDescription, OperationDescription, OperationScope, metrics,
    operation_groups, operations,
};
pub use auth::{TokenStage, TokenStep, TokenVerdict, check_token_keys, shown_seconds};
pub use builder::ServerBuilder;
pub use bytes::Bytes;
pub use connecting::{ConnectionTrial, try_connections};
pub use handle::{OperationRefusal, ServerHandle};
pub use hooks::{HookAnswer, HookClient, HookFuture, HookHandler};
pub use hyper::http;
pub use preparation::{PROBES, check};
pub use regex::Regex;
pub use runtime::process::VERSION;
pub use runtime::reload::{ReadSettings, ReloadRefusal, Reloaded, SettingsSource};
pub use server::{Running, Server};
pub use start_error::StartError;
pub use tls::{TlsError, read_pem};
pub use touchline_clock::{Clock, ClockHand};
pub use touchline_config::{
    ApiJwksSettings, ApiKeySettings, AutocertSettings, BadNetwork, ClientAuth, ClientTlsSettings, ClientUser,
    ClusterSettings, ConsumerSettings, ConsumerSources, ConsumerType, EmulationSettings, EndpointSettings,
    EventsSettings, GrpcApiSettings, HttpApiSettings, HttpServerSettings, HttpStreamSettings, InternalTlsSettings,
    JetStreamSettings, NamedApiKey, NamedConsumer, NamedEvents, NodeSettings, OutboxSettings, PrimarySettings,
    PublicationDataSettings, RegistrySettings, SecuritySettings, Settings, ShutdownSettings, StatsSettings,
    StoreSettings, TcpSettings, TlsSettings, UniWebSocketSettings, UserStatusSettings, WebSocketSettings, WhenCutOff,
    WrittenKey, is_inline_pem,
};
pub use touchline_engine::directory::{ConflictPolicy, ScopeOptions};
pub use touchline_engine::hook::{
    ChannelProxySettings, ClientProxySettings, ConflictClaim, HookCall, HookKind, HookRequest, HooksSettings,
    NamedProxy, ProxyGrpcSettings, ProxyHttpSettings, ProxySettings, RegistryProxySettings, RpcNamespace, RpcOptions,
    RpcSettings, StatusTransform, StatusTransforms, StringMap, SwitchedProxySettings, TransformOutcome,
};
pub use touchline_engine::limit::{
    BucketBlock, ChannelCommandBlock, CommandLimitSettings, ErrorLimitSettings, EscalationSettings,
    FailedConnectSettings, MethodOverrideTable, MethodOverrides, NamespaceOverrides, OnLimit, RateBucket, RateBuckets,
    RateLimitSettings, RateOverride, RpcBlock, SharedCommandLimitSettings,
};
pub use touchline_engine::session::{
    ChannelAction, DecisionRule, ExplainedAction, ExplainedStep, StepFact, StepVerdict,
};
pub use touchline_engine::{ChannelOptions, ChannelSettings, ClientSettings, Namespace, RecoveryMode, SlowConsumer};
pub use touchline_engine::{
    ClaimPath, ClaimPaths, PersonalChannel, ProviderOptions, RefusalReport, SubscriptionTokenSettings, TokenError,
    TokenJwksSettings, TokenProvider, TokenSettings,
};
pub use trial::TokenTrial;
pub use web::{RouteFuture, RouteHandler, Site, SiteFile};
