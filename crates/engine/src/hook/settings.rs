//! The settings of hooks. Sections and keys are those of Centrifugo's proxies.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use crate::setting::{
    Filled, Key, Misfit, SOME, SettingValue, SettingsTable, ValueKind, WrittenValue, described, fill,
};

/// The name of the proxies in `channel.proxy` and `rpc.proxy`.
pub const DEFAULT_PROXY: &str = "default";

settings! {
    /// A backend that is asked.
    pub struct ProxySettings {
        /// Address of the backend: `http://…`, `https://…` or `grpc://host:port`.
        key endpoint: String = "";
        /// Time that one call may take, from its first byte on.
        key timeout: Duration = Duration::from_secs(1);
        /// Header fields of the client's own HTTP request that are passed on.
        key http_headers: Vec<String> = &[];
        /// Header fields that the client claims in its connect command and that are passed on. They prove nothing. If
        /// the transport has the same field, and `http_headers` names it, that one counts.
        key emulated_headers: Vec<String> = &[];
        /// Fields of the metadata of a client of gRPC that are passed on.
        key grpc_metadata: Vec<String> = &[];
        /// The `meta` of the connection is sent too.
        key include_connection_meta: bool = false;
        /// Payloads are sent in base64, as `b64data`.
        key binary_encoding: bool = false;
        /// How it is asked over HTTP.
        section http: ProxyHttpSettings = ProxyHttpSettings::default();
        /// How it is asked over gRPC.
        section grpc: ProxyGrpcSettings = ProxyGrpcSettings::default();
    }
}

impl ProxySettings {
    /// The host and port of a backend that is asked over gRPC; `None` = it is asked over HTTP.
    pub fn grpc_target(&self) -> Option<&str> {
        match self.endpoint.split_once("://") {
            None if self.endpoint.is_empty() => None,
            None => Some(&self.endpoint),
            Some(("grpc", target)) => Some(target),
            Some(_) => None,
        }
    }
}

settings! {
    /// How a backend is asked over HTTP.
    pub struct ProxyHttpSettings {
        /// TLS to the backend.
        section tls: ClientTlsSettings = ClientTlsSettings::default();
        /// Header fields of every call: a table of texts. `${CENTRIFUGO_VAR_x}` in a value is replaced by that variable
        /// of the environment.
        key static_headers: StringMap = (), ValueKind::StringMap;
        /// Statuses of HTTP that are the backend's refusal: a list of tables with `status_code`, and `to_error`
        /// (`code`, `message`, `temporary`) or `to_disconnect` (`code`, `reason`).
        key status_to_code_transforms: StatusTransforms = (), ValueKind::Transforms;
    }
}

settings! {
    /// How a backend is asked over gRPC.
    pub struct ProxyGrpcSettings {
        /// TLS to the backend; without it the connection is plain.
        section tls: ClientTlsSettings = ClientTlsSettings::default() => with {
            enabled: "The backend is asked over TLS, by the keys of this section.";
        };
        /// Key of the metadata of every call that has `credentials_value`; empty: none.
        key credentials_key: String = "";
        /// The value of `credentials_key`.
        key credentials_value: String = "", ValueKind::Secret;
        /// Questions are compressed (gzip), and answers may be.
        key compression: bool = false;
        /// Metadata of every call: a table of texts. `${CENTRIFUGO_VAR_x}` in a value is replaced by that variable of
        /// the environment.
        key static_metadata: StringMap = (), ValueKind::StringMap;
    }
}

settings! {
    /// TLS of the node as a client of another server. A field that ends in `_pem` is PEM, base64 of it, or the path of
    /// a file.
    #[derive(PartialEq, Eq)]
    pub struct ClientTlsSettings {
        /// The keys of this section count. Without it a server of `https://` is trusted by the authorities of the
        /// system.
        key enabled: bool = false;
        /// The certificate by which the node is known to the server, written as `http_server.tls.cert_pem`. Empty: it
        /// has none.
        key cert_pem: String = "";
        /// The key of `cert_pem`, written as `http_server.tls.key_pem`.
        key key_pem: String = "", ValueKind::Secret;
        /// Authorities that the server is trusted by: PEM, base64 of it, or the path of a file. Empty: those of the
        /// system.
        key server_ca_pem: String = "";
        /// Any certificate of the server is trusted. For development.
        key insecure_skip_verify: bool = false;
        /// The name that the server's certificate must have. Empty: the host of the endpoint.
        key server_name: String = "";
    }
}

/// A hook that has a switch of its own, and its backend: the keys of both are in one section.
#[derive(Debug, Clone, Default)]
pub struct SwitchedProxySettings {
    /// The backend is asked.
    pub enabled: bool,
    /// The backend.
    pub proxy: ProxySettings,
}

