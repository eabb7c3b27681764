//! Checks over several keys: values that contradict each other, or that probably do not mean what the operator intends.

use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::time::Duration;

use touchline_engine::reactions::check_options;
use touchline_engine::{ChannelOptions, ClientSettings, SlowConsumer};

use super::names::{is_field_name, is_namespace_name};
use super::{admin, api_keys, consumers, doubts, events, hooks, limits, paths, tokens};
use crate::finding::Finding;
use crate::keys::{NAMESPACES, WITHOUT_NAMESPACE};
use crate::probes::Probes;
use crate::settings::{ClientAuth, ClientUser, GrpcApiSettings, HttpServerSettings, Settings};

/// Minimum time between two checks of the positions of channels.
const CHECK_DELAY_MIN: Duration = Duration::from_secs(1);

/// Checks settings that were read without a fault.
pub(crate) fn check(settings: &Settings, probes: &Probes, findings: &mut Vec<Finding>) {
    addresses(settings, findings);
    admin::check(settings, findings);
    api_keys::check(settings, findings);
    client(&settings.client, probes, findings);
    channels(settings, findings);
    reaction_tick(settings, findings);
    pings(settings, findings);
    paths::check(settings, findings);
    doubts::check(settings, findings);
    hooks::check(settings, findings);
    events::check(settings, findings);
    consumers::check(settings, findings);
    limits::check(settings, findings);
}

fn pings(settings: &Settings, findings: &mut Vec<Finding>) {
    let client = &settings.client;
    for (section, interval) in settings.ping_intervals() {
        // The inherited value is checked once, in `client`.
        if interval != client.ping_interval && interval <= client.pong_timeout {
            findings.push(Finding::error(
                format!("{section}.ping_interval: must be longer than client.pong_timeout"),
                None,
            ));
        }
    }
}

/// Checks the header field in which proxies name users.
fn user_field(settings: &Settings, findings: &mut Vec<Finding>) {
    let name = &settings.client.user_id_http_header;
    if name.is_empty() {
        return;
    }
    if settings.http_server.trusted_proxies.is_empty() {
        let text = "needs http_server.trusted_proxies: only these may name the user";
        findings.push(Finding::error(format!("client.user_id_http_header: {text}"), None));
    }
    if !is_field_name(name) {
        let text = format!("client.user_id_http_header: {name:?} is not the name of a header field");
        findings.push(Finding::error(text, None));
    }
}

fn addresses(settings: &Settings, findings: &mut Vec<Finding>) {
    let server = &settings.http_server;
    if let Err(error) = server.bind_address() {
        let text = format!(
            "http_server.address: {:?} is neither an IP address nor a known host name ({error})",
            server.address
        );
        findings.push(Finding::error(text, None));
    }
    if let Some(bad) = server.bad_proxy() {
        findings.push(Finding::error(format!("http_server.trusted_proxies: {bad}"), None));
    }
    user_field(settings, findings);
    for (section, is_on) in [("http_server", server.proxy_protocol), ("tcp", settings.tcp.proxy_protocol)] {
        if is_on && server.trusted_proxies.is_empty() {
            let text = "needs http_server.trusted_proxies: only these may send a header of the PROXY protocol";
            findings.push(Finding::error(format!("{section}.proxy_protocol: {text}"), None));
        }
    }
    let autocert = &server.tls_autocert;
    if autocert.enabled && autocert.host_whitelist.is_empty() {
        findings.push(Finding::error(
            "http_server.tls_autocert.host_whitelist: missing, so there is no name to order a certificate for",
            None,
        ));
    }
    if let Some(host) = autocert.unusable_host() {
        let text = "is not a host name, or is a wildcard, which cannot be validated over TLS or HTTP";
        findings.push(Finding::error(format!("http_server.tls_autocert.host_whitelist: {host:?} {text}"), None));
    }
    if autocert.enabled && server.tls.has_files() {
        findings.push(Finding::error(
            "http_server: tls names files and tls_autocert is enabled, but a port has only one certificate: keep one",
            None,
        ));
    }
    for (section, tls) in [("http_server", &server.tls), ("tcp", &settings.tcp.tls)] {
        let has_one = autocert.enabled && !tls.has_files();
        if tls.enabled && !has_one && (tls.cert_pem.is_empty() || tls.key_pem.is_empty()) {
            findings.push(Finding::error(format!("{section}.tls: needs cert_pem and key_pem"), None));
        }
        if tls.client_ca_pem.is_empty()
            && (tls.client_auth != Default::default() || tls.client_user != Default::default())
        {
            findings.push(Finding::error(
                format!("{section}.tls: client_auth and client_user have no effect without client_ca_pem"),
                None,
            ));
        }
        if tls.enabled
            && !tls.client_ca_pem.is_empty()
            && tls.client_auth == ClientAuth::Request
            && tls.client_user == ClientUser::None
        {
            let text = "clients without a certificate are accepted too; client_auth = \"require\" refuses them, \
                        as Centrifugo does";
            findings.push(Finding::warning(format!("{section}.tls.client_ca_pem: {text}"), None));
        }
    }
    internal(server, findings);
    grpc(&settings.grpc_api, findings);
    let streams = [&settings.http_stream, &settings.sse, &settings.uni_http_stream, &settings.uni_sse];
    let has_others =
        streams.iter().any(|stream| stream.enabled) || settings.uni_websocket.enabled || settings.tcp.enabled;
    if settings.websocket.disabled && !has_others {
        findings.push(Finding::warning("websocket.disabled: there is no other transport for clients", None));
    }
}

