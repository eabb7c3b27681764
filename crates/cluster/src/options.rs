//! The options for connecting to NATS.

use std::time::Duration;

use async_nats::{ConnectOptions, ServerAddr};

use crate::errors::JoinError;
use crate::settings::JoinOptions;

/// The ping interval. A dead connection is noticed within two intervals.
const PING: Duration = Duration::from_secs(2);

/// The options of the connection. The client reads TLS files at each attempt to connect.
///
/// # Errors
/// Fails if the credentials or an address cannot be used. The text never contains them.
pub(crate) fn options(settings: &JoinOptions) -> Result<(Vec<ServerAddr>, ConnectOptions), JoinError> {
    let (servers, options) = trial(settings)?;
    Ok((servers, options.retry_on_initial_connect()))
}

/// Like [`options`], for a connection that is tried only once.
///
/// # Errors
/// As in [`options`].
pub(crate) fn trial(settings: &JoinOptions) -> Result<(Vec<ServerAddr>, ConnectOptions), JoinError> {
    let wrong = |key, expected| move |cause: std::io::Error| JoinError::Setting { key, expected, cause };
    let cluster = &settings.cluster;
    let servers = cluster
        .nats_url
        .iter()
        .map(|url| url.parse::<ServerAddr>())
        .collect::<Result<Vec<_>, _>>()
        .map_err(wrong("nats_url", "nats://HOST:PORT or tls://HOST:PORT"))?;
    if servers.is_empty() {
        return Err(JoinError::NoServer);
    }
    let mut options = ConnectOptions::new()
        .name(&settings.node)
        .ping_interval(PING)
        .connection_timeout(Duration::from_secs(3))
        .max_reconnects(None)
        .reconnect_delay_callback(|attempt| Duration::from_millis((attempt as u64 * 50).min(1_000)));
    if cluster.nats_no_randomize {
        options = options.retain_servers_order();
    }
    if !cluster.nats_user.is_empty() {
        options = options.user_and_password(cluster.nats_user.clone(), cluster.nats_password.clone());
    }
    if !cluster.nats_token.is_empty() {
        options = options.token(cluster.nats_token.clone());
    }
    if !settings.credentials.is_empty() {
        options = options
            .credentials(&settings.credentials)
            .map_err(wrong("nats_credentials", "the path of a .creds file of NATS"))?;
    }
    if !cluster.nats_tls_ca.is_empty() {
        options = options.add_root_certificates(cluster.nats_tls_ca.clone().into()).require_tls(true);
    }
    if !cluster.nats_tls_cert.is_empty() {
        options = options
            .add_client_certificate(cluster.nats_tls_cert.clone().into(), cluster.nats_tls_key.clone().into())
            .require_tls(true);
    }
    Ok((servers, options))
}