impl SettingsTable for SwitchedProxySettings {
    fn visit(&self, visit: &mut dyn FnMut(Key)) {
        visit(described("enabled", bool::KIND, &self.enabled, "The backend is asked.", false));
        self.proxy.visit(visit);
    }

    fn set(&mut self, path: &str, written: &WrittenValue<'_>) -> Option<Result<Filled, Misfit>> {
        match path {
            "enabled" => Some(fill(&mut self.enabled, bool::KIND, written)),
            _ => self.proxy.set(path, written),
        }
    }
}

settings! {
    /// Hooks about a connection.
    pub struct ClientProxySettings {
        /// Asked for each client that connects without a token.
        section connect: SwitchedProxySettings = SwitchedProxySettings::default() => with {
            enabled: "The backend is asked who a client is that connects without a token.";
        };
        /// Asked when a connection expires.
        section refresh: SwitchedProxySettings = SwitchedProxySettings::default() => with {
            enabled: "The backend is asked when a connection expires, instead of the client.";
        };
    }
}

settings! {
    /// Hooks about channels: the backends of the name `default`. The options of a namespace say whether they are asked.
    pub struct ChannelProxySettings {
        /// Asked before a client subscribes, where `subscribe_proxy_enabled` is on.
        section subscribe: ProxySettings = ProxySettings::default();
        /// Asked before a client publishes, where `publish_proxy_enabled` is on.
        section publish: ProxySettings = ProxySettings::default();
        /// Asked when a subscription expires, where `sub_refresh_proxy_enabled` is on.
        section sub_refresh: ProxySettings = ProxySettings::default();
    }
}

settings! {
    /// Hooks about names.
    pub struct RegistryProxySettings {
        /// Asked which of two clients keeps a name, in scopes with `conflict_policy = "hook"`.
        section conflict: ProxySettings = ProxySettings::default();
    }
}

settings! {
    /// RPCs of clients that a backend answers.
    pub struct RpcSettings {
        /// The backend of the name `default`.
        section proxy: ProxySettings = ProxySettings::default();
        /// Methods whose name has no namespace.
        section without_namespace: RpcOptions = RpcOptions::default();
        /// Separates the namespace from the rest of a method's name.
        key namespace_boundary: String = ":";
        /// The namespaces of methods.
        plain namespaces: Vec<RpcNamespace> = Vec::new();
    }
}

settings! {
    /// The options of the methods of one namespace.
    pub struct RpcOptions {
        /// The backend answers these methods.
        key proxy_enabled: bool = false;
        /// The name of the backend: `default` is `rpc.proxy`, others are in `proxies`.
        key proxy_name: String = DEFAULT_PROXY;
    }
}

settings! {
    /// What all hooks of a node may cost together.
    pub struct HooksSettings {
        /// Calls of this node that are under way at the same time. While more than one backend is configured, one of
        /// them gets three quarters of them at most.
        own calls_max: usize = 256, SOME;
        /// Calls that wait until one under way has ended; one more is refused with error 111.
        own queue_max_entries: usize = 16_384;
        /// Bytes of calls that wait; one more is refused with error 111.
        own queue_max_size: usize = 67_108_864, SOME;
        /// Time for which a call may wait until it begins; then it is refused with error 111.
        own queue_timeout: Duration = Duration::from_secs(10);
        /// Largest answer of a backend, bytes; to a larger one the client gets error 100.
        own answer_size_max: usize = 1_048_576, SOME;
        /// Answers to subscribes that are kept because they say so (`cache_for`); the oldest goes first.
        own cache_max_entries: usize = 10_000;
        /// Bytes of such answers, with the questions that they answer; the oldest goes first.
        own cache_max_size: usize = 67_108_864, SOME;
    }
}

/// A backend that has a name.
#[derive(Debug, Clone, Default)]
pub struct NamedProxy {
    /// Its name.
    pub name: String,
    /// The backend.
    pub proxy: ProxySettings,
}

/// A namespace of methods.
#[derive(Debug, Clone, Default)]
pub struct RpcNamespace {
    /// The part of a method's name before the boundary.
    pub name: String,
    /// The options of its methods.
    pub options: RpcOptions,
}

impl RpcSettings {
    /// The options of a method; `None` = its namespace does not exist.
    pub fn resolve(&self, method: &str) -> Option<&RpcOptions> {
        let boundary = self.namespace_boundary.as_str();
        match method.split_once(boundary).filter(|_| !boundary.is_empty()) {
            None => Some(&self.without_namespace),
            Some((name, _)) => {
                self.namespaces.iter().find(|namespace| namespace.name == name).map(|namespace| &namespace.options)
            }
        }
    }
}

