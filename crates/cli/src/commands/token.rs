//! `touchline token`: prints or checks a JSON Web Token (RFC 7519). It signs with HS256.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value as Json, json};
use touchline_server::{RefusalReport, Settings, TokenError, TokenSettings, TokenTrial, TokenVerdict, shown_seconds};

use crate::arguments::TokenArguments;
use crate::client::api::configured;

/// Prints only the token, so that `$(touchline token …)` works.
pub(crate) fn run(arguments: &TokenArguments) -> Result<ExitCode> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock is before 1970")?;
    if let Some(token) = &arguments.check {
        return check(token, arguments, now);
    }
    let settings = token_settings(arguments)?;
    let token = sign(&settings.hmac_secret_key, &claims(arguments, &settings, now)?);
    writeln!(std::io::stdout(), "{token}")?;
    Ok(ExitCode::SUCCESS)
}

/// Explains step by step whether a server would accept a token.
fn check(token: &str, arguments: &TokenArguments, now: Duration) -> Result<ExitCode> {
    let piped;
    let token = if token == "-" {
        piped = std::io::read_to_string(std::io::stdin()).context("failed to read the token")?;
        // The line break is not part of the token. Other spaces are, because the server would receive them.
        piped.trim_end_matches(['\r', '\n'])
    } else {
        token
    };
    let settings = match &arguments.secret {
        Some(secret) => {
            let mut settings = Settings::default();
            settings.client.token.hmac_secret_key.clone_from(secret);
            settings
        }
        None => configured(arguments.config.as_deref())?,
    };
    let trial = TokenTrial::new(settings)?;
    let TokenVerdict { steps, outcome } = trial.check(token, arguments.channel.is_some(), now.as_secs());
    for (section, fault) in trial.faults() {
        writeln!(std::io::stdout(), "the keys of {section} cannot be fetched: {fault}")?;
    }
    for step in steps {
        let word = match step.passed {
            Some(true) => "ok",
            Some(false) => "no",
            None => "-",
        };
        writeln!(std::io::stdout(), "{:<9}  {word:<2}  {}", step.stage.name(), step.text)?;
    }
    let claims = claims_of(token);
    let user = match outcome {
        Ok(user) => user,
        Err(TokenError::Expired) => {
            let ago = now.as_secs_f64() - claims["exp"].as_f64().unwrap_or_default();
            bail!("no: exp of the token has passed {} ago", shown_seconds(ago))
        }
        Err(TokenError::Invalid(cause)) => bail!("no: {cause}"),
        Err(TokenError::Unavailable(cause)) => bail!("not known: {cause}"),
    };
    let named = claims["channel"].as_str().unwrap_or_default();
    if let Some(channel) = arguments.channel.as_deref().filter(|channel| *channel != named) {
        bail!("no: the token is for channel {named:?}, not for {channel:?}");
    }
    // A secret alone does not say which channels and scopes exist.
    if arguments.secret.is_none() {
        let channel = arguments.channel.as_deref().map(|channel| (channel, user.clone()));
        if let Some(RefusalReport { code, cause, channel, .. }) =
            trial.connect(token, channel, now.as_millis() as u64)?
        {
            let of = if channel.is_empty() { String::new() } else { format!(": channel {channel:?}") };
            bail!("no: {cause}{of} ({code})");
        }
    }
    let end = claims["exp"]
        .as_f64()
        .map_or("never expires".to_owned(), |exp| format!("expires in {}", shown_seconds(exp - now.as_secs_f64())));
    // A hundred years.
    if claims["exp"].as_f64().is_some_and(|exp| exp - now.as_secs_f64() > 3.2e9) {
        writeln!(std::io::stdout(), "warning: exp counts seconds since 1970, and this one looks like milliseconds")?;
    }
    let who = if user.is_empty() { "the anonymous user".to_owned() } else { format!("user {user:?}") };
    writeln!(std::io::stdout(), "not checked: bans of the user and of the token, which only running nodes know")?;
    writeln!(std::io::stdout(), "good: {who}, {end}")?;
    Ok(ExitCode::SUCCESS)
}

/// The claims of a token, without a check of the signature. Null if the text is not a token.
fn claims_of(token: &str) -> Json {
    let claims = token.split('.').nth(1).and_then(|part| URL_SAFE_NO_PAD.decode(part.trim_end_matches('=')).ok());
    claims.and_then(|claims| serde_json::from_slice(&claims).ok()).unwrap_or_default()
}

