//! How NATS is connected to.

use std::time::Duration;

use async_nats::{ConnectOptions, ServerAddr};

use crate::errors::JoinError;
use crate::settings::JoinOptions;

/// A dead link is noticed within two of these.
const PING: Duration = Duration::from_secs(2);

/// The options of the connection. Files of TLS are read by the client, at each attempt to connect.
///
/// # Errors
/// When the credentials or an address can't be used. The text never has them.
pub(crate) fn options(settings: &JoinOptions) -> Result<(Vec<ServerAddr>, ConnectOptions), JoinError> {
    let wrong = |key, expected| move |source: std::io::Error| JoinError::Setting { key, expected, source };
    let servers = settings
        .urls
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
        .reconnect_delay_callback(|attempt| Duration::from_millis((attempt as u64 * 50).min(1_000)))
        .retry_on_initial_connect();
    if settings.retains_order {
        options = options.retain_servers_order();
    }
    if !settings.user.is_empty() {
        options = options.user_and_password(settings.user.clone(), settings.password.clone());
    }
    if !settings.token.is_empty() {
        options = options.token(settings.token.clone());
    }
    if !settings.credentials.is_empty() {
        options = options
            .credentials(&settings.credentials)
            .map_err(wrong("nats_credentials", "the path of a .creds file of NATS"))?;
    }
    if !settings.tls_ca.is_empty() {
        options = options.add_root_certificates(settings.tls_ca.clone().into()).require_tls(true);
    }
    if !settings.tls_cert.is_empty() {
        options = options
            .add_client_certificate(settings.tls_cert.clone().into(), settings.tls_key.clone().into())
            .require_tls(true);
    }
    Ok((servers, options))
}
