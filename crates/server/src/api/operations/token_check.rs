//! The operation `token_check`: says why a token is accepted or refused. The node neither logs nor keeps the token.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use touchline_engine::TokenError;
use touchline_engine::bans::{BanReason, ShownToken};
use touchline_engine::claims::{connection_claims, subscription_claims};
use touchline_engine::events::rfc3339;
use touchline_protocol::Error;

use crate::api::description::OperationScope;
use crate::api::operation::{Operation, OperationError, RequestNode};
use crate::api::params::{nullable, nullable_fields};
use crate::auth::{TokenVerifier, shown_seconds, token_parts};

/// The longest token that is checked, in bytes.
const TOKEN_SIZE_MAX: usize = 16 * 1_024;
/// The most characters of a user or a channel that a sentence shows.
const NAME_SHOWN: usize = 100;
/// The last second that is shown as a time: the end of the year 9999.
const LAST_S: f64 = 253_402_300_799.0;

/// A request to check a token.
#[derive(Deserialize, Default, JsonSchema)]
#[serde(default)]
#[serde(expecting = "an object")]
#[schemars(extend("required" = ["token"]), transform = nullable_fields)]
pub(crate) struct TokenCheckRequest {
    /// The token, 1 byte to 16 KiB.
    #[serde(deserialize_with = "nullable")]
    #[schemars(length(min = 1, max = TOKEN_SIZE_MAX))]
    token: String,
}

/// The result of a check.
#[derive(Serialize, JsonSchema)]
pub(crate) struct TokenCheckReply {
    /// Whether the node accepts the token now, as a connection token or as a subscription token.
    valid: bool,
    /// Why the token is accepted or refused, in one sentence.
    words: String,
    /// The header of the token; empty = it cannot be read.
    header: BTreeMap<String, Value>,
    /// The claims, sorted by name; empty = they cannot be read. If the token is not valid, anybody may have written its
    /// claims.
    claims: Vec<ClaimReply>,
}

/// One claim of a token.
#[derive(Serialize, JsonSchema)]
struct ClaimReply {
    /// The name of the claim.
    claim: String,
    /// The value of the claim, as JSON.
    value: String,
    /// What the claim does on this node, with times in UTC.
    words: String,
}

/// The operation `token_check`.
pub(crate) struct TokenCheckOperation;

impl Operation for TokenCheckOperation {
    const NAME: &'static str = "token_check";
    const SUMMARY: &'static str = "Checks whether the asked node accepts a token now, and says why and what its claims \
                                   do; a bad token is not an error";
    const RESULT: &'static str = "`valid`, `words`, `header`, `claims`, each with `claim`, `value` (JSON) and `words`";
    const EXAMPLE: &'static str = r#"{"token": "eyJhbGciOiJub25lIn0.eyJzdWIiOiI0MiJ9."}"#;
    const REPLY_EXAMPLE: &'static str = r#"{
        "valid": true, "words": "It is accepted as a connection token of the user \"42\".",
        "header": {"alg": "HS256", "typ": "JWT"},
        "claims": [{"claim": "sub", "value": "\"42\"", "words": "the user; empty = anonymous"}]
    }"#;
    const ERRORS: &'static [Error] = &[];
    const SCOPE: OperationScope = OperationScope::AnyNode;
    const IS_IDEMPOTENT: bool = true;

    type Request<'a> = TokenCheckRequest;
    type Reply = TokenCheckReply;

    async fn run(node: RequestNode<'_>, request: TokenCheckRequest) -> Result<TokenCheckReply, OperationError> {
        let TokenCheckRequest { token } = request;
        if token.is_empty() || token.len() > TOKEN_SIZE_MAX {
            return Err(OperationError::bad("token"));
        }
        let generation = node.generation();
        let (verifier, now_s) = (&generation.access.verifier, node.clock.now_ms() / 1_000);
        let (header, claims) = token_parts(&token);
        let outcome = judged(verifier, &token, &claims, now_s).and_then(|taken| {
            let shown = ShownToken { jti: taken.jti.as_deref(), iat_s: taken.iat_s };
            let bans = &generation.session.bans;
            match bans.judge(&taken.user, bans.mark(shown, now_s), now_s) {
                Some(reason) => Err(format!("It is refused: {}.", ban_words(reason))),
                None => Ok(taken.words()),
            }
        });
        let explained = |(claim, value): (&String, &Value)| ClaimReply {
            claim: claim.clone(),
            value: value.to_string(),
            words: words_of(claim, value, now_s),
        };
        Ok(TokenCheckReply {
            valid: outcome.is_ok(),
            words: outcome.unwrap_or_else(|refused| refused),
            header: header.into_iter().collect(),
            claims: claims.iter().map(explained).collect(),
        })
    }
}

/// A token that the verifier accepts.
struct AcceptedToken {
    user: String,
    /// The channel of a subscription token; empty = the token is a connection token.
    channel: String,
    jti: Option<String>,
    iat_s: Option<u64>,
}

impl AcceptedToken {
    fn words(&self) -> String {
        let of_user = match &*self.user {
            "" => "the anonymous user".to_owned(),
            user => format!("the user {}", quoted(user)),
        };
        match &*self.channel {
            "" => format!("It is accepted as a connection token of {of_user}."),
            channel => {
                format!("It is accepted as a subscription token of {of_user} for the channel {}.", quoted(channel))
            }
        }
    }
}

