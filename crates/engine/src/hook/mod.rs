//! Hooks: questions to the operator's backend before or instead of an action of a client, and the answers to them.
//!
//! A session asks ([`HookCall`], an effect) and continues when the answer ([`HookOutcome`]) arrives. The formats are
//! those of Centrifugo's proxies, so that a backend written for Centrifugo works unchanged. [`parse_answer`] reads the
//! JSON of an answer. The host is responsible for the transport.

mod answer;
mod answer_shape;
mod call;
mod outcome;
mod settings;

pub use answer::{AnswerFault, parse_answer};
pub use answer_shape::ShapeFault;
pub use call::{ConflictClaim, EmulatedHeaders, HookCall, HookKind, HookRequest};
pub use outcome::{
    ConnectAnswer, HookError, HookOutcome, HookResult, PublishAnswer, RefreshAnswer, SubRefreshAnswer, SubscribeAnswer,
};
pub use settings::{
    ChannelProxySettings, ClientProxySettings, ClientTlsSettings, DEFAULT_PROXY, HooksSettings, NamedProxy,
    ProxyGrpcSettings, ProxyHttpSettings, ProxySettings, RegistryProxySettings, RpcNamespace, RpcOptions, RpcSettings,
    StatusTransform, StatusTransforms, StringMap, SwitchedProxySettings, TransformOutcome,
};
