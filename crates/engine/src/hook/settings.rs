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
    /// A backend that the node asks.
    pub struct ProxySettings {
        /// Address of the backend: `http://…`, `https://…` or `grpc://host:port`.
        key endpoint: String = "";
        /// Time limit for one call, from its first byte on.
        key timeout: Duration = Duration::from_secs(1);
        /// Header fields of the client's own HTTP request that are forwarded to the backend.
        key http_headers: Vec<String> = &[];
        /// Header fields that the client claims in its connect command and that are forwarded to the backend. They
        /// prove nothing. If the transport has the same field, and `http_headers` names it, the field of the transport
        /// takes precedence.
        key emulated_headers: Vec<String> = &[];
        /// Metadata fields of a gRPC client that are forwarded to the backend.
        key grpc_metadata: Vec<String> = &[];
        /// The `meta` of the connection is sent to the backend too.
        key include_connection_meta: bool = false;
        /// Payloads are sent in base64, as `b64data`.
        key binary_encoding: bool = false;
        /// How the backend is called over HTTP.
        section http: ProxyHttpSettings = ProxyHttpSettings::default();
        /// How the backend is called over gRPC.
        section grpc: ProxyGrpcSettings = ProxyGrpcSettings::default();
    }
}

impl ProxySettings {
    /// The host and port of a backend that is called over gRPC; `None` = it is called over HTTP.
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
    /// How a backend is called over HTTP.
    pub struct ProxyHttpSettings {
        /// TLS to the backend.
        section tls: ClientTlsSettings = ClientTlsSettings::default();
        /// Header fields that are added to every call: a table of texts. `${CENTRIFUGO_VAR_x}` in a value is replaced
        /// by that environment variable.
        key static_headers: StringMap = (), ValueKind::StringMap;
        /// HTTP statuses that count as a refusal by the backend: a list of tables with `status_code`, and `to_error`
        /// (`code`, `message`, `temporary`) or `to_disconnect` (`code`, `reason`).
        key status_to_code_transforms: StatusTransforms = (), ValueKind::Transforms;
    }
}

settings! {
    /// How a backend is called over gRPC.
    pub struct ProxyGrpcSettings {
        /// TLS to the backend; without it the connection is plain.
        section tls: ClientTlsSettings = ClientTlsSettings::default() => with {
            enabled: "The backend is called over TLS, with the keys of this section.";
        };
        /// Metadata key whose value is `credentials_value` in every call; empty: none.
        key credentials_key: String = "";
        /// The value of the metadata key `credentials_key`.
        key credentials_value: String = "", ValueKind::Secret;
        /// Calls are compressed (gzip), and the backend may compress its answers too.
        key compression: bool = false;
        /// Metadata that is added to every call: a table of texts. `${CENTRIFUGO_VAR_x}` in a value is replaced by that
        /// environment variable.
        key static_metadata: StringMap = (), ValueKind::StringMap;
    }
}

settings! {
    /// TLS of the node as a client of another server. A field that ends in `_pem` contains PEM, base64 of PEM, or the
    /// path of a file.
    #[derive(PartialEq, Eq)]
    pub struct ClientTlsSettings {
        /// Use the keys of this section. Off: if the connection uses TLS, the server's certificate is verified with the
        /// certificate authorities of the system.
        key enabled: bool = false;
        /// The certificate that the node presents to the server, written as `http_server.tls.cert_pem`. Empty: none.
        key cert_pem: String = "";
        /// The private key of `cert_pem`, written as `http_server.tls.key_pem`.
        key key_pem: String = "", ValueKind::Secret;
        /// Certificate authorities that verify the server: PEM, base64 of it, or the path of a file. Empty: those of
        /// the system.
        key server_ca_pem: String = "";
        /// Accept any certificate of the server. For development only.
        key insecure_skip_verify: bool = false;
        /// The name that the server's certificate must have. Empty: the host of the endpoint.
        key server_name: String = "";
    }
}

