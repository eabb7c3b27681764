//! The directory that stores an account, its keys and its certificates. Each authority has its own directory, so that
//! the certificates of a test authority are never served.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;

use instant_acme::AccountCredentials;
use touchline_config::AutocertSettings;

use super::certificate::Certificate;

const ACCOUNT: &str = "account.json";
/// The file of the authority's certificates; the certificates of hosts end in `.pem`.
const AUTHORITY: &str = "authority.crt";

/// The directory of one authority.
#[derive(Debug)]
pub(super) struct Cache {
    directory: PathBuf,
}

impl Cache {
    /// Creates the directory if it does not exist. Only the server's own user may read it.
    ///
    /// # Errors
    /// When the directory can't be created; the error contains its path.
    pub(super) fn open(settings: &AutocertSettings) -> Result<Self, (PathBuf, io::Error)> {
        let directory = PathBuf::from(&settings.cache_dir).join(name(&settings.directory_url));
        match DirBuilder::new().recursive(true).mode(0o700).create(&directory) {
            Ok(()) => Ok(Cache { directory }),
            Err(error) => Err((directory, error)),
        }
    }

    /// The certificate of a host; None = no usable one is stored.
    pub(super) fn certificate(&self, host: &str) -> Option<Certificate> {
        let pem = fs::read(self.directory.join(file(host))).ok()?;
        let certificate = Certificate::from_pem(&pem);
        certificate
            .inspect_err(|error| tracing::warn!(host, %error, "a stored certificate can't be used and is ignored"))
            .ok()
    }

    /// Stores the certificate of a host.
    ///
    /// # Errors
    /// When the file can't be written.
    pub(super) fn keep_certificate(&self, host: &str, pem: &[u8]) -> io::Result<()> {
        self.keep(&file(host), pem)
    }

    /// The account; None = no readable one is stored.
    pub(super) fn account(&self) -> Option<AccountCredentials> {
        let text = fs::read(self.directory.join(ACCOUNT)).ok()?;
        serde_json::from_slice(&text)
            .inspect_err(|error| tracing::warn!(%error, "the stored account can't be read"))
            .ok()
    }

    /// Stores the account.
    ///
    /// # Errors
    /// When the file can't be written.
    pub(super) fn keep_account(&self, account: &AccountCredentials) -> io::Result<()> {
        self.keep(ACCOUNT, &serde_json::to_vec(account)?)
    }

    /// Stores the authority by which the server of the directory is trusted. Returns the path of its file.
    ///
    /// # Errors
    /// When the file can't be written.
    pub(super) fn keep_authority(&self, pem: &[u8]) -> io::Result<PathBuf> {
        self.keep(AUTHORITY, pem)?;
        Ok(self.directory.join(AUTHORITY))
    }

    /// Deletes the account, because its authority doesn't know it.
    pub(super) fn forget_account(&self) {
        let _ = fs::remove_file(self.directory.join(ACCOUNT));
    }

    /// Writes a file so that no reader ever sees a half-written one.
    fn keep(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let half = self.directory.join(format!("{name}.{}", std::process::id()));
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&half)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&half, self.directory.join(name))
    }
}

fn file(host: &str) -> String {
    format!("{host}.pem")
}

/// The name of an authority's directory: its address without the scheme, in characters that every file system accepts.
fn name(url: &str) -> String {
    let address = url.split_once("://").map_or(url, |(_, rest)| rest);
    address.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' || c == '-' { c } else { '-' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_authority_has_its_own_directory() {
        assert_eq!(name("https://acme-v02.api.letsencrypt.org/directory"), "acme-v02.api.letsencrypt.org-directory");
        assert_eq!(name("https://ca.example:9000/acme/../x"), "ca.example-9000-acme-..-x");
    }
}
