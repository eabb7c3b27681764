//! Verifies connection tokens and subscription tokens.

use std::sync::{Arc, OnceLock};

use serde::de::DeserializeOwned;
use touchline_config::ClientTlsSettings;
use touchline_engine::{ClientSettings, ConnectionClaims, SubscriptionClaims, TokenError, TokenSettings, Verifier};

use super::fault::{TokenFault, TokenStage};
use super::issuer::{Issuer, IssuerPlace};
use super::key_set::KeySets;
use super::rules::RegisteredClaims;
use super::token::{Token, TokenHeader};
use crate::start_error::StartError;

/// The rules for one kind of token.
pub(super) struct TokenRules {
    /// The issuers, in the order of the configuration. Without names there is exactly one.
    pub(super) issuers: Vec<Issuer>,
    /// The names of the issuers; None = there is one issuer, and tokens need not name it.
    pub(super) names: Option<Vec<String>>,
    /// The header of the first verified token, as text and as read. It is cached because a signer gives all its tokens
    /// the same header.
    usual_header: OnceLock<(Box<str>, TokenHeader)>,
}

impl TokenRules {
    /// # Errors
    /// When none of the configured keys could verify a token.
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
        Ok(TokenRules { issuers, names: Some(names), usual_header: OnceLock::new() })
    }

    /// Makes the rules of one issuer, which tokens need not name.
    pub(super) fn of(issuer: Issuer) -> Self {
        TokenRules { issuers: vec![issuer], names: None, usual_header: OnceLock::new() }
    }

    /// Verifies a token, and returns its claims.
    ///
    /// # Errors
    /// The first step that the token fails.
    pub(super) fn verify<T: DeserializeOwned>(&self, token: &str, now_s: u64) -> Result<T, TokenFault> {
        let token = Token::split(token)?;
        let Some((_, header)) = self.usual_header.get().filter(|(known, _)| **known == *token.header) else {
            let header = TokenHeader::read(token.header)?;
            let claims = self.verify_with(&token, &header, now_s)?;
            self.usual_header.get_or_init(|| (token.header.into(), header));
            return Ok(claims);
        };
        self.verify_with(&token, header, now_s)
    }

    fn verify_with<T: DeserializeOwned>(
        &self,
        token: &Token<'_>,
        header: &TokenHeader,
        now_s: u64,
    ) -> Result<T, TokenFault> {
        let issuer = match (&self.names, self.issuers.as_slice()) {
            (None, [issuer]) => issuer,
            _ => &self.issuers[self.issuer_of(token)?],
        };
        issuer.check_signature(token, header, now_s)?;
        let json = token.claims()?;
        let registered = RegisteredClaims::read(&json)?;
        registered.check_times(now_s)?;
        issuer.rules.check_names(&registered)?;
        issuer.rules.shape(&json)
    }

    /// Returns the number of the issuer that a token names. This is one whose issuer and audience the token names, or
    /// else one without an audience whose issuer it names. Only the keys of this issuer can verify the token.
    pub(super) fn issuer_of(&self, token: &Token<'_>) -> Result<usize, TokenFault> {
        let claims = RegisteredClaims::read(&token.claims()?).map_err(|fault| fault.at(TokenStage::Provider))?;
        let issuers = || self.issuers.iter().enumerate().filter(|(_, issuer)| issuer.rules.is_issuer(&claims));
        let named = issuers().find(|(_, of)| of.rules.has_audience() && of.rules.is_audience(&claims));
        let found = named.or_else(|| issuers().find(|(_, of)| !of.rules.has_audience()));
        let cause = "iss and aud of the token name none of the configured issuers";
        found.map(|(number, _)| number).ok_or(TokenFault::invalid(TokenStage::Provider, cause))
    }
}

/// Checks whether the configured keys can verify tokens. Keys at an endpoint are not fetched.
///
/// # Errors
/// When none of the configured keys could verify a token.
pub fn check_token_keys(settings: &ClientSettings) -> Result<(), StartError> {
    TokenVerifier::new(settings, &mut KeySets::default()).map(drop)
}

/// Verifies connection and subscription tokens with the configured keys. Clones share the keys.
#[derive(Clone)]
pub(crate) struct TokenVerifier {
    pub(super) connection: Arc<TokenRules>,
    pub(super) subscription: Arc<TokenRules>,
}

impl TokenVerifier {
    /// Makes a verifier. `sets`: takes the key sets that have to be fetched.
    ///
    /// # Errors
    /// When none of the configured keys could verify a token.
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
