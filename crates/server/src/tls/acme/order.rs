//! One ACME order: the node proves control of the name and fetches the certificate (RFC 8555, section 7.4).

use std::sync::Arc;
use std::time::Duration;

use instant_acme::{
    Account, AuthorizationStatus, ChallengeHandle, ChallengeType, Identifier, NewOrder, Order, OrderStatus, RetryPolicy,
};
use rcgen::{CertificateParams, CustomExtension, KeyPair};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};

use super::resolver::{CHALLENGE_PROTOCOL, CertResolver, Challenge};

/// How long an authority may take to validate a name, or to issue a certificate.
const POLL_TIMEOUT: Duration = Duration::from_secs(120);

/// Why an order failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum OrderError {
    #[error(transparent)]
    Authority(#[from] instant_acme::Error),
    #[error("the authority offers no {0:?} challenge for this name")]
    NoChallenge(ChallengeType),
    #[error("the authority could not validate the name: {0}")]
    Unproved(String),
    #[error("the challenge certificate can't be made")]
    Proof(#[from] rcgen::Error),
    #[error("the challenge certificate can't be served")]
    Serving(#[from] rustls::Error),
}

impl OrderError {
    /// Whether the authority does not know the account, for example because the authority was set up again.
    pub(super) fn is_unknown_account(&self) -> bool {
        let OrderError::Authority(instant_acme::Error::Api(problem)) = self else { return false };
        problem.r#type.as_deref() == Some("urn:ietf:params:acme:error:accountDoesNotExist")
    }
}

/// Proves control of a host by challenges of this kind, and fetches a certificate for it. Returns its key and its chain
/// in PEM.
///
/// # Errors
/// [`OrderError`] says why the order failed.
pub(super) async fn order(
    account: &Account,
    host: &str,
    kind: ChallengeType,
    resolver: &CertResolver,
) -> Result<String, OrderError> {
    let mut order = account.new_order(&NewOrder::new(&[Identifier::Dns(host.to_owned())])).await?;
    let mut guards = Vec::new();
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        if authorization.status == AuthorizationStatus::Valid {
            continue;
        }
        let mut challenge = authorization.challenge(kind.clone()).ok_or(OrderError::NoChallenge(kind.clone()))?;
        guards.push(resolver.serve_challenge(host, answer(host, &challenge)?));
        challenge.set_ready().await?;
    }
    let retries = RetryPolicy::default().timeout(POLL_TIMEOUT);
    if order.poll_ready(&retries).await? != OrderStatus::Ready {
        return Err(OrderError::Unproved(reason(&mut order).await));
    }
    drop(guards);
    let key = order.finalize().await?;
    let chain = order.poll_certificate(&retries).await?;
    Ok(key + &chain)
}

/// Makes the answer to a challenge of the authority.
fn answer(host: &str, challenge: &ChallengeHandle<'_>) -> Result<Challenge, OrderError> {
    let authorization = challenge.key_authorization();
    if challenge.r#type == ChallengeType::Http01 {
        return Ok(Challenge::Http { token: challenge.token.clone(), answer: authorization.as_str().to_owned() });
    }
    let mut params = CertificateParams::new([host.to_owned()])?;
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(authorization.digest().as_ref())];
    let key = KeyPair::generate()?;
    let chain: Vec<CertificateDer<'static>> = vec![params.self_signed(&key)?.der().clone()];
    let key = any_supported_type(&PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der())))?;
    // `with_single_cert` would reject the certificate: it does not know the critical extension that a challenge has.
    let served = SingleCertAndKey::from(CertifiedKey::new(chain, key));
    let mut config = ServerConfig::builder().with_no_client_auth().with_cert_resolver(Arc::new(served));
    config.alpn_protocols = vec![CHALLENGE_PROTOCOL.to_vec()];
    Ok(Challenge::Tls(Arc::new(config)))
}

/// Why the challenge failed, according to the authority.
async fn reason(order: &mut Order) -> String {
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        let Ok(state) = authorization.refresh().await else { continue };
        if let Some(problem) = state.challenges.iter().find_map(|challenge| challenge.error.as_ref()) {
            return problem.to_string();
        }
    }
    "the authority gave no reason".to_owned()
}