fn internal(server: &HttpServerSettings, findings: &mut Vec<Finding>) {
    let inner = &server.internal_tls;
    if inner.enabled && (inner.cert_pem.is_empty() || inner.key_pem.is_empty()) {
        findings.push(Finding::error("http_server.internal_tls: needs cert_pem and key_pem", None));
    }
    if server.internal().is_none() && inner.enabled {
        findings
            .push(Finding::warning("http_server.internal_tls: has no effect without http_server.internal_port", None));
    }
}

fn grpc(api: &GrpcApiSettings, findings: &mut Vec<Finding>) {
    if api.tls.enabled && (api.tls.cert_pem.is_empty() || api.tls.key_pem.is_empty()) {
        findings.push(Finding::error("grpc_api.tls: needs cert_pem and key_pem", None));
    }
}

fn client(client: &ClientSettings, probes: &Probes, findings: &mut Vec<Finding>) {
    if client.ping_interval.is_zero() {
        findings.push(Finding::error("client.ping_interval: must be above zero", None));
    } else if client.pong_timeout.is_zero() || client.pong_timeout >= client.ping_interval {
        findings.push(Finding::error(
            "client.pong_timeout: must be above zero and shorter than client.ping_interval",
            None,
        ));
    }
    if client.channel_position_check_delay < CHECK_DELAY_MIN {
        findings.push(Finding::error("client.channel_position_check_delay: must be at least 1s", None));
    }
    if client.insecure && !client.anonymous_on_loopback_only {
        findings.push(Finding::warning(
            "client.insecure: any client that reaches the port may read and write every channel",
            None,
        ));
    }
    if client.allowed_origins.is_empty() {
        findings
            .push(Finding::note("client.allowed_origins: empty, so only pages of the server's own host may connect"));
    }
    for origin in client.allowed_origins.iter().filter(|origin| *origin != "*") {
        if !origin.contains("://") || origin.ends_with('/') {
            findings.push(Finding::warning(
                format!("client.allowed_origins: {origin:?} matches nothing; an origin is scheme://host[:port]"),
                None,
            ));
        }
    }
    tokens::names("client.token", &client.token, findings);
    tokens::names("client.subscription_token", &client.subscription_token.token, findings);
    tokens::check("client.token", &client.token, findings);
    if client.subscription_token.enabled {
        tokens::check("client.subscription_token", &client.subscription_token.token, findings);
    }
    let is_told = findings.iter().any(|finding| finding.text.contains("_public_key: expected"));
    if !is_told && let Some(fault) = (probes.token_keys)(client) {
        findings.push(Finding::error(fault, None));
    }
}

fn channels(settings: &Settings, findings: &mut Vec<Finding>) {
    let channel = &settings.channel;
    let common = channel.history_meta_ttl;
    options(WITHOUT_NAMESPACE, &channel.without_namespace, common, findings);
    let mut names = HashSet::new();
    for namespace in &channel.namespaces {
        let name = namespace.name.as_str();
        let path = format!("{NAMESPACES}[{name}]");
        if !is_namespace_name(name) {
            let text = format!("{path}.name: expected two or more of letters, digits, \"-\", \"_\" and \".\"");
            findings.push(Finding::error(text, None));
        }
        if !names.insert(name) {
            findings.push(Finding::error(format!("{path}.name: used twice"), None));
        }
        options(&path, &namespace.options, common, findings);
    }
    if settings.cluster.is_on() && settings.store.primary.url.starts_with("sqlite:") && settings.needs_primary() {
        let text = "store.primary.url: the nodes of a cluster cannot share an SQLite file, \
                    so durable namespaces and reactions, \
                    inboxes, the directory and user_status.use_primary need PostgreSQL there";
        findings.push(Finding::error(text, None));
    }
    let stats = &settings.store.stats;
    if stats.enabled && settings.cluster.is_on() && stats.url.starts_with("sqlite:") {
        findings.push(Finding::error(
            "store.stats.url: the nodes of a cluster cannot share an SQLite file, so statistics need PostgreSQL there",
            None,
        ));
    }
    let personal = &settings.client.subscribe_to_user_personal_channel;
    let namespace = personal.personal_channel_namespace.as_str();
    if personal.enabled && !namespace.is_empty() && !names.contains(namespace) {
        let key = "client.subscribe_to_user_personal_channel.personal_channel_namespace";
        findings.push(Finding::error(format!("{key}: there is no namespace {namespace:?}"), None));
    }
    if channel.namespace_boundary.is_empty() && !names.is_empty() {
        findings.push(Finding::warning("channel.namespace_boundary: empty, so no channel is in a namespace", None));
    }
}

