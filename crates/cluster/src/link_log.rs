//! Logs the state of the connection to NATS. It logs one line for each change, with the address and the cause, and not
//! one line for each attempt.

use std::sync::Arc;
use std::time::Duration;

use async_nats::{Event, ServerAddr};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;
use touchline_lock::Lock;

use crate::settings::JoinOptions;

/// How long a server may take to accept a connection while the cause of a failure is searched.
const PATIENCE: Duration = Duration::from_secs(3);

/// What was logged last.
pub(crate) struct LinkLog {
    /// The hosts and ports of the servers, without passwords.
    servers: Vec<(String, u16)>,
    /// The fault that was logged since the connection was last up. Empty = none.
    told: Arc<Lock<String>>,
    is_up: bool,
    /// True if TLS is required of the servers.
    is_secured: bool,
    /// The configuration keys that contain the credentials.
    credentials: &'static str,
}

/// The configuration keys that contain the credentials, in the precedence of `options`: a later one wins.
fn credential_keys(settings: &JoinOptions) -> &'static str {
    let cluster = &settings.cluster;
    let has_user = |url: &String| url.parse::<ServerAddr>().is_ok_and(|server| server.has_user_pass());
    match () {
        () if !settings.credentials.is_empty() => "correct cluster.nats_credentials",
        () if !cluster.nats_token.is_empty() => "correct cluster.nats_token",
        () if !cluster.nats_user.is_empty() => "correct cluster.nats_user and cluster.nats_password",
        () if cluster.nats_url.iter().any(has_user) => "correct the user and the password in cluster.nats_url",
        () => {
            "it wants credentials and none are set: cluster.nats_user and cluster.nats_password, cluster.nats_token, \
             or cluster.nats_credentials"
        }
    }
}

/// Whether a fault that the client reports is a refusal of its credentials.
fn is_about_credentials(fault: &str) -> bool {
    let fault = fault.to_ascii_lowercase();
    fault.contains("authorization") || fault.contains("authentication")
}

/// Guesses what is wrong with a server that accepts connections. The client only reports that a connection failed.
async fn suspicion(mut socket: TcpStream, is_secured: bool) -> &'static str {
    let mut begin = [0; 512];
    // A NATS server first sends a description of itself, before TLS.
    let begin = match timeout(PATIENCE, socket.read(&mut begin)).await {
        Ok(Ok(length)) => &begin[..length],
        _ => return "it sends nothing: it may not be a NATS server, or it begins with TLS (handshake_first)",
    };
    let Some(info) = begin.strip_prefix(b"INFO ") else { return "it is not a NATS server" };
    let demands_tls = String::from_utf8_lossy(info).contains("\"tls_required\":true");
    match (demands_tls, is_secured) {
        (true, _) => {
            "it demands TLS, so its certificate may not be trusted (cluster.nats_tls_ca), or this node's may be wrong \
             (cluster.nats_tls_cert); check the log of the server"
        }
        (false, true) => {
            "it does not speak TLS, which cluster.nats_url (tls://), cluster.nats_tls_ca or cluster.nats_tls_cert \
             demands"
        }
        (false, false) => "check the log of the server",
    }
}

impl LinkLog {
    /// Creates the log for the connections of these settings.
    pub(crate) fn new(settings: &JoinOptions) -> Self {
        let cluster = &settings.cluster;
        let has_tls_keys = !cluster.nats_tls_ca.is_empty() || !cluster.nats_tls_cert.is_empty();
        let urls = &cluster.nats_url;
        let is_secured = has_tls_keys || urls.iter().any(|url| url.starts_with("tls://"));
        let servers = urls.iter().filter_map(|url| url.parse::<ServerAddr>().ok());
        let servers = servers.map(|server| (server.host().to_owned(), server.port())).collect();
        LinkLog { servers, told: Arc::default(), is_up: false, is_secured, credentials: credential_keys(settings) }
    }

    /// Logs that the connection is up.
    pub(crate) fn connected(&mut self, info: &async_nats::ServerInfo) {
        self.is_up = true;
        self.told.lock().clear();
        tracing::info!(
            server = info.server_name,
            address = format!("{}:{}", info.host, info.port),
            version = info.version,
            "connected to NATS"
        );
    }

    /// Logs that the connection is lost.
    pub(crate) fn lost(&mut self) {
        if std::mem::replace(&mut self.is_up, false) {
            tracing::warn!(
                "the connection to NATS is lost: clients of other nodes can't be reached, and /health is 503 until it \
                 is back"
            );
        }
    }

    /// Logs another event. While the connection is up, every event is logged. While it is down, only a fault that was
    /// not logged yet.
    pub(crate) fn note(&self, event: &Event) {
        if self.is_up {
            return tracing::warn!(%event, "NATS reports an error");
        }
        let text = event.to_string();
        {
            let mut told = self.told.lock();
            if *told == text {
                return;
            }
            told.clone_from(&text);
        }
        let (servers, told, is_secured) = (self.servers.clone(), Arc::clone(&self.told), self.is_secured);
        let refused = is_about_credentials(&text).then_some(self.credentials);
        // The NATS client does not report why a connection failed, nor to which server.
        tokio::spawn(async move {
            let mut causes = Vec::with_capacity(servers.len());
            for (host, port) in servers {
                let cause = match timeout(PATIENCE, TcpStream::connect((host.as_str(), port))).await {
                    Ok(Ok(socket)) => match refused {
                        Some(remedy) => format!("{text}: {remedy}"),
                        None => format!("{text}: {}", suspicion(socket, is_secured).await),
                    },
                    Ok(Err(error)) => error.to_string(),
                    Err(_) => "no answer".to_owned(),
                };
                causes.push(format!("{host}:{port}: {cause}"));
            }
            let is_still = *told.lock() == text;
            if is_still {
                tracing::warn!(
                    "NATS can't be reached ({}); trying again, /health is 503 until then",
                    causes.join("; ")
                );
            }
        });
    }
}
