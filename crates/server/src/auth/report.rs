//! Says of a token which steps it passes, and which one it fails. No step shows a key, a signature or a secret.

use serde_json::Value;
use touchline_engine::base64_text::decode_base64;
use touchline_engine::claims::connection_claims;
use touchline_engine::{ConnectionClaims, SubscriptionClaims, TokenError, Verifier as _};

use super::fault::{TokenFault, TokenStage};
use super::issuer::{Issuer, KeySource};
use super::verifier::{TokenRules, TokenVerifier};

/// Longest part of a claim that is shown, characters.
const SHOWN: usize = 200;

/// A step of the check of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenStep {
    /// The step.
    pub stage: TokenStage,
    /// Whether the token passes it; None = it was not checked, because an earlier step failed, or because the
    /// configuration asks for nothing.
    pub passed: Option<bool>,
    /// What was found.
    pub text: String,
}

/// What a server would say of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenVerdict {
    /// The steps, in their order.
    pub steps: Vec<TokenStep>,
    /// The user, or why the token is not taken.
    pub outcome: Result<String, TokenError>,
}

impl TokenStage {
    /// The name of the step, in one word.
    pub fn name(self) -> &'static str {
        match self {
            TokenStage::Format => "format",
            TokenStage::Provider => "provider",
            TokenStage::Algorithm => "algorithm",
            TokenStage::Key => "key",
            TokenStage::Signature => "signature",
            TokenStage::Times => "times",
            TokenStage::Issuer => "issuer",
            TokenStage::Audience => "audience",
            TokenStage::Claims => "claims",
        }
    }
}

/// The steps in the order in which a token is checked.
const STEPS: [TokenStage; 9] = [
    TokenStage::Format,
    TokenStage::Provider,
    TokenStage::Algorithm,
    TokenStage::Key,
    TokenStage::Signature,
    TokenStage::Times,
    TokenStage::Issuer,
    TokenStage::Audience,
    TokenStage::Claims,
];

impl TokenVerifier {
    /// Checks a token as a connection token or as a subscription token, at a time (Unix seconds).
    pub(crate) fn report(&self, token: &str, is_subscription: bool, now_s: u64) -> TokenVerdict {
        let rules = if is_subscription { &self.subscription } else { &self.connection };
        let (fault, outcome) = match is_subscription {
            true => {
                let fault = rules.verify::<SubscriptionClaims>(token, now_s).err();
                (fault, self.subscription(token, now_s).map(|claims| claims.sub))
            }
            false => {
                let fault = rules.verify::<ConnectionClaims>(token, now_s).err();
                (fault, connection_claims(self, token, now_s).map(|claims| claims.sub))
            }
        };
        // What the engine refuses beyond the verifier is in the claims.
        let beyond = outcome.as_ref().err().map(|error| TokenFault { stage: TokenStage::Claims, error: *error });
        TokenVerdict { steps: steps(rules, token, fault.or(beyond), now_s), outcome }
    }
}

/// The steps of a token that fails one of them, or none.
fn steps(rules: &TokenRules, token: &str, fault: Option<TokenFault>, now_s: u64) -> Vec<TokenStep> {
    let shown = ReportedToken::of(token);
    // The library does not tell a header with a foreign algorithm from no header.
    let failed = fault.map(|fault| match fault.stage {
        TokenStage::Format if shown.has_shape() && !is_known(&shown.header["alg"]) => TokenStage::Algorithm,
        stage => stage,
    });
    let mut steps = Vec::new();
    let is_asked = |stage: &&TokenStage| **stage != TokenStage::Provider || rules.names.is_some();
    for stage in STEPS.iter().filter(is_asked) {
        let is_over = steps.iter().any(|step: &TokenStep| step.passed == Some(false));
        let (passed, text) = match fault {
            Some(_) if is_over => (None, String::new()),
            Some(fault) if failed == Some(*stage) => (Some(false), cause(fault.error, &shown, now_s)),
            _ => shown.found(*stage, rules, token, now_s),
        };
        steps.push(TokenStep { stage: *stage, passed, text });
    }
    steps
}

fn cause(error: TokenError, shown: &ReportedToken, now_s: u64) -> String {
    match error {
        TokenError::Invalid(cause) | TokenError::Unavailable(cause) => cause.to_owned(),
        TokenError::Expired => {
            let ago = now_s as f64 - shown.claims["exp"].as_f64().unwrap_or_default();
            format!("exp of the token has passed {ago:.0} s ago")
        }
    }
}

/// Whether an algorithm is one that some key can verify.
fn is_known(alg: &Value) -> bool {
    alg.as_str().is_some_and(|alg| alg == "ES512" || alg.parse::<jsonwebtoken::Algorithm>().is_ok())
}

/// What a token says. Nothing of it is verified.
struct ReportedToken {
    parts: usize,
    header: Value,
    claims: Value,
}

impl ReportedToken {
    fn of(token: &str) -> Self {
        let part = |number| {
            let bytes = token.split('.').nth(number).and_then(decode_base64);
            bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
        };
        ReportedToken { parts: token.split('.').count(), header: part(0), claims: part(1) }
    }

    fn has_shape(&self) -> bool {
        self.parts == 3 && self.header.is_object() && self.claims.is_object()
    }

    /// What a step that the token passes has found.
    fn found(&self, stage: TokenStage, rules: &TokenRules, token: &str, now_s: u64) -> (Option<bool>, String) {
        let number = if rules.names.is_some() { rules.issuer_of(token).ok() } else { Some(0) };
        let Some((number, issuer)) = number.and_then(|number| Some((number, rules.issuers.get(number)?))) else {
            return (Some(true), String::new());
        };
        let text = match stage {
            TokenStage::Format => "three parts, and a header".to_owned(),
            TokenStage::Provider => rules.names.iter().flatten().nth(number).cloned().unwrap_or_default(),
            TokenStage::Algorithm => text(&self.header["alg"]),
            TokenStage::Key => self.key(issuer),
            TokenStage::Signature => "is of that key".to_owned(),
            TokenStage::Times => match self.claims["exp"].as_f64() {
                Some(exp) => format!("exp in {:.0} s", exp - now_s as f64),
                None => "no exp: it never expires".to_owned(),
            },
            TokenStage::Issuer if issuer.rules.issuer.is_empty() && issuer.rules.issuer_regex.is_none() => {
                return (None, "no issuer is configured".to_owned());
            }
            TokenStage::Issuer => text(&self.claims["iss"]),
            TokenStage::Audience if !issuer.rules.has_audience() => {
                return (None, "no audience is configured".to_owned());
            }
            TokenStage::Audience => text(&self.claims["aud"]),
            TokenStage::Claims => "have the types that they must have".to_owned(),
        };
        (Some(true), text)
    }

    fn key(&self, issuer: &Issuer) -> String {
        match &issuer.keys {
            KeySource::Written(_) => "one of the configuration".to_owned(),
            KeySource::Fetched(_) => format!("kid {}", text(&self.header["kid"])),
        }
    }
}

/// A value as a person may be shown it: in quotes, without control characters, and not for ever.
fn text(value: &Value) -> String {
    let all = value.to_string();
    match all.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &all[..end]),
        None => all,
    }
}
