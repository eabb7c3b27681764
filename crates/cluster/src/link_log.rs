//! What the log says of the connection to NATS: a line when it changes, with the address and the cause, and none for each try.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_nats::{Event, ServerAddr};
use tokio::net::TcpStream;

/// How long a server may take to accept a connection while the cause of a failure is looked for.
const PATIENCE: Duration = Duration::from_secs(3);

/// What was said last.
pub(crate) struct LinkLog {
    /// Hosts and ports of the servers, without passwords.
    servers: Vec<(String, u16)>,
    /// The fault that was told since the connection was there last; empty = none.
    told: Arc<Mutex<String>>,
    is_up: bool,
}

impl LinkLog {
    /// A log of connections to these addresses.
    pub(crate) fn new(urls: &[String]) -> Self {
        let servers = urls.iter().filter_map(|url| url.parse::<ServerAddr>().ok());
        let servers = servers.map(|server| (server.host().to_owned(), server.port())).collect();
        LinkLog { servers, told: Arc::default(), is_up: false }
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
                "the connection to NATS is lost: clients of other nodes can't be reached, and /health is 503 until it is there again"
            );
        }
    }

    /// Something else happened. While the connection is there that is told; while it is not, only a fault that was not told yet is.
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
        let (servers, told) = (self.servers.clone(), Arc::clone(&self.told));
        // The client of NATS does not say why a connection failed, nor to which server.
        tokio::spawn(async move {
            let mut causes = Vec::with_capacity(servers.len());
            for (host, port) in servers {
                let cause = match tokio::time::timeout(PATIENCE, TcpStream::connect((host.as_str(), port))).await {
                    Ok(Ok(_)) => text.clone(),
                    Ok(Err(error)) => error.to_string(),
                    Err(_) => "no answer".to_owned(),
                };
                causes.push(format!("{host}:{port}: {cause}"));
            }
            let is_still = *told.lock().unwrap_or_else(PoisonError::into_inner) == text;
            if is_still {
                tracing::warn!("NATS can't be reached ({}); trying again, /health is 503 until then", causes.join("; "));
            }
        });
    }
}