/// A hook that has a switch of its own, together with its backend. The keys of both are in one section.
#[derive(Debug, Clone, Default)]
pub struct SwitchedProxySettings {
    /// Whether the backend is asked.
    pub enabled: bool,
    /// The backend to ask.
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
    /// Hooks for connections: when a client connects, and when a connection expires.
    pub struct ClientProxySettings {
        /// Asked for each client that connects without a token.
        section connect: SwitchedProxySettings = SwitchedProxySettings::default() => with {
            enabled: "The backend authenticates clients that connect without a token.";
        };
        /// Asked when a connection expires.
        section refresh: SwitchedProxySettings = SwitchedProxySettings::default() => with {
            enabled: "When a connection expires, the node asks the backend, not the client, whether it may continue.";
        };
    }
}

settings! {
    /// Hooks for channels: the backends named `default`. The options of a namespace decide whether they are asked.
    pub struct ChannelProxySettings {
        /// Asked before a client subscribes, if `subscribe_proxy_enabled` is on.
        section subscribe: ProxySettings = ProxySettings::default();
        /// Asked before a client publishes, if `publish_proxy_enabled` is on.
        section publish: ProxySettings = ProxySettings::default();
        /// Asked when a subscription expires, if `sub_refresh_proxy_enabled` is on.
        section sub_refresh: ProxySettings = ProxySettings::default();
    }
}

settings! {
    /// Hooks for names of the registry.
    pub struct RegistryProxySettings {
        /// Asked which of two clients keeps a name, in scopes with `conflict_policy = "hook"`.
        section conflict: ProxySettings = ProxySettings::default();
    }
}

settings! {
    /// RPCs of clients that a backend answers.
    pub struct RpcSettings {
        /// The backend named `default`.
        section proxy: ProxySettings = ProxySettings::default();
        /// The options of methods whose name has no namespace.
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
        /// A backend answers these methods.
        key proxy_enabled: bool = false;
        /// The name of the backend: `default` is `rpc.proxy`, others are in `proxies`.
        key proxy_name: String = DEFAULT_PROXY;
    }
}

settings! {
    /// The limits for all hooks of a node together.
    pub struct HooksSettings {
        /// How many calls of this node may be under way at the same time. If more than one backend is configured, each
        /// backend gets at most three quarters of them.
        own calls_max: usize = 256, SOME;
        /// How many calls may wait until another call has ended. Further calls are refused with error 111.
        own queue_max_entries: usize = 16_384;
        /// How many bytes of calls may wait. Further calls are refused with error 111.
        own queue_max_size: usize = 67_108_864, SOME;
        /// How long a call may wait until it begins. After that it is refused with error 111.
        own queue_timeout: Duration = Duration::from_secs(10);
        /// The greatest size of a backend's answer, bytes. If it is larger, the client gets error 100.
        own answer_size_max: usize = 1_048_576, SOME;
        /// How many answers to subscribes are cached because they contain `cache_for`. The oldest are dropped first.
        own cache_max_entries: usize = 10_000;
        /// How many bytes of such answers, with their questions, are cached. The oldest are dropped first.
        own cache_max_size: usize = 67_108_864, SOME;
    }
}

/// A backend with a name.
#[derive(Debug, Clone, Default)]
pub struct NamedProxy {
    /// The name of the backend.
    pub name: String,
    /// How the backend is called.
    pub proxy: ProxySettings,
}

/// The options for one namespace of methods.
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

    /// A text value is parsed as a JSON object.
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

/// An HTTP status, and the refusal that it means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusTransform {
    /// The HTTP status of the backend's answer.
    pub status_code: u16,
    /// The refusal that the client gets.
    pub outcome: TransformOutcome,
}

/// The refusal that an HTTP status means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransformOutcome {
    /// The client gets an error reply.
    Error {
        /// The number of the error.
        code: u32,
        /// The text of the error, at most 123 bytes of ASCII.
        message: String,
        /// Whether the same command may succeed later.
        temporary: bool,
    },
    /// The connection ends.
    Disconnect {
        /// The number of the disconnect.
        code: u16,
        /// The text of the disconnect, at most 123 bytes of ASCII.
        reason: String,
    },
}

/// The refusals for HTTP statuses.
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

/// The greatest length of a refusal's text, bytes: that of a close frame (RFC 6455 section 5.5).
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

    /// A text value is parsed as a JSON list.
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
