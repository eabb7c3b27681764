//! The options for connecting to NATS.

use std::time::Duration;

use async_nats::{ConnectOptions, ServerAddr};

use crate::errors::JoinError;
use crate::settings::JoinOptions;
use crate::url_credentials::with_credentials;

/// The number of ping intervals after which the client gives up a connection without replies: it tolerates two
/// unanswered pings, and notices this when it sends the third.
const PINGS: u32 = 3;
/// The number of messages in the client's own queue. Others wait for the writer, which can take them back. It is small,
/// because a hello waits for the messages in it.
const CLIENT_QUEUE: usize = 16;

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
        // A NATS server that does not answer is lost at the same time as a node.
        .ping_interval((cluster.node_timeout / PINGS).max(Duration::from_millis(1)))
        .client_capacity(CLIENT_QUEUE)
        .connection_timeout(Duration::from_secs(3))
        .max_reconnects(None)
        .reconnect_delay_callback(|attempt| Duration::from_millis((attempt as u64 * 50).min(1_000)));
    if cluster.nats_no_randomize {
        options = options.retain_servers_order();
    }
    if cluster.nats_user.is_empty() {
        options = with_credentials(options, &servers).map_err(wrong("nats_url", "one user for all addresses"))?;
    } else {
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
