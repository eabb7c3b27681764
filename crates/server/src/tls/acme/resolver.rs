//! The certificate resolver: certificates by host name, and the answers to the authority's open challenges.

use std::collections::HashMap;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use touchline_lock::SharedLock;

/// The ALPN protocol of challenge handshakes (RFC 8737, section 6.2).
pub(super) const CHALLENGE_PROTOCOL: &[u8] = b"acme-tls/1";

/// The answer to a challenge: it proves that this node controls a host name.
#[derive(Debug)]
pub(super) enum Challenge {
    /// Served in a TLS handshake (`tls-alpn-01`).
    Tls(Arc<ServerConfig>),
    /// Served to an HTTP request (`http-01`).
    Http { token: String, answer: String },
}

/// Certificates and challenges, by host in lower case.
#[derive(Debug)]
pub(super) struct CertResolver {
    /// The host whose certificate is served to clients without SNI.
    fallback: String,
    all: SharedLock<Certificates>,
}

#[derive(Debug, Default)]
struct Certificates {
    certificates: HashMap<String, Arc<CertifiedKey>>,
    challenges: HashMap<String, Challenge>,
}

/// Serves a challenge of a host until the guard is dropped.
pub(super) struct ChallengeGuard<'a> {
    resolver: &'a CertResolver,
    host: String,
}

impl CertResolver {
    pub(super) fn new(fallback: String) -> Self {
        CertResolver { fallback, all: SharedLock::default() }
    }

    /// Serves this certificate to clients of `host` from now on.
    pub(super) fn serve(&self, host: &str, certificate: Arc<CertifiedKey>) {
        self.all.write().certificates.insert(host.to_owned(), certificate);
    }

    /// Serves the challenge of `host` until the returned guard is dropped.
    pub(super) fn serve_challenge(&self, host: &str, challenge: Challenge) -> ChallengeGuard<'_> {
        self.all.write().challenges.insert(host.to_owned(), challenge);
        ChallengeGuard { resolver: self, host: host.to_owned() }
    }

    /// The TLS configuration for the handshake of a `tls-alpn-01` challenge. None = it is not such a handshake, or no
    /// challenge of its host is open.
    pub(super) fn challenge_config(&self, hello: &ClientHello<'_>) -> Option<Arc<ServerConfig>> {
        let mut protocols = hello.alpn()?;
        if protocols.next() != Some(CHALLENGE_PROTOCOL) || protocols.next().is_some() {
            return None;
        }
        match self.all.read().challenges.get(&hello.server_name()?.to_ascii_lowercase())? {
            Challenge::Tls(config) => Some(Arc::clone(config)),
            Challenge::Http { .. } => None,
        }
    }

    /// The body for an `http-01` request with this token; None = no such challenge is open.
    pub(super) fn http_answer(&self, wanted: &str) -> Option<String> {
        self.all.read().challenges.values().find_map(|challenge| match challenge {
            Challenge::Http { token, answer } if token == wanted => Some(answer.clone()),
            _ => None,
        })
    }
}

impl ResolvesServerCert for CertResolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let host = hello.server_name().unwrap_or(&self.fallback).to_ascii_lowercase();
        self.all.read().certificates.get(&host).cloned()
    }
}

impl Drop for ChallengeGuard<'_> {
    fn drop(&mut self) {
        self.resolver.all.write().challenges.remove(&self.host);
    }
}