/// Texts by name, in the order of their names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct StringMap(pub BTreeMap<String, String>);

impl SettingValue for StringMap {
    type Literal = ();
    const KIND: ValueKind = ValueKind::StringMap;

    fn of((): ()) -> Self {
        StringMap::default()
    }

    /// Text is a JSON object.
    fn read(_: ValueKind, written: &WrittenValue<'_>) -> Result<Self, Misfit> {
        match written {
            WrittenValue::Text("") => Ok(StringMap::default()),
            WrittenValue::Text(text) => serde_json::from_str(text).map_err(|_| None),
            WrittenValue::Nested(json) => serde_json::from_value(json.clone()).map_err(|_| None),
            _ => Err(None),
        }
    }

    fn show(&self) -> String {
        serde_json::json!(self.0).to_string()
    }
}

/// A status of HTTP, and the refusal that it stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusTransform {
    /// The status.
    pub status_code: u16,
    /// The refusal.
    pub outcome: TransformOutcome,
}

/// The refusal that a status of HTTP stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransformOutcome {
    /// An error reply.
    Error {
        /// Its number.
        code: u32,
        /// Its text, at most 123 bytes of ASCII.
        message: String,
        /// The same command may succeed later.
        temporary: bool,
    },
    /// The end of the connection.
    Disconnect {
        /// Its number.
        code: u16,
        /// Its text, at most 123 bytes of ASCII.
        reason: String,
    },
}

/// Refusals by status of HTTP.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StatusTransforms(pub Vec<StatusTransform>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TransformJson {
    status_code: u16,
    to_error: Option<ErrorTransformJson>,
    to_disconnect: Option<DisconnectTransformJson>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ErrorTransformJson {
    code: u32,
    #[serde(default)]
    message: String,
    #[serde(default)]
    temporary: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DisconnectTransformJson {
    code: u16,
    #[serde(default)]
    reason: String,
}

/// Longest text of a refusal, bytes: that of a close frame (RFC 6455 section 5.5).
const TEXT_LEN_MAX: usize = 123;

impl TransformJson {
    fn check(self) -> Result<StatusTransform, Misfit> {
        let fault = |text: &str| Err(Some(text.to_owned()));
        let is_text = |text: &str| text.is_ascii() && text.len() <= TEXT_LEN_MAX;
        let outcome = match (self.to_error, self.to_disconnect) {
            (Some(error), None) => {
                if !(400..=1_999).contains(&error.code) {
                    return fault("a code of to_error that is not 400-1999");
                }
                TransformOutcome::Error { code: error.code, message: error.message, temporary: error.temporary }
            }
            (None, Some(end)) => {
                if !(4_000..=4_999).contains(&end.code) {
                    return fault("a code of to_disconnect that is not 4000-4999");
                }
                TransformOutcome::Disconnect { code: end.code, reason: end.reason }
            }
            _ => return fault("a transform without exactly one of to_error and to_disconnect"),
        };
        let (TransformOutcome::Error { message: text, .. } | TransformOutcome::Disconnect { reason: text, .. }) =
            &outcome;
        if !is_text(text) {
            return fault("a text that is not ASCII, or longer than 123 bytes");
        }
        Ok(StatusTransform { status_code: self.status_code, outcome })
    }
}

impl SettingValue for StatusTransforms {
    type Literal = ();
    const KIND: ValueKind = ValueKind::Transforms;

    fn of((): ()) -> Self {
        StatusTransforms::default()
    }

    /// Text is a JSON list.
    fn read(_: ValueKind, written: &WrittenValue<'_>) -> Result<Self, Misfit> {
        let all: Vec<TransformJson> = match written {
            WrittenValue::Text("") => Vec::new(),
            WrittenValue::Text(text) => serde_json::from_str(text).map_err(|_| None)?,
            WrittenValue::Nested(json) => serde_json::from_value(json.clone()).map_err(|_| None)?,
            WrittenValue::Texts(texts) if texts.is_empty() => Vec::new(),
            _ => return Err(None),
        };
        all.into_iter().map(TransformJson::check).collect::<Result<_, _>>().map(StatusTransforms)
    }

    fn show(&self) -> String {
        let all = self.0.iter().map(|transform| match &transform.outcome {
            TransformOutcome::Error { code, message, temporary } => serde_json::json!({
                "status_code": transform.status_code,
                "to_error": { "code": code, "message": message, "temporary": temporary },
            }),
            TransformOutcome::Disconnect { code, reason } => serde_json::json!({
                "status_code": transform.status_code,
                "to_disconnect": { "code": code, "reason": reason },
            }),
        });
        serde_json::Value::from_iter(all).to_string()
    }
}
