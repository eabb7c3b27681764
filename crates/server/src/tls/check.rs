//! Checks the TLS settings before a node listens.

use rustls::RootCertStore;
use touchline_config::{ClusterSettings, Settings, TlsSettings, is_inline_pem};

use super::acme;
use super::config::{load, verifier};
use super::error::TlsError;
use super::files::{Validity, authorities, certificates, private_key, validity};

/// Checks the certificates of every port that uses TLS, and the settings of ACME. Returns all faults; empty = there are
/// none.
pub(crate) fn check(settings: &Settings) -> Vec<TlsError> {
    let http = &settings.http_server;
    let internal = http.internal_tls.of_port();
    let grpc = settings.grpc_api.tls.of_port();
    let mut faults = Vec::new();
    let has_acme = http.tls_autocert.enabled;
    if has_acme {
        faults.extend(acme::check(&http.tls_autocert).err());
    }
    let sections = [
        ("http_server.tls", &http.tls, http.tls.enabled || has_acme, has_acme),
        ("tcp.tls", &settings.tcp.tls, settings.tcp.tls.enabled, has_acme),
        ("http_server.internal_tls", &internal, internal.enabled, false),
        ("grpc_api.tls", &grpc, settings.grpc_api.enabled && grpc.enabled, false),
    ];
    for (section, tls, _, has_acme) in sections.into_iter().filter(|(_, _, is_on, _)| *is_on) {
        let needs_files = tls.has_files() || !has_acme;
        let loaded =
            if needs_files { load(section, tls, None, &[]).map(drop) } else { verifier(section, tls).map(drop) };
        faults.extend(loaded.err().map(|error| error.of(section)));
    }
    faults
}

/// The sections whose certificates are in files and switched on, each with the time in which its certificates are
/// valid.
pub(crate) fn validities(settings: &Settings) -> Vec<(&'static str, Result<Validity, TlsError>)> {
    let http = &settings.http_server;
    let internal = http.internal_tls.of_port();
    let grpc = settings.grpc_api.tls.of_port();
    let sections = [
        ("http_server.tls", &http.tls, http.tls.enabled),
        ("tcp.tls", &settings.tcp.tls, settings.tcp.tls.enabled),
        ("http_server.internal_tls", &internal, internal.enabled),
        ("grpc_api.tls", &grpc, settings.grpc_api.enabled && grpc.enabled),
    ];
    let is_checked = |(_, tls, is_on): &(_, &TlsSettings, bool)| *is_on && tls.has_files();
    let checked = sections.into_iter().filter(is_checked);
    checked.map(|(section, tls, _)| (section, validity(section, &tls.cert_pem))).collect()
}

/// Checks the TLS files of the connection to NATS. The settings must be paths, because the files are read at every
/// connect.
///
/// # Errors
/// [`TlsError`] says which file can't be used.
pub(crate) fn check_nats(cluster: &ClusterSettings) -> Result<(), TlsError> {
    let (certificate, key) = (&cluster.nats_tls_cert, &cluster.nats_tls_key);
    for (name, value) in [("nats_tls_ca", &cluster.nats_tls_ca), ("nats_tls_cert", certificate), ("nats_tls_key", key)]
    {
        if is_inline_pem(value) {
            return Err(TlsError::NoPath { key: format!("cluster.{name}") });
        }
    }
    authorities("cluster.nats_tls_ca", &cluster.nats_tls_ca)?;
    if certificate.is_empty() && key.is_empty() {
        return Ok(());
    }
    let chain = certificates("cluster.nats_tls_cert", certificate)?;
    let key = private_key("cluster.nats_tls_key", key)?;
    let fits = rustls::ClientConfig::builder()
        .with_root_certificates(RootCertStore::empty())
        .with_client_auth_cert(chain, key);
    fits.map(drop).map_err(|error| TlsError::from(error).of("cluster.nats_tls_cert"))
}
