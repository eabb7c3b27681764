//! Checks hooks: each backend that is named exists, and each backend in use can be called.

use std::collections::HashSet;

use touchline_engine::ChannelOptions;
use touchline_engine::directory::ConflictPolicy;
use touchline_engine::hook::{DEFAULT_PROXY, ProxyGrpcSettings, ProxySettings, RpcOptions};

use super::hook_headers::header_faults;
use super::names::{is_field_name, is_namespace_name};
use crate::finding::Finding;
use crate::keys::{NAMESPACES, PROXIES, RPC_NAMESPACES, WITHOUT_NAMESPACE};
use crate::settings::Settings;

/// The section of the backend that decides conflicts about names.
const CONFLICT: &str = "registry.proxy.conflict";

/// A place in the configuration that names a backend.
struct ProxyUse<'a> {
    path: String,
    name: &'a str,
    is_on: bool,
    /// The key that enables the hook.
    switch: String,
    /// The section and the settings of the backend with the name `default`.
    default: (&'static str, &'a ProxySettings),
}

/// Checks the backends of hooks and the places that name them.
pub(super) fn check(settings: &Settings, findings: &mut Vec<Finding>) {
    names(settings, findings);
    let mut error = |text: String| findings.push(Finding::error(text, None));
    let backend = |section: &str, proxy: &ProxySettings, switch: &str, error: &mut dyn FnMut(String)| {
        backend(section, proxy, switch, error);
        header_faults(section, proxy, &settings.client.allowed_origins).into_iter().for_each(error);
    };
    let client = &settings.client.proxy;
    for (section, switched) in [("client.proxy.connect", &client.connect), ("client.proxy.refresh", &client.refresh)] {
        if switched.enabled {
            backend(section, &switched.proxy, &format!("{section}.enabled"), &mut error);
        }
    }
    if settings.registry.scopes.iter().any(|scope| scope.conflict_policy == ConflictPolicy::Hook) {
        let switch = "conflict_policy of a scope";
        backend(CONFLICT, &settings.registry.proxy.conflict, switch, &mut error);
    }
    let mut checked = HashSet::new();
    for ProxyUse { path, name, is_on, default, switch } in uses(settings) {
        let (section, proxy) = if name == DEFAULT_PROXY {
            (default.0.to_owned(), Some(default.1))
        } else {
            let named = settings.proxies.iter().find(|proxy| proxy.name == name);
            (format!("{PROXIES}[{name}]"), named.map(|named| &named.proxy))
        };
        match proxy {
            None => error(format!("{path}: no backend in {PROXIES} has the name {name:?}")),
            Some(proxy) if is_on && checked.insert(section.clone()) => backend(&section, proxy, &switch, &mut error),
            Some(_) => {}
        }
    }
}

/// Checks the names of backends and of method namespaces.
fn names(settings: &Settings, findings: &mut Vec<Finding>) {
    let proxies = settings.proxies.iter().map(|proxy| (PROXIES, proxy.name.as_str()));
    let methods = settings.rpc.namespaces.iter().map(|namespace| (RPC_NAMESPACES, namespace.name.as_str()));
    let mut seen = HashSet::new();
    for (list, name) in proxies.chain(methods) {
        let mut error = |text: &str| findings.push(Finding::error(format!("{list}[{name}].name: {text}"), None));
        if !is_namespace_name(name) {
            error("expected two or more of letters, digits, \"-\", \"_\" and \".\"");
        }
        if list == PROXIES && name == DEFAULT_PROXY {
            error("default is the name of the backends in channel.proxy and rpc.proxy");
        }
        if !seen.insert((list, name)) {
            error("used twice");
        }
    }
}