/// Verifies a token as the node does: a token with a channel as a subscription token, others as connection tokens.
///
/// # Errors
/// A sentence that says why the token is refused.
fn judged(
    verifier: &TokenVerifier,
    token: &str,
    claims: &Map<String, Value>,
    now_s: u64,
) -> Result<AcceptedToken, String> {
    let is_subscription = claims.get("channel").and_then(Value::as_str).is_some_and(|channel| !channel.is_empty());
    let taken = match is_subscription {
        true => subscription_claims(verifier, token, now_s).map(|said| AcceptedToken {
            user: said.sub,
            channel: said.channel,
            jti: said.jti,
            iat_s: said.iat,
        }),
        false => connection_claims(verifier, token, now_s).map(|said| AcceptedToken {
            user: said.sub,
            channel: String::new(),
            jti: said.jti,
            iat_s: said.iat,
        }),
    };
    taken.map_err(|error| {
        // The report names the failed step with what it found. The error fills in what the report does not say.
        let failed = verifier.report(token, is_subscription, now_s).steps.into_iter();
        let found = failed.into_iter().find(|step| step.passed == Some(false)).map(|step| step.text);
        match error {
            TokenError::Unavailable(cause) => format!("It cannot be verified now: {cause}."),
            TokenError::Expired => format!("It is refused: {}.", found.unwrap_or_else(|| "it has expired".into())),
            TokenError::Invalid(cause) => format!("It is refused: {}.", found.unwrap_or_else(|| cause.into())),
        }
    })
}

fn ban_words(reason: BanReason) -> &'static str {
    match reason {
        BanReason::Blocked => "its user is blocked (`block_user`)",
        BanReason::Revoked => "it is revoked (`revoke_token`)",
        BanReason::Invalidated => "tokens of its user that are as old are refused (`invalidate_user_tokens`)",
    }
}

/// Returns a text of a token in quotes, shortened if it is long.
fn quoted(text: &str) -> String {
    match text.char_indices().nth(NAME_SHOWN) {
        Some((end, _)) => format!("{}…", Value::from(&text[..end])),
        None => Value::from(text).to_string(),
    }
}

/// Says in words what a claim does.
fn words_of(claim: &str, value: &Value, now_s: u64) -> String {
    let meaning = match claim {
        "exp" => "the token is refused from then on",
        "nbf" => "the token is refused before",
        "iat" => "when it was issued; `invalidate_user_tokens` compares this time",
        "expire_at" => "when the connection or the subscription ends, if not at `exp`; 0 = it does not end",
        "sub" => "the user; empty = anonymous",
        "jti" => "the id by which `revoke_token` revokes it",
        "iss" => "the issuer; compared with the configured issuer",
        "aud" => "the audience; compared with the configured audience",
        "channel" => "the channel of a subscription token",
        "client" => "the only connection that may subscribe with it",
        "info" | "b64info" => "what other clients see of the connection or the subscription",
        "channels" => "channels that the connection is subscribed to",
        "subs" => "channels that the connection is subscribed to, with options",
        "override" => "options of the subscription other than those of its namespace",
        "meta" => "data about the connection for hooks; clients do not see it",
        "labels" => "labels of the connection, for hooks",
        "caps" => "what the client may do in channels besides what their namespaces allow",
        "allow" => "what the client may do in the channel besides what its namespace allows",
        "names" => "names that are registered for the connection",
        "groups" => "groups that the connection joins",
        "register" => "names that the client may register by itself, by scope",
        _ => "not read, unless `user_id_claim`, `meta_from_claim` or `labels_from_claim` names it",
    };
    let is_time = matches!(claim, "exp" | "nbf" | "iat") || claim == "expire_at" && value.as_f64() != Some(0.0);
    match value.as_f64().filter(|_| is_time) {
        Some(seconds) => format!("{}: {meaning}", time_words(seconds, now_s)),
        None => meaning.to_owned(),
    }
}

/// Returns a time in UTC, and its distance from now.
fn time_words(seconds: f64, now_s: u64) -> String {
    let apart = seconds - now_s as f64;
    let distance = match apart < 0.0 {
        true => format!("{} ago", shown_seconds(-apart)),
        false => format!("in {}", shown_seconds(apart)),
    };
    if !(0.0..=LAST_S).contains(&seconds) {
        return format!("not a plausible time ({distance}; milliseconds instead of seconds?)");
    }
    // The cast is safe: the number is in range.
    let time = rfc3339(seconds as u64 * 1_000);
    format!("{} UTC ({distance})", time.split('.').next().unwrap_or_default().replace('T', " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_in_words() {
        let now_s = 1_795_359_600;
        for (claim, value, expected) in [
            ("exp", Value::from(now_s + 60), "2026-11-22 15:01:00 UTC (in 60 s): the token is refused from then on"),
            ("nbf", Value::from(now_s - 1), "2026-11-22 14:59:59 UTC (1 s ago): the token is refused before"),
            (
                "exp",
                Value::from(now_s as f64 + 0.5),
                "2026-11-22 15:00:00 UTC (in 0 s): the token is refused from then on",
            ),
            (
                "expire_at",
                Value::from(0),
                "when the connection or the subscription ends, if not at `exp`; 0 = it does not end",
            ),
            ("exp", Value::from("x"), "the token is refused from then on"),
        ] {
            assert_eq!(words_of(claim, &value, now_s), expected);
        }
        let in_ms = words_of("exp", &Value::from(now_s * 1_000), now_s);
        assert!(in_ms.contains("milliseconds"), "{in_ms}");
        assert!(words_of("exp", &Value::from(-1e300), now_s).contains("ago"));
    }

    #[test]
    fn names_are_short_and_in_quotes() {
        assert_eq!(quoted("a\"\n"), r#""a\"\n""#);
        assert_eq!(quoted(&"ä".repeat(1_000)).chars().count(), NAME_SHOWN + 3);
    }
}
