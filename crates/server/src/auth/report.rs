//! Reports which steps a token passes, and which one it fails. No step shows a key, a signature or a secret.

use serde_json::{Map, Value};
use touchline_engine::claims::connection_claims;
use touchline_engine::{ConnectionClaims, SubscriptionClaims, TokenError, Verifier as _};

use super::fault::{TokenFault, TokenStage};
use super::issuer::{Issuer, KeySource};
use super::token::{Token, decode_part};
use super::verifier::{TokenRules, TokenVerifier};

/// The most characters of a part of a claim that are shown.
const SHOWN: usize = 200;
/// From this many seconds on, only the order of magnitude is shown: thirty million years.
const SECONDS_SHOWN_MAX: f64 = 1e15;
/// Times from here on were probably meant as milliseconds. As seconds this time is in the year 5138.
const MILLISECONDS: f64 = 1e11;

/// A step in the check of a token, with its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenStep {
    /// The step that was checked.
    pub stage: TokenStage,
    /// Whether the token passes the step; None = it was not checked, because an earlier step failed, or because the
    /// configuration does not require it.
    pub passed: Option<bool>,
    /// What the step found, as text.
    pub text: String,
}

/// The result of the check of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenVerdict {
    /// The steps, in their order.
    pub steps: Vec<TokenStep>,
    /// The user, or why the token is refused.
    pub outcome: Result<String, TokenError>,
}

impl TokenStage {
    /// Returns the name of the step, in one word.
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
    TokenStage::Key,
    TokenStage::Algorithm,
    TokenStage::Signature,
    TokenStage::Times,
    TokenStage::Issuer,
    TokenStage::Audience,
    TokenStage::Claims,
];

impl TokenVerifier {
    /// Checks a token as a connection token or as a subscription token, at a time in Unix seconds.
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
        // What the engine refuses after the verifier is in the claims.
        let beyond = outcome.as_ref().err().map(|error| TokenFault { stage: TokenStage::Claims, error: *error });
        let user = outcome.as_ref().ok().map(String::as_str);
        TokenVerdict { steps: steps(rules, token, fault.or(beyond), user, now_s), outcome }
    }
}

/// Returns the steps of a token. `fault`: the step that fails; `user`: the user of a valid token.
fn steps(rules: &TokenRules, token: &str, fault: Option<TokenFault>, user: Option<&str>, now_s: u64) -> Vec<TokenStep> {
    let shown = ReportedToken::of(token);
    let mut steps = Vec::new();
    let is_asked = |stage: &&TokenStage| **stage != TokenStage::Provider || rules.names.is_some();
    for stage in STEPS.iter().filter(is_asked) {
        let is_over = steps.iter().any(|step: &TokenStep| step.passed == Some(false));
        let (passed, text) = match fault {
            Some(_) if is_over => (None, String::new()),
            Some(fault) if fault.stage == *stage => (Some(false), cause(fault.error, &shown, now_s)),
            _ => shown.found(*stage, rules, token, user, now_s),
        };
        steps.push(TokenStep { stage: *stage, passed, text });
    }
    steps
}

fn cause(error: TokenError, shown: &ReportedToken, now_s: u64) -> String {
    match error {
        TokenError::Invalid(cause) | TokenError::Unavailable(cause) => cause.to_owned(),
        TokenError::Expired => {
            let exp = shown.claims["exp"].as_f64().unwrap_or_default();
            format!("exp of the token has passed {} ago", shown_seconds(now_s as f64 - exp))
        }
    }
}

/// Returns the header and the claims of a token as they are written, without verification. A part that is not a JSON
/// object is empty.
pub(crate) fn token_parts(token: &str) -> (Map<String, Value>, Map<String, Value>) {
    let ReportedToken { header, claims } = ReportedToken::of(token);
    let object = |value| match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    };
    (object(header), object(claims))
}

/// The contents of a token, unverified.
struct ReportedToken {
    header: Value,
    claims: Value,
}

impl ReportedToken {
    fn of(token: &str) -> Self {
        let part = |number| {
            let bytes = token.split('.').nth(number).and_then(decode_part);
            bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
        };
        ReportedToken { header: part(0), claims: part(1) }
    }

    /// Returns the result of a step that the token passes.
    fn found(
        &self,
        stage: TokenStage,
        rules: &TokenRules,
        token: &str,
        user: Option<&str>,
        now_s: u64,
    ) -> (Option<bool>, String) {
        let of_token = || rules.issuer_of(&Token::split(token).ok()?).ok();
        let number = if rules.names.is_some() { of_token() } else { Some(0) };
        let Some((number, issuer)) = number.and_then(|number| Some((number, rules.issuers.get(number)?))) else {
            return (Some(true), String::new());
        };
        let text = match stage {
            TokenStage::Format => format!("three parts, and a header with alg {}", text(&self.header["alg"])),
            TokenStage::Provider => rules.names.iter().flatten().nth(number).cloned().unwrap_or_default(),
            TokenStage::Key => self.key(issuer),
            TokenStage::Algorithm => "fits that key".to_owned(),
            TokenStage::Signature => "is of that key".to_owned(),
            TokenStage::Times => match self.claims["exp"].as_f64() {
                Some(exp) => format!("exp in {}{}", shown_seconds(exp - now_s as f64), doubt_of(exp)),
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
            TokenStage::Claims if user == Some("") => "no sub: the client is anonymous".to_owned(),
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

/// Returns a value for display: in quotes, without control characters, and shortened.
fn text(value: &Value) -> String {
    let all = value.to_string();
    match all.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", plain(&all[..end])),
        None => plain(&all),
    }
}

/// Returns a text of a token for a terminal. Control characters, and characters that change the direction of writing,
/// are replaced by their numbers.
fn plain(text: &str) -> String {
    let is_hidden = |c: char| {
        c.is_control()
            || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match is_hidden(c) {
            true => shown.extend(c.escape_unicode()),
            false => shown.push(c),
        }
    }
    shown
}

/// Returns a number of seconds for display: in full, or its order of magnitude if it is too large for a time.
pub fn shown_seconds(seconds: f64) -> String {
    if seconds.abs() < SECONDS_SHOWN_MAX { format!("{seconds:.0} s") } else { format!("{seconds:.0e} s") }
}

/// Returns a note about an `exp` that is probably not what its issuer meant.
fn doubt_of(exp: f64) -> &'static str {
    if exp < MILLISECONDS { "" } else { " (is it in milliseconds? It is read as seconds)" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_shown_as_its_number() {
        assert_eq!(plain("Ann's \"€\" \u{1f600}"), "Ann's \"€\" \u{1f600}");
        assert_eq!(plain("a\u{9b}31m\u{202e}b\u{1b}\n"), "a\\u{9b}31m\\u{202e}b\\u{1b}\\u{a}");
        assert_eq!(text(&Value::from("x".repeat(1_000))).chars().count(), SHOWN + 1);
    }

    #[test]
    fn numbers_of_any_size_are_short() {
        for (seconds, expected) in [(35.0, "35 s"), (-1e300, "-1e300 s"), (2e15, "2e15 s"), (f64::INFINITY, "inf s")] {
            assert_eq!(shown_seconds(seconds), expected);
        }
    }
}