fn options(path: &str, options: &ChannelOptions, history_meta_ttl: std::time::Duration, findings: &mut Vec<Finding>) {
    let mut warn = |text: &str| findings.push(Finding::warning(format!("{path}: {text}"), None));
    if (options.history_size == 0) != options.history_ttl.is_zero() {
        warn("history is off, because it needs both history_size and history_ttl");
    } else if !options.has_history() {
        let wanting = [
            (options.force_recovery, "force_recovery"),
            (options.allow_recovery, "allow_recovery"),
            (options.force_positioning, "force_positioning"),
            (options.allow_positioning, "allow_positioning"),
        ];
        for (_, name) in wanting.iter().filter(|(is_on, _)| *is_on) {
            warn(&format!("{name} has no effect without history_size and history_ttl"));
        }
    }
    if options.durable && !options.has_history() {
        findings.push(Finding::error(format!("{path}.durable: needs history_size and history_ttl"), None));
    }
    reactions(path, options, findings);
    slow_consumer(path, options, findings);
    let mut warn = |text: &str| findings.push(Finding::warning(format!("{path}: {text}"), None));
    if options.force_push_join_leave && !options.join_leave {
        warn("force_push_join_leave has no effect without join_leave");
    }
    let anonymous = [
        (options.allow_subscribe_for_anonymous, options.allow_subscribe_for_client, "subscribe"),
        (
            options.allow_publish_for_anonymous,
            options.allow_publish_for_client || options.allow_publish_for_subscriber,
            "publish",
        ),
        (
            options.allow_history_for_anonymous,
            options.allow_history_for_client || options.allow_history_for_subscriber,
            "history",
        ),
        (
            options.allow_presence_for_anonymous,
            options.allow_presence_for_client || options.allow_presence_for_subscriber,
            "presence",
        ),
    ];
    for (_, _, verb) in anonymous.iter().filter(|(anonymous, client, _)| *anonymous && !*client) {
        warn(&format!("allow_{verb}_for_anonymous has no effect without allow_{verb}_for_client"));
    }
    let meta_ttl = if options.history_meta_ttl.is_zero() { history_meta_ttl } else { options.history_meta_ttl };
    if options.has_history() && options.history_ttl > meta_ttl {
        findings.push(Finding::error(format!("{path}.history_ttl: must not be longer than history_meta_ttl"), None));
    }
}

/// Valid times between two publications of reaction totals.
const REACTION_TICK: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(60);

fn reaction_tick(settings: &Settings, findings: &mut Vec<Finding>) {
    if !REACTION_TICK.contains(&settings.reactions.tick) {
        findings.push(Finding::error("reactions.tick: must be 100ms to 60s", None));
    }
    if settings.reactions.ttl < REACTION_TTL_MIN {
        findings.push(Finding::error("reactions.ttl: must be at least 1m", None));
    }
}

/// Minimum time for which totals are kept, because nodes remove them at slightly different times.
const REACTION_TTL_MIN: Duration = Duration::from_secs(60);

/// The longest `max_age` that an operator is likely to intend.
const MAX_AGE_USUAL: Duration = Duration::from_secs(60);

/// Refuses `drop_oldest` together with options that do not allow gaps: recovery, positions, deltas and reactions. The
/// last totals of reactions must reach every subscriber.
fn slow_consumer(path: &str, options: &ChannelOptions, findings: &mut Vec<Finding>) {
    if options.slow_consumer == SlowConsumer::Disconnect {
        if !options.max_age.is_zero() {
            let text = format!("{path}.max_age: has no effect without slow_consumer = \"drop_oldest\"");
            findings.push(Finding::warning(text, None));
        }
        return;
    }
    let excluded = [
        (options.force_recovery, "force_recovery"),
        (options.allow_recovery, "allow_recovery"),
        (options.force_positioning, "force_positioning"),
        (options.allow_positioning, "allow_positioning"),
        (!options.allowed_delta_types.is_empty(), "allowed_delta_types"),
        (!options.reactions.is_empty(), "reactions"),
    ];
    for (_, name) in excluded.iter().filter(|(is_on, _)| *is_on) {
        let text = format!(
            "{path}.slow_consumer: drop_oldest leaves gaps, which {name} does not allow; disable one of them, or \
             use two namespaces"
        );
        findings.push(Finding::error(text, None));
    }
    if options.max_age > MAX_AGE_USUAL {
        let text = format!("{path}.max_age: longer than a minute; a number without a unit counts seconds");
        findings.push(Finding::warning(text, None));
    }
}

fn reactions(path: &str, options: &ChannelOptions, findings: &mut Vec<Finding>) {
    if let Some(fault) = check_options(options.reactions.iter().map(String::as_str)) {
        findings.push(Finding::error(format!("{path}.reactions: {fault}"), None));
    }
    let drops = options.slow_consumer == SlowConsumer::DropOldest;
    if !options.reactions.is_empty() && !drops && !options.can_have_reactions() {
        let text = "{path}.reactions: reactions are published as JSON, but publication_data_format is binary";
        findings.push(Finding::error(text.replace("{path}", path), None));
    }
}
