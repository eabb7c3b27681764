//! A certificate with its key, and the time at which it must be renewed.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use x509_cert::der::Decode;

/// Why a certificate can't be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unusable {
    #[error("no certificate and key in PEM")]
    Pem(#[from] rustls::pki_types::pem::Error),
    #[error("the certificate can't be read")]
    Form(#[from] x509_cert::der::Error),
    #[error("the certificate and its key can't be used together")]
    Pair(#[from] rustls::Error),
}

/// A certificate with its key.
#[derive(Debug)]
pub(super) struct Certificate {
    pub(super) key: Arc<CertifiedKey>,
    /// When two thirds of its lifetime are over.
    pub(super) due: SystemTime,
}

impl Certificate {
    /// Reads a private key and the chain that belongs to it, in any order.
    ///
    /// # Errors
    /// [`Unusable`] says why the certificate can't be used.
    pub(super) fn from_pem(pem: &[u8]) -> Result<Self, Unusable> {
        let key = PrivateKeyDer::from_pem_slice(pem)?;
        let chain = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>()?;
        let leaf = chain.first().ok_or(rustls::pki_types::pem::Error::NoItemsFound)?;
        let validity = x509_cert::Certificate::from_der(leaf)?.tbs_certificate.validity;
        let due = due(validity.not_before.to_unix_duration(), validity.not_after.to_unix_duration());
        let key = Arc::new(CertifiedKey::from_der(chain, key, &default_provider())?);
        Ok(Certificate { key, due: SystemTime::UNIX_EPOCH + due })
    }
}

/// When two thirds of a lifetime are over, as Let's Encrypt advises for lifetimes of any length.
fn due(begin: Duration, end: Duration) -> Duration {
    begin + end.saturating_sub(begin) / 3 * 2
}

/// How long to wait after this many failures in a row: 2 minutes, then twice as long each time, at most an hour.
///
/// That makes five attempts in the first hour, which is how many failures of a name Let's Encrypt allows.
pub(super) fn wait(failures: u32) -> Duration {
    Duration::from_secs(60) * (1 << failures.min(6)).min(60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_due_when_two_thirds_of_its_life_are_over() {
        let day = Duration::from_secs(86_400);
        assert_eq!(due(day * 100, day * 190), day * 160);
        assert_eq!(due(day * 100, day * 106), day * 104);
        assert_eq!(due(day * 100, day * 90), day * 100, "a life that ends before it begins is due at once");
    }

    #[test]
    fn failures_are_repeated_ever_more_rarely() {
        let minutes: Vec<u64> = (1..9).map(|failures| wait(failures).as_secs() / 60).collect();
        assert_eq!(minutes, [2, 4, 8, 16, 32, 60, 60, 60]);
        let begun = (0..).map(|failures: u32| (1..=failures).map(wait).sum::<Duration>());
        assert_eq!(begun.take_while(|begin| begin.as_secs() < 3_600).count(), 5);
    }

    #[test]
    fn what_is_no_certificate_is_no_certificate() {
        assert!(matches!(Certificate::from_pem(b"hello"), Err(Unusable::Pem(_))));
    }

    #[test]
    fn a_certificate_with_the_key_of_another_is_refused() {
        let [one, other] =
            [(); 2].map(|()| rcgen::generate_simple_self_signed(["example.org".to_owned()]).expect("a certificate"));
        let whole = |of: &rcgen::CertifiedKey<rcgen::KeyPair>, key: &rcgen::CertifiedKey<rcgen::KeyPair>| {
            format!("{}{}", key.signing_key.serialize_pem(), of.cert.pem())
        };
        assert!(Certificate::from_pem(whole(&one, &one).as_bytes()).is_ok());
        assert!(matches!(Certificate::from_pem(whole(&one, &other).as_bytes()), Err(Unusable::Pair(_))));
    }
}
