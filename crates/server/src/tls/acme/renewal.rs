//! The thread that renews certificates: it loads the stored ones, orders missing ones, and replaces each before it
//! expires.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use instant_acme::{Account, AccountBuilder, ChallengeType, ExternalAccountKey, NewAccount};
use touchline_config::{AutocertSettings, is_inline_pem};

use super::cache::Cache;
use super::certificate::{Certificate, wait};
use super::order::{OrderError, order};
use super::resolver::CertResolver;
use crate::tls::pem;

/// How often the thread reads the clock: the clock may jump, and a sleep does not advance while a machine is suspended.
const CLOCK_CHECK_INTERVAL: Duration = Duration::from_secs(600);
/// How long all requests to the authority for one certificate may take.
const FETCH_TIMEOUT: Duration = Duration::from_secs(300);

/// The renewal task: its settings, the account and the state of each host.
pub(super) struct Renewal {
    settings: AutocertSettings,
    binding: Option<ExternalAccountKey>,
    cache: Cache,
    resolver: Arc<CertResolver>,
    account: Option<Account>,
    hosts: Vec<Host>,
}

/// One host name, when its certificate is due for renewal, and how many attempts in a row have failed.
struct Host {
    name: String,
    due: SystemTime,
    failures: u32,
}

/// Why a certificate could not be renewed.
#[derive(Debug, thiserror::Error)]
enum RenewalError {
    #[error("the authority's account can't be used or created")]
    Account(#[source] instant_acme::Error),
    #[error(transparent)]
    Order(#[from] OrderError),
    #[error("what the authority issued can't be used")]
    Unusable(#[from] super::certificate::Unusable),
    #[error("the authority does not answer")]
    Silent,
    #[error("the certificate that the authority issued must be renewed already: check this machine's clock")]
    Stale,
}

impl Renewal {
    /// Serves the stored certificates. [`Renewal::run`] orders the missing ones.
    pub(super) fn new(
        settings: AutocertSettings,
        binding: Option<ExternalAccountKey>,
        cache: Cache,
        resolver: Arc<CertResolver>,
    ) -> Self {
        let hosts = settings.host_whitelist.iter().map(|name| Host {
            name: name.to_ascii_lowercase(),
            due: SystemTime::UNIX_EPOCH,
            failures: 0,
        });
        let mut renewal = Renewal { hosts: hosts.collect(), settings, binding, cache, resolver, account: None };
        for host in &mut renewal.hosts {
            if let Some(certificate) = renewal.cache.certificate(&host.name) {
                host.take(certificate, &renewal.resolver);
            }
        }
        renewal
    }

    /// Orders the certificates that are due; never returns.
    pub(super) async fn run(mut self) -> Infallible {
        loop {
            for index in 0..self.hosts.len() {
                // real time: certificates end by the system's clock.
                if self.hosts[index].due <= SystemTime::now() {
                    self.renew(index).await;
                }
            }
            let next =
                // real time: certificates end by the system's clock.
                self.hosts.iter().map(|host| host.due).min().and_then(|due| due.duration_since(SystemTime::now()).ok());
            // real time: certificates end by the system's clock.
            tokio::time::sleep(next.unwrap_or_default().min(CLOCK_CHECK_INTERVAL)).await;
        }
    }

    async fn renew(&mut self, index: usize) {
        let name = self.hosts[index].name.clone();
        let certificate =
            // real time: certificates end by the system's clock.
            tokio::time::timeout(FETCH_TIMEOUT, self.fetch(&name)).await.unwrap_or(Err(RenewalError::Silent));
        let host = &mut self.hosts[index];
        match certificate {
            Ok(certificate) => {
                host.take(certificate, &self.resolver);
                tracing::info!(host = name, "a certificate was issued");
            }
            Err(error) => {
                host.failures += 1;
                let again_in = wait(host.failures);
                // real time: certificates end by the system's clock.
                host.due = SystemTime::now() + again_in;
                tracing::warn!(host = name, error = &error as &dyn std::error::Error, ?again_in, "no certificate");
            }
        }
    }

    /// Returns a certificate that is not due: one that another node has meanwhile stored in the same directory, or a
    /// new one.
    async fn fetch(&mut self, host: &str) -> Result<Certificate, RenewalError> {
        // real time: certificates end by the system's clock.
        let is_good = |certificate: &Certificate| certificate.due > SystemTime::now();
        if let Some(certificate) = self.cache.certificate(host).filter(is_good) {
            return Ok(certificate);
        }
        let kind = if self.settings.http { ChallengeType::Http01 } else { ChallengeType::TlsAlpn01 };
        let account = self.account().await.map_err(RenewalError::Account)?;
        let ordered = order(&account, host, kind.clone(), &self.resolver).await;
        let ordered = match ordered {
            Err(error) if error.is_unknown_account() => {
                self.cache.forget_account();
                self.account = None;
                let account = self.account().await.map_err(RenewalError::Account)?;
                order(&account, host, kind, &self.resolver).await
            }
            ordered => ordered,
        };
        let pem = ordered?;
        let certificate = Certificate::from_pem(pem.as_bytes())?;
        if let Err(error) = self.cache.keep_certificate(host, pem.as_bytes()) {
            tracing::warn!(host, %error, "a certificate can't be stored: it will be ordered again at the next start");
        }
        Some(certificate).filter(is_good).ok_or(RenewalError::Stale)
    }

    /// Returns the account: the one in use, the stored one, or a new one.
    async fn account(&mut self) -> Result<Account, instant_acme::Error> {
        if let Some(account) = &self.account {
            return Ok(account.clone());
        }
        let account = match self.cache.account() {
            Some(credentials) => self.builder()?.from_credentials(credentials).await?,
            None => self.register().await?,
        };
        self.account = Some(account.clone());
        Ok(account)
    }

    async fn register(&self) -> Result<Account, instant_acme::Error> {
        let email = Some(&self.settings.email).filter(|email| !email.is_empty()).map(|email| format!("mailto:{email}"));
        let contact: Vec<&str> = email.as_deref().into_iter().collect();
        let new = NewAccount { contact: &contact, terms_of_service_agreed: true, only_return_existing: false };
        let (account, credentials) =
            self.builder()?.create(&new, self.settings.directory_url.clone(), self.binding.as_ref()).await?;
        if let Err(error) = self.cache.keep_account(&credentials) {
            tracing::warn!(%error, "the account at the certificate authority can't be stored");
        }
        Ok(account)
    }

    fn builder(&self) -> Result<AccountBuilder, instant_acme::Error> {
        match self.settings.ca_pem.as_str() {
            "" => Account::builder(),
            // The library takes only a file.
            value if is_inline_pem(value) => {
                let pem = pem::read("http_server.tls_autocert.ca_pem", value).map_err(other)?;
                Account::builder_with_root(self.cache.keep_authority(&pem).map_err(other)?)
            }
            path => Account::builder_with_root(path),
        }
    }
}

/// Wraps one of this module's errors as an error of the ACME library.
fn other(error: impl std::error::Error + Send + Sync + 'static) -> instant_acme::Error {
    instant_acme::Error::Other(Box::new(error))
}

impl Host {
    fn take(&mut self, certificate: Certificate, resolver: &CertResolver) {
        self.due = certificate.due;
        self.failures = 0;
        resolver.serve(&self.name, certificate.key);
    }
}
