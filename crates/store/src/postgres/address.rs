//! The address of PostgreSQL, with its login and TLS settings.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres_rustls::MakeRustlsConnect;

use super::failure::PostgresError;

/// The parameter of an address that requires verification of the certificate and its name.
const VERIFIES: &str = "sslmode=verify-full";

/// The address of PostgreSQL, with its login and TLS settings.
#[derive(Clone)]
pub(crate) struct PostgresAddress {
    pub(super) config: Config,
    pub(super) tls: Option<NamedTls>,
    /// How long a request may take before the connection is closed.
    pub(crate) timeout: Duration,
}

impl std::fmt::Debug for PostgresAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The configuration may contain a password, which the `Debug` output of `Config` does not show.
        f.debug_tuple("Address").field(&self.config).finish()
    }
}

impl PostgresAddress {
    /// Parses `postgres://user:password@host/database?…`. Over the network TLS is required unless the address contains
    /// `sslmode=disable`. `tls_ca` holds certificates of additional authorities (PEM). Empty = only the system's
    /// authorities.
    pub(crate) fn new(url: &str, tls_ca: &str, timeout: Duration) -> Result<Self, PostgresError> {
        let address = PostgresAddress::read(url, timeout)?;
        let tls = match address.config.get_ssl_mode() {
            SslMode::Require => Some(NamedTls { tls: tls(tls_ca)?, server_name: String::new() }),
            _ => None,
        };
        Ok(PostgresAddress { tls, ..address })
    }

    /// Like [`PostgresAddress::new`], with a separate TLS configuration and the name that the certificate must have
    /// (empty = the host). `None` = TLS as in `new`.
    pub(crate) fn with_tls(
        url: &str,
        tls: Option<(ClientConfig, String)>,
        timeout: Duration,
    ) -> Result<Self, PostgresError> {
        let Some((tls, server_name)) = tls else { return PostgresAddress::new(url, "", timeout) };
        let mut address = PostgresAddress::read(url, timeout)?;
        address.config.ssl_mode(SslMode::Require);
        Ok(PostgresAddress { tls: Some(NamedTls { tls: MakeRustlsConnect::new(tls), server_name }), ..address })
    }

    /// Parses an address, and determines whether it needs TLS.
    fn read(url: &str, timeout: Duration) -> Result<Self, PostgresError> {
        let mut config: Config = with_known_mode(url).parse().map_err(PostgresError::Address)?;
        config
            .application_name("touchline")
            .connect_timeout(timeout)
            .keepalives_idle(Duration::from_secs(5))
            .tcp_user_timeout(timeout);
        let is_local = config.get_hosts().iter().all(|host| match host {
            Host::Tcp(name) => name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback()),
            Host::Unix(_) => true,
        });
        let wants_tls = match config.get_ssl_mode() {
            SslMode::Disable => false,
            SslMode::Require => true,
            _ => !is_local,
        };
        config.ssl_mode(if wants_tls { SslMode::Require } else { SslMode::Disable });
        if config.get_hosts().is_empty() {
            return Err(PostgresError::NoHost);
        }
        Ok(PostgresAddress { config, tls: None, timeout })
    }

    /// The hosts, ports and database for error texts, without user and password.
    pub(super) fn name(&self) -> String {
        let port = |index: usize| {
            self.config.get_ports().get(index).or(self.config.get_ports().first()).copied().unwrap_or(5_432)
        };
        let host = |(index, host): (usize, &Host)| match host {
            // If a password contains an @ that is not written as %40, its rest is parsed as a part of the host.
            Host::Tcp(name) => format!("{}:{}", name.rsplit('@').next().unwrap_or_default(), port(index)),
            Host::Unix(path) => path.display().to_string(),
        };
        let hosts: Vec<String> = self.config.get_hosts().iter().enumerate().map(host).collect();
        format!("{}/{}", hosts.join(","), self.config.get_dbname().unwrap_or_default())
    }
}

/// Replaces `sslmode=verify-full` by `sslmode=require`, because the client library does not know `verify-full`. With
/// required TLS, the certificate and its name are always verified.
fn with_known_mode(url: &str) -> Cow<'_, str> {
    let start = if url.contains("://") { url.rfind('?').unwrap_or(url.len()) } else { 0 };
    let (server, options) = url.split_at(start);
    if !options.contains(VERIFIES) {
        return url.into();
    }
    format!("{server}{}", options.replace(VERIFIES, "sslmode=require")).into()
}

/// TLS to a server whose certificate may have another name than its host.
#[derive(Clone)]
pub(super) struct NamedTls {
    tls: MakeRustlsConnect,
    /// The name in the certificate. Empty = the host of the address.
    server_name: String,
}

impl<S> MakeTlsConnect<S> for NamedTls
where
    MakeRustlsConnect: MakeTlsConnect<S>,
{
    type Stream = <MakeRustlsConnect as MakeTlsConnect<S>>::Stream;
    type TlsConnect = <MakeRustlsConnect as MakeTlsConnect<S>>::TlsConnect;
    type Error = <MakeRustlsConnect as MakeTlsConnect<S>>::Error;

    fn make_tls_connect(&mut self, host: &str) -> Result<Self::TlsConnect, Self::Error> {
        let name = if self.server_name.is_empty() { host } else { &self.server_name };
        MakeTlsConnect::<S>::make_tls_connect(&mut self.tls, name)
    }
}

fn tls(tls_ca: &str) -> Result<MakeRustlsConnect, PostgresError> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if !tls_ca.is_empty() {
        for certificate in CertificateDer::pem_slice_iter(tls_ca.as_bytes()) {
            let certificate = certificate.map_err(|error| PostgresError::Authority(error.into()))?;
            roots.add(certificate).map_err(|error| PostgresError::Authority(error.into()))?;
        }
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    Ok(MakeRustlsConnect::new(builder?.with_root_certificates(roots).with_no_client_auth()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_says_whether_tls_is_required() {
        let mode = |url: &str| {
            let address = PostgresAddress::read(url, Duration::from_secs(1)).expect("the address is good");
            address.config.get_ssl_mode()
        };
        for url in [
            "postgres://a@db/c",
            "postgres://a@127.0.0.1/c?sslmode=require",
            "postgres://a:sslmode=verify-full@127.0.0.1/c?connect_timeout=3&sslmode=verify-full",
            "host=127.0.0.1 user=a sslmode=verify-full dbname=c",
        ] {
            assert_eq!(mode(url), SslMode::Require, "{url}");
        }
        for url in ["postgres://a@127.0.0.1/c", "postgres://a:sslmode=verify-full@127.0.0.1/c", "host=localhost user=a"]
        {
            assert_eq!(mode(url), SslMode::Disable, "{url}");
        }
        let refused = PostgresAddress::read("postgres://a@b/c?sslmode=verify-ca", Duration::from_secs(1));
        assert!(refused.is_err(), "a mode that is not known is refused");
    }
}