fn token_settings(arguments: &TokenArguments) -> Result<TokenSettings> {
    if let Some(secret) = &arguments.secret {
        return Ok(TokenSettings { hmac_secret_key: secret.clone(), ..TokenSettings::default() });
    }
    let client = configured(arguments.config.as_deref())?.client;
    let has_own_keys = arguments.channel.is_some() && client.subscription_token.enabled;
    let settings = if has_own_keys { client.subscription_token.token } else { client.token };
    if settings.hmac_secret_key.is_empty() {
        bail!(
            "no secret to sign with: give --secret, --config with client.token.hmac_secret_key, \
             or TOUCHLINE_CLIENT_TOKEN_HMAC_SECRET_KEY"
        );
    }
    Ok(settings)
}

/// The claims for the arguments. `--claims` overrides all others.
fn claims(arguments: &TokenArguments, settings: &TokenSettings, now: Duration) -> Result<Json> {
    let mut claims = Map::new();
    claims.insert("sub".into(), json!(arguments.user));
    claims.insert("iat".into(), json!(now.as_secs()));
    if !arguments.exp.is_zero() {
        claims.insert("exp".into(), json!((now + arguments.exp).as_secs()));
    }
    let from_settings =
        [("aud", Some(&settings.audience)), ("iss", Some(&settings.issuer)), ("channel", arguments.channel.as_ref())];
    for (name, value) in from_settings {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            claims.insert(name.into(), json!(value));
        }
    }
    if let Some(more) = &arguments.claims {
        let more: Map<String, Json> = serde_json::from_str(more).context("--claims must be a JSON object")?;
        claims.extend(more);
    }
    Ok(Json::Object(claims))
}

fn sign(secret: &str, claims: &Json) -> String {
    let head = URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256","typ":"JWT"}"#);
    let signed = format!("{head}.{}", URL_SAFE_NO_PAD.encode(claims.to_string()));
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let signature = hmac::sign(&key, signed.as_bytes());
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(claims: Option<&str>) -> TokenArguments {
        TokenArguments {
            user: "42".into(),
            check: None,
            exp: Duration::from_secs(3_600),
            channel: None,
            claims: claims.map(str::to_owned),
            secret: Some("secret".into()),
            config: None,
        }
    }

    #[test]
    fn a_token_verifies_with_its_secret_only() {
        let token = sign("secret", &json!({"sub": "42"}));
        let (signed, signature) = token.rsplit_once('.').expect("it has three parts");
        let signature = URL_SAFE_NO_PAD.decode(signature).expect("it is base64");
        let verifies = |secret: &str| {
            hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes()), signed.as_bytes(), &signature).is_ok()
        };
        assert!(verifies("secret") && !verifies("guess"));
    }

    /// Made with Python's `hmac` and `base64`.
    #[test]
    fn a_token_is_what_others_make_of_the_same_claims() {
        let token = sign("secret", &json!({"sub": "42"}));
        assert_eq!(
            token,
            "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiI0MiJ9.79CVgMIG_JB921dVUeJDWNJubJojFodH3-XtC_1C408"
        );
    }

    #[test]
    fn claims_are_those_that_were_asked_for() {
        let now = Duration::from_secs(1_000);
        let settings = TokenSettings { audience: "fans".into(), ..TokenSettings::default() };
        let found = claims(&arguments(None), &settings, now).expect("claims are fine");
        assert_eq!(found, json!({"sub": "42", "iat": 1_000, "exp": 4_600, "aud": "fans"}));
        let mut subscription = arguments(Some(r#"{"info": {"name": "Ann"}, "exp": 5000}"#));
        subscription.channel = Some("match:live".into());
        let found = claims(&subscription, &settings, now).expect("claims are fine");
        assert_eq!(
            found,
            json!({
                "sub": "42", "iat": 1_000, "exp": 5_000,
                "aud": "fans", "channel": "match:live", "info": {"name": "Ann"},
            })
        );
        let forever = TokenArguments { exp: Duration::ZERO, ..arguments(None) };
        assert_eq!(claims(&forever, &settings, now).expect("claims are fine").get("exp"), None);
        assert!(claims(&arguments(Some("[1]")), &settings, now).is_err());
    }
}
