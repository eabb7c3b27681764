//! How a consumer connects to NATS.

use std::time::Duration;

use async_nats::{ConnectOptions, ServerAddr};

use crate::url_credentials::with_credentials;

use super::types::{ConsumerError, StreamConsumerOptions};

/// The ping interval. A dead connection is noticed within two intervals.
const PING: Duration = Duration::from_secs(2);

/// Parses a list of server addresses.
///
/// # Errors
/// Fails if an address cannot be parsed.
pub(super) fn servers(list: &str) -> Result<Vec<ServerAddr>, ConsumerError> {
    let urls = list.split(',').map(str::trim).filter(|url| !url.is_empty());
    urls.map(str::parse).collect::<Result<_, _>>().map_err(ConsumerError::Address)
}

/// The options of the connection.
///
/// # Errors
/// Fails if the credentials cannot be parsed.
pub(super) fn options(
    settings: &StreamConsumerOptions,
    servers: &[ServerAddr],
) -> Result<ConnectOptions, ConsumerError> {
    let mut options = ConnectOptions::new()
        .name(format!("touchline consumer {}", settings.name))
        .ping_interval(PING)
        .connection_timeout(Duration::from_secs(3))
        .max_reconnects(None)
        .reconnect_delay_callback(|attempt| Duration::from_millis((attempt as u64 * 50).min(1_000)));
    let (user, password) = &settings.user;
    if !settings.credentials.is_empty() {
        options = options.credentials(&settings.credentials).map_err(ConsumerError::Credentials)?;
    } else if !user.is_empty() {
        options = options.user_and_password(user.clone(), password.clone());
    } else if !settings.token.is_empty() {
        options = options.token(settings.token.clone());
    } else {
        options = with_credentials(options, servers).map_err(ConsumerError::Address)?;
    }
    if let Some(tls) = &settings.tls {
        options = options.tls_client_config(tls.clone()).require_tls(true);
    }
    Ok(options)
}
