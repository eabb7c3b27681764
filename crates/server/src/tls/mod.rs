//! TLS. Certificates come from files, which are read again when they change, from the settings themselves, or from an
//! ACME authority. A client certificate may name the user.

mod acme;
mod check;
mod config;
mod error;
mod files;
mod pem;
mod ports;

pub(crate) use self::acme::PendingRenewal;
pub(crate) use self::check::{check, check_nats, validities};
pub(crate) use self::config::Tls;
pub use self::error::TlsError;
pub(crate) use self::files::{authorities, client_certificate};
pub use self::pem::read_pem;
pub(crate) use self::ports::PortsTls;