/// Every place in the configuration that names a backend.
fn uses(settings: &Settings) -> Vec<ProxyUse<'_>> {
    let mut uses = Vec::new();
    let channel = &settings.channel;
    let namespaces = channel.namespaces.iter().map(|namespace| {
        let path = format!("{NAMESPACES}[{}]", namespace.name);
        (path, &namespace.options)
    });
    for (path, options) in namespaces.chain([(WITHOUT_NAMESPACE.to_owned(), &channel.without_namespace)]) {
        let ChannelOptions { subscribe_proxy_name, publish_proxy_name, sub_refresh_proxy_name, .. } = options;
        for (key, name, is_on, default) in [
            (
                "subscribe_proxy_name",
                subscribe_proxy_name,
                options.subscribe_proxy_enabled,
                ("channel.proxy.subscribe", &channel.proxy.subscribe),
            ),
            (
                "publish_proxy_name",
                publish_proxy_name,
                options.publish_proxy_enabled,
                ("channel.proxy.publish", &channel.proxy.publish),
            ),
            (
                "sub_refresh_proxy_name",
                sub_refresh_proxy_name,
                options.sub_refresh_proxy_enabled,
                ("channel.proxy.sub_refresh", &channel.proxy.sub_refresh),
            ),
        ] {
            let switch = format!("{path}.{}", key.replace("_name", "_enabled"));
            uses.push(ProxyUse { path: format!("{path}.{key}"), name, is_on, switch, default });
        }
    }
    let rpc = &settings.rpc;
    let methods = rpc.namespaces.iter().map(|namespace| {
        let path = format!("{RPC_NAMESPACES}[{}]", namespace.name);
        (path, &namespace.options)
    });
    for (path, options) in methods.chain([("rpc.without_namespace".to_owned(), &rpc.without_namespace)]) {
        let RpcOptions { proxy_enabled, proxy_name } = options;
        let default = ("rpc.proxy", &rpc.proxy);
        let (name, is_on, switch) = (proxy_name, *proxy_enabled, format!("{path}.proxy_enabled"));
        uses.push(ProxyUse { path: format!("{path}.proxy_name"), name, is_on, switch, default });
    }
    uses
}

/// Checks a backend that is called over gRPC.
fn grpc(section: &str, target: &str, proxy: &ProxySettings, error: &mut dyn FnMut(String)) {
    if section == CONFLICT {
        error(format!("{section}.endpoint: this hook supports http:// and https:// only"));
    }
    let port = target.rsplit_once(':').and_then(|(host, port)| port.parse::<u16>().ok().filter(|_| !host.is_empty()));
    if port.is_none() {
        error(format!("{section}.endpoint: expected grpc:// with a host and a port"));
    }
    let ProxyGrpcSettings { credentials_key, static_metadata, .. } = &proxy.grpc;
    let named = Some(credentials_key).filter(|key| !key.is_empty());
    for (key, name) in named
        .map(|name| ("credentials_key", name))
        .into_iter()
        .chain(static_metadata.0.keys().map(|name| ("static_metadata", name)))
    {
        if !is_field_name(name) || name.to_ascii_lowercase().starts_with("grpc-") || name.ends_with("-bin") {
            error(format!("{section}.grpc.{key}: {name:?} is not a valid name of a text in gRPC metadata"));
        }
    }
}

/// Checks a backend of an enabled hook. `switch` is the key that enabled the hook.
fn backend(section: &str, proxy: &ProxySettings, switch: &str, error: &mut dyn FnMut(String)) {
    let endpoint = proxy.endpoint.as_str();
    if endpoint.is_empty() {
        error(format!("{section}.endpoint: missing, and the hook is on ({switch})"));
    } else if let Some(target) = proxy.grpc_target() {
        grpc(section, target, proxy, error);
    } else if !endpoint.starts_with("http://") && !endpoint.starts_with("https://") {
        error(format!("{section}.endpoint: expected http://…, https://… or grpc://…"));
    }
    let authority =
        endpoint.split_once("://").map_or("", |(_, rest)| rest.split(['/', '?']).next().unwrap_or_default());
    if authority.contains('@') {
        error(format!(
            "{section}.endpoint: the name and password in the address would not be sent. Set the field Authorization \
             in {section}.http.static_headers"
        ));
    }
    if proxy.http.status_to_code_transforms.0.iter().any(|transform| transform.status_code == 200) {
        error(format!("{section}.http.status_to_code_transforms: 200 is the status of an answer, not of a refusal"));
    }
    if proxy.timeout.is_zero() {
        error(format!("{section}.timeout: must be above zero, and the hook is on"));
    }
    for (key, names) in [("http_headers", &proxy.http_headers), ("emulated_headers", &proxy.emulated_headers)] {
        for name in names.iter().filter(|name| !is_field_name(name)) {
            error(format!("{section}.{key}: {name:?} is not the name of a header field"));
        }
    }
    for name in proxy.http.static_headers.0.keys().filter(|name| !is_field_name(name)) {
        error(format!("{section}.http.static_headers: {name:?} is not the name of a header field"));
    }
}
