//! What the log says of the connection to NATS: a line when it changes, with the address and the cause, and none for
//! each try.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_nats::{Event, ServerAddr};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::settings::JoinOptions;

/// How long a server may take to accept a connection while the cause of a failure is looked for.
const PATIENCE: Duration = Duration::from_secs(3);

/// What was said last.
pub(crate) struct LinkLog {
    /// Hosts and ports of the servers, without passwords.
    servers: Vec<(String, u16)>,
    /// The fault that was told since the connection was there last; empty = none.
    told: Arc<Mutex<String>>,
    is_up: bool,
    /// TLS is demanded of the servers.
    is_secured: bool,
    /// The keys of the configuration from which the credentials come.
    credentials: &'static str,
}

/// The keys of the configuration from which the credentials come, as `options` takes them: what is later wins.
fn credential_keys(settings: &JoinOptions) -> &'static str {
    let cluster = &settings.cluster;
    let has_user = |url: &String| url.parse::<ServerAddr>().is_ok_and(|server| server.has_user_pass());
    match () {
        () if !settings.credentials.is_empty() => "set cluster.nats_credentials right",
        () if !cluster.nats_token.is_empty() => "set cluster.nats_token right",
        () if !cluster.nats_user.is_empty() => "set cluster.nats_user and cluster.nats_password right",
        () if cluster.nats_url.iter().any(has_user) => "set the user and the password in cluster.nats_url right",
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

/// What is wrong, as far as that can be told, with a server that accepts connections: the client says no more than that
/// one has failed.
async fn suspicion(mut socket: TcpStream, is_secured: bool) -> &'static str {
    let mut begin = [0; 512];
    // What it is and wants, a NATS server says first, before TLS.
    let begin = match timeout(PATIENCE, socket.read(&mut begin)).await {
        Ok(Ok(length)) => &begin[..length],
        _ => return "it sends nothing: it may not be a NATS server, or it begins with TLS (handshake_first)",
    };
    let Some(info) = begin.strip_prefix(b"INFO ") else { return "it is not a NATS server" };
    let demands_tls = String::from_utf8_lossy(info).contains("\"tls_required\":true");
    match (demands_tls, is_secured) {
        (true, _) => {
            "it demands TLS, so its certificate may not be trusted (cluster.nats_tls_ca) or ours not be the right one \
             (cluster.nats_tls_cert); its own log tells"
        }
        (false, true) => {
            "it does not speak TLS, which cluster.nats_url (tls://), cluster.nats_tls_ca or cluster.nats_tls_cert \
             demands"
        }
        (false, false) => "its own log may tell why",
    }
}

impl LinkLog {
    /// A log of the connections that these settings ask for.
    pub(crate) fn new(settings: &JoinOptions) -> Self {
        let cluster = &settings.cluster;
        let has_tls_keys = !cluster.nats_tls_ca.is_empty() || !cluster.nats_tls_cert.is_empty();
        let urls = &cluster.nats_url;
        let is_secured = has_tls_keys || urls.iter().any(|url| url.starts_with("tls://"));
        let servers = urls.iter().filter_map(|url| url.parse::<ServerAddr>().ok());
        let servers = servers.map(|server| (server.host().to_owned(), server.port())).collect();
        LinkLog { servers, told: Arc::default(), is_up: false, is_secured, credentials: credential_keys(settings) }
    }

    /// The connection is there.
    pub(crate) fn connected(&mut self, info: &async_nats::ServerInfo) {
        self.is_up = true;
        self.told.lock().unwrap_or_else(PoisonError::into_inner).clear();
        tracing::info!(
            server = info.server_name,
            address = format!("{}:{}", info.host, info.port),
            version = info.version,
            "connected to NATS"
        );
    }

    /// The connection is lost.
    pub(crate) fn lost(&mut self) {
        if std::mem::replace(&mut self.is_up, false) {
            tracing::warn!(
                "the connection to NATS is lost: clients of other nodes can't be reached, and /health is 503 until it \
                 is there again"
            );
        }
    }

    /// Something else happened. While the connection is there that is told; while it is not, only a fault that was not
    /// told yet is.
    pub(crate) fn note(&self, event: &Event) {
        if self.is_up {
            return tracing::warn!(%event, "NATS reports an error");
        }
        let text = event.to_string();
        {
            let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
            if *told == text {
                return;
            }
            told.clone_from(&text);
        }
        let (servers, told, is_secured) = (self.servers.clone(), Arc::clone(&self.told), self.is_secured);
        let refused = is_about_credentials(&text).then_some(self.credentials);
        // The client of NATS does not say why a connection failed, nor to which server.
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
            let is_still = *told.lock().unwrap_or_else(PoisonError::into_inner) == text;
            if is_still {
                tracing::warn!(
                    "NATS can't be reached ({}); trying again, /health is 503 until then",
                    causes.join("; ")
                );
            }
        });
    }
}
