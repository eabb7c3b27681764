//! Verifies connection and subscription tokens.

use std::sync::{Arc, OnceLock};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use touchline_config::ClientTlsSettings;
use touchline_engine::base64_text::decode_base64;
use touchline_engine::{ClientSettings, ConnectionClaims, SubscriptionClaims, TokenError, TokenSettings, Verifier};

use super::fault::{NO_TOKEN, TokenFault, TokenStage};
use super::issuer::{Issuer, IssuerPlace};
use super::key_set::KeySets;
use super::rules::RegisteredClaims;
use crate::start_error::StartError;

/// The rules of one kind of token.
pub(super) struct TokenRules {
    /// The issuers, in the order of the configuration; without names there is exactly one.
    pub(super) issuers: Vec<Issuer>,
    /// The names of the issuers; None = there is one, and tokens need not name it.
    pub(super) names: Option<Vec<String>>,
    /// The header of the first verified token, as it was sent: a signer gives the same to all its tokens, so they are
    /// not parsed for `crit` again.
    plain_header: OnceLock<Box<str>>,
}

impl TokenRules {
    /// # Errors
    /// When no token could be verified by a configured key.
    pub(super) fn new(section: &str, settings: &TokenSettings, sets: &mut KeySets) -> Result<Self, StartError> {
        let no_tls = ClientTlsSettings::default();
        if !settings.jwks.enabled {
            let place = IssuerPlace { section, endpoint: "jwks_public_endpoint", tls_section: section, tls: &no_tls };
            return Ok(TokenRules::of(Issuer::new(settings, &place, sets)?));
        }
        let (mut issuers, mut names) = (Vec::new(), Vec::new());
        for provider in settings.jwks.providers.iter().filter(|provider| provider.options.enabled) {
            let (name, options) = (&provider.name, &provider.options);
            let section = format!("{section}.jwks.providers[{name}]");
            let tls_section = format!("{section}.tls");
            let place =
                IssuerPlace { section: &section, endpoint: "endpoint", tls_section: &tls_section, tls: &options.tls };
            issuers.push(Issuer::new(&options.token(), &place, sets)?);
            names.push(name.clone());
        }
        Ok(TokenRules { issuers, names: Some(names), plain_header: OnceLock::new() })
    }

    /// The rules of one issuer, whom tokens need not name.
    pub(super) fn of(issuer: Issuer) -> Self {
        TokenRules { issuers: vec![issuer], names: None, plain_header: OnceLock::new() }
    }

    /// The claims of a token.
    ///
    /// # Errors
    /// The first step that it fails.
    pub(super) fn verify<T: DeserializeOwned>(&self, token: &str, now_s: u64) -> Result<T, TokenFault> {
        let header = token.split_once('.').map_or(token, |(header, _)| header);
        let is_plain = self.plain_header.get().is_some_and(|known| **known == *header);
        if !is_plain && has_critical(header)? {
            let cause = "the header of the token has crit, and no extension is known";
            return Err(TokenFault::invalid(TokenStage::Format, cause));
        }
        let issuer = match (&self.names, self.issuers.as_slice()) {
            (None, [issuer]) => issuer,
            _ => &self.issuers[self.issuer_of(token)?],
        };
        let json = issuer.signed(token, now_s)?;
        if !is_plain {
            self.plain_header.get_or_init(|| header.into());
        }
        let registered = RegisteredClaims::read(&json)?;
        registered.check_times(now_s)?;
        issuer.rules.check_names(&registered)?;
        issuer.rules.shape(&json)
    }

    /// The number of the issuer that a token says it is of: one whose issuer and audience it names, else one without an
    /// audience whose issuer it names. Only the keys of this one can make the token good.
    pub(super) fn issuer_of(&self, token: &str) -> Result<usize, TokenFault> {
        let claims = RegisteredClaims::of_unverified(token)?;
        let issuers = || self.issuers.iter().enumerate().filter(|(_, issuer)| issuer.rules.is_issuer(&claims));
        let named = issuers().find(|(_, of)| of.rules.has_audience() && of.rules.is_audience(&claims));
        let found = named.or_else(|| issuers().find(|(_, of)| !of.rules.has_audience()));
        let cause = "iss and aud of the token name none of the configured issuers";
        found.map(|(number, _)| number).ok_or(TokenFault::invalid(TokenStage::Provider, cause))
    }
}

/// Whether the header of a token names extensions that must be understood (`crit`): this server knows none, so the
/// token is refused (RFC 7515, 4.1.11).
///
/// # Errors
/// When there is no header.
fn has_critical(header: &str) -> Result<bool, TokenFault> {
    /// Present, whatever its value.
    #[derive(Default)]
    struct Present(bool);
    impl<'de> Deserialize<'de> for Present {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            serde::de::IgnoredAny::deserialize(deserializer).map(|_| Present(true))
        }
    }
    #[derive(Deserialize)]
    struct Head {
        #[serde(default)]
        crit: Present,
    }
    let no_token = TokenFault::invalid(TokenStage::Format, NO_TOKEN);
    let head = decode_base64(header).ok_or(no_token)?;
    let head: Head = serde_json::from_slice(&head).map_err(|_| no_token)?;
    Ok(head.crit.0)
}

/// Whether tokens can be verified by the configured keys. Keys at an endpoint are not fetched.
///
/// # Errors
/// When no token could be verified by a configured key.
pub fn check_token_keys(settings: &ClientSettings) -> Result<(), StartError> {
    TokenVerifier::new(settings, &mut KeySets::default()).map(drop)
}

/// Verifies connection and subscription tokens by the configured keys. Clones share them.
#[derive(Clone)]
pub(crate) struct TokenVerifier {
    pub(super) connection: Arc<TokenRules>,
    pub(super) subscription: Arc<TokenRules>,
}

impl TokenVerifier {
    /// `sets`: takes the sets of keys that have to be fetched.
    ///
    /// # Errors
    /// When no token could be verified by a configured key.
    pub(crate) fn new(settings: &ClientSettings, sets: &mut KeySets) -> Result<Self, StartError> {
        let connection = Arc::new(TokenRules::new("client.token", &settings.token, sets)?);
        let own = &settings.subscription_token;
        let subscription = match own.enabled {
            true => Arc::new(TokenRules::new("client.subscription_token", &own.token, sets)?),
            false => Arc::clone(&connection),
        };
        Ok(TokenVerifier { connection, subscription })
    }
}

impl Verifier for TokenVerifier {
    fn connection(&self, token: &str, now_s: u64) -> Result<ConnectionClaims, TokenError> {
        self.connection.verify(token, now_s).map_err(|fault| fault.error)
    }

    fn subscription(&self, token: &str, now_s: u64) -> Result<SubscriptionClaims, TokenError> {
        self.subscription.verify(token, now_s).map_err(|fault| fault.error)
    }
}
