//! What handshakes are answered with: certificates by name, and the proofs that an authority is waiting for.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use rustls::ServerConfig;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// The protocol of handshakes that ask for a proof (RFC 8737, section 6.2).
pub(super) const PROVING: &[u8] = b"acme-tls/1";

/// That a name is ours.
#[derive(Debug)]
pub(super) enum Challenge {
    /// To be shown in a handshake (`tls-alpn-01`).
    Tls(Arc<ServerConfig>),
    /// To be shown for a request (`http-01`).
    Http { token: String, answer: String },
}

/// Certificates and proofs, by host in lower case.
#[derive(Debug)]
pub(super) struct CertResolver {
    /// The host of clients that name none.
    fallback: String,
    all: RwLock<Certificates>,
}

#[derive(Debug, Default)]
struct Certificates {
    certificates: HashMap<String, Arc<CertifiedKey>>,
    proofs: HashMap<String, Challenge>,
}

/// A proof that is held as long as this lives.
pub(super) struct ChallengeGuard<'a> {
    held: &'a CertResolver,
    host: String,
}

impl CertResolver {
    pub(super) fn new(fallback: String) -> Self {
        CertResolver { fallback, all: RwLock::default() }
    }

    /// Serves a certificate from now on.
    pub(super) fn serve(&self, host: &str, certificate: Arc<CertifiedKey>) {
        self.write().certificates.insert(host.to_owned(), certificate);
    }

    /// Shows a proof to whoever asks.
    pub(super) fn prove(&self, host: &str, proof: Challenge) -> ChallengeGuard<'_> {
        self.write().proofs.insert(host.to_owned(), proof);
        ChallengeGuard { held: self, host: host.to_owned() }
    }

    /// What a handshake is answered with that asks for a proof and nothing else.
    pub(super) fn proof(&self, hello: &ClientHello<'_>) -> Option<Arc<ServerConfig>> {
        let mut protocols = hello.alpn()?;
        if protocols.next() != Some(PROVING) || protocols.next().is_some() {
            return None;
        }
        match self.read().proofs.get(&hello.server_name()?.to_ascii_lowercase())? {
            Challenge::Tls(config) => Some(Arc::clone(config)),
            Challenge::Http { .. } => None,
        }
    }

    /// What a request is answered with that asks for a proof.
    pub(super) fn answer(&self, wanted: &str) -> Option<String> {
        self.read().proofs.values().find_map(|proof| match proof {
            Challenge::Http { token, answer } if token == wanted => Some(answer.clone()),
            _ => None,
        })
    }

    fn read(&self) -> RwLockReadGuard<'_, Certificates> {
        self.all.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Certificates> {
        self.all.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ResolvesServerCert for CertResolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let host = hello.server_name().unwrap_or(&self.fallback).to_ascii_lowercase();
        self.read().certificates.get(&host).cloned()
    }
}

impl Drop for ChallengeGuard<'_> {
    fn drop(&mut self) {
        self.held.write().proofs.remove(&self.host);
    }
}
