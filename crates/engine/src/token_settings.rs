//! The settings of tokens: keys, issuers, audiences, and which claim contains the user. Names and defaults are those of
//! Centrifugo 6 where it has them.

use regex::Regex;
use serde::{Deserialize, Serialize};

use crate::hook::ClientTlsSettings;
use crate::setting::{Filled, Key, Misfit, SettingValue, SettingsTable, ValueKind, WrittenValue, described, fill};

settings! {
    /// How JSON Web Tokens are verified: with keys written here, with the keys of one endpoint, or with those of
    /// several issuers. A token is valid if a key verifies it with one of that key's own algorithms.
    pub struct TokenSettings {
        /// Secret for tokens signed with HS256, HS384 or HS512. It is used as text.
        key hmac_secret_key: String = "", ValueKind::Secret;
        /// The previous value of `hmac_secret_key`. Tokens signed with it are accepted too.
        key hmac_previous_secret_key: String = "", ValueKind::Secret;
        /// Until when `hmac_previous_secret_key` is accepted, Unix seconds; 0 = for ever.
        key hmac_previous_secret_key_valid_until: u64 = 0;
        /// Public key for tokens signed with RS256, RS384, RS512, PS256, PS384 or PS512: PEM, base64 of it, or the path
        /// of a file.
        key rsa_public_key: String = "", ValueKind::Pem;
        /// Public key for tokens signed with ES256, ES384 or ES512, depending on its curve; written as
        /// `rsa_public_key`.
        key ecdsa_public_key: String = "", ValueKind::Pem;
        /// Public key for tokens signed with EdDSA (Ed25519); written as `rsa_public_key`.
        own eddsa_public_key: String = "", ValueKind::Pem;
        /// Address of a JSON Web Key Set, `https://…`, whose keys verify tokens by their `kid`. If it is set, the keys
        /// written in this section are ignored. `{{name}}` stands for the group with this name in `issuer_regex` or
        /// `audience_regex`.
        key jwks_public_endpoint: String = "";
        /// Allows an `http://` address of another machine in `jwks_public_endpoint`. An attacker on the network path
        /// can then forge tokens.
        key insecure_skip_jwks_endpoint_safety_check: bool = false;
        /// Several issuers of tokens, each with its own keys.
        section jwks: TokenJwksSettings = TokenJwksSettings::default();
        /// If set, the `aud` claim must contain this audience.
        key audience: String = "";
        /// If set, one audience in the `aud` claim must match this expression as a whole. Cannot be combined with
        /// `audience`.
        key audience_regex: Option<Regex> = None;
        /// If set, the `iss` claim must equal this issuer.
        key issuer: String = "";
        /// If set, the whole `iss` claim must match this expression. Cannot be combined with `issuer`.
        key issuer_regex: Option<Regex> = None;
        /// The claim that contains the user, instead of `sub`. A number becomes text. A token without this claim is
        /// refused.
        key user_id_claim: String = "";
        /// Claims that become fields of `meta`: a list of tables with `key`, the field, and `value`, the dotted path of
        /// the claim. Claims that a token does not have are skipped.
        key meta_from_claim: ClaimPaths = (), ValueKind::ClaimPaths;
        /// Claims that become labels of the connection, in addition to the token's `labels`; written as
        /// `meta_from_claim`. A value that is not text becomes its JSON.
        key labels_from_claim: ClaimPaths = (), ValueKind::ClaimPaths;
    }
}

impl TokenSettings {
    /// Whether there is any key that verifies tokens.
    pub fn has_keys(&self) -> bool {
        self.jwks.enabled || !self.jwks_public_endpoint.is_empty() || self.has_written_keys()
    }

    /// Whether a key is written in the settings themselves.
    pub fn has_written_keys(&self) -> bool {
        let TokenSettings { hmac_secret_key, hmac_previous_secret_key, rsa_public_key, .. } = self;
        [hmac_secret_key, hmac_previous_secret_key, rsa_public_key, &self.ecdsa_public_key, &self.eddsa_public_key]
            .iter()
            .any(|key| !key.is_empty())
    }
}

settings! {
    /// Several issuers of tokens.
    pub struct TokenJwksSettings {
        /// Tokens are verified only with the keys of `providers`. Keys for tokens that are written in the section of
        /// tokens itself are ignored with a warning. The node does not start if that section sets
        /// `jwks_public_endpoint`, or a key for the audience, the issuer or the claims: set these for each provider.
        key enabled: bool = false;
        /// The configured issuers.
        plain providers: Vec<TokenProvider> = Vec::new();
    }
}

/// An issuer with a name.
#[derive(Debug, Clone, Default)]
pub struct TokenProvider {
    /// The name of the issuer.
    pub name: String,
    /// The keys and claims of the issuer.
    pub options: ProviderOptions,
}

settings! {
    /// An issuer of tokens. A token belongs to the issuer whose `issuer` and `audience` match its `iss` and `aud`;
    /// otherwise to the issuer that matches its `iss` and has no audience.
    pub struct ProviderOptions {
        /// This issuer is used.
        key enabled: bool = false;
        /// Address of the issuer's JSON Web Key Set, `https://…`. Empty: a key that is written in this section verifies
        /// the issuer's tokens.
        key endpoint: String = "";
        /// Allows an `http://` address of another machine in `endpoint`. An attacker on the network path can then forge
        /// tokens.
        own insecure_skip_jwks_endpoint_safety_check: bool = false;
        /// TLS to `endpoint`.
        section tls: ClientTlsSettings = ClientTlsSettings::default();
        /// Secret for the issuer's tokens, written as `client.token.hmac_secret_key`.
        own hmac_secret_key: String = "", ValueKind::Secret;
        /// RSA public key of the issuer, written as `client.token.rsa_public_key`.
        own rsa_public_key: String = "", ValueKind::Pem;
        /// Elliptic-curve public key of the issuer, written as `client.token.ecdsa_public_key`.
        own ecdsa_public_key: String = "", ValueKind::Pem;
        /// Ed25519 public key of the issuer, written as `client.token.eddsa_public_key`.
        own eddsa_public_key: String = "", ValueKind::Pem;
        /// The `iss` claim of the issuer's tokens.
        key issuer: String = "";
        /// A regular expression. The whole `iss` claim must match it. Cannot be combined with `issuer`.
        own issuer_regex: Option<Regex> = None;
        /// An audience that the `aud` claim must contain.
        key audience: String = "";
        /// A regular expression. One audience in the `aud` claim must match it as a whole. Cannot be combined with
        /// `audience`.
        own audience_regex: Option<Regex> = None;
        /// The claim that contains the user, as `client.token.user_id_claim`.
        own user_id_claim: String = "";
        /// Claims that become fields of `meta`, written as `client.token.meta_from_claim`, which is ignored for this
        /// issuer.
        key meta_from_claim: ClaimPaths = (), ValueKind::ClaimPaths;
        /// Claims that become labels, written as `client.token.labels_from_claim`, which is ignored for this issuer.
        key labels_from_claim: ClaimPaths = (), ValueKind::ClaimPaths;
    }
}

impl ProviderOptions {
    /// The same options in the form of the settings of one issuer.
    pub fn token(&self) -> TokenSettings {
        TokenSettings {
            hmac_secret_key: self.hmac_secret_key.clone(),
            rsa_public_key: self.rsa_public_key.clone(),
            ecdsa_public_key: self.ecdsa_public_key.clone(),
            eddsa_public_key: self.eddsa_public_key.clone(),
            jwks_public_endpoint: self.endpoint.clone(),
            insecure_skip_jwks_endpoint_safety_check: self.insecure_skip_jwks_endpoint_safety_check,
            audience: self.audience.clone(),
            audience_regex: self.audience_regex.clone(),
            issuer: self.issuer.clone(),
            issuer_regex: self.issuer_regex.clone(),
            user_id_claim: self.user_id_claim.clone(),
            meta_from_claim: self.meta_from_claim.clone(),
            labels_from_claim: self.labels_from_claim.clone(),
            ..TokenSettings::default()
        }
    }
}

/// Separate settings for subscription tokens, with the same keys as those for connection tokens.
#[derive(Debug, Clone, Default)]
pub struct SubscriptionTokenSettings {
    /// Verify subscription tokens with `token` only; the settings of connection tokens are ignored.
    pub enabled: bool,
    /// How subscription tokens are verified.
    pub token: TokenSettings,
}

const OWN_SECTION: &str = "Subscription tokens are verified with the keys of this section only; `client.token` is \
                           ignored.";

impl SettingsTable for SubscriptionTokenSettings {
    fn visit(&self, visit: &mut dyn FnMut(Key)) {
        visit(described("enabled", bool::KIND, &self.enabled, OWN_SECTION, false));
        self.token.visit(visit);
    }

    fn set(&mut self, path: &str, written: &WrittenValue<'_>) -> Option<Result<Filled, Misfit>> {
        match path {
            "enabled" => Some(fill(&mut self.enabled, bool::KIND, written)),
            _ => self.token.set(path, written),
        }
    }
}

/// A claim that becomes a field of something else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimPath {
    /// The field: letters, digits and `_`, not beginning with a digit.
    pub key: String,
    /// The dotted path of the claim.
    pub value: String,
}

/// Claims that become fields, in the order in which they are written. If two set the same field, the later one counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClaimPaths(pub Vec<ClaimPath>);

impl ClaimPaths {
    fn check(paths: Vec<ClaimPath>) -> Result<Self, Misfit> {
        let is_name = |name: &str| {
            name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') && !name.starts_with(|c: char| !is_head(c))
        };
        if paths.iter().any(|path| path.key.is_empty() || !is_name(&path.key)) {
            return Err(Some("a key that is not letters, digits and _".to_owned()));
        }
        if paths.iter().any(|path| path.value.split('.').any(str::is_empty)) {
            return Err(Some("a value that is not the path of a claim".to_owned()));
        }
        Ok(ClaimPaths(paths))
    }
}

fn is_head(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_'
}

impl SettingValue for ClaimPaths {
    type Literal = ();
    const KIND: ValueKind = ValueKind::ClaimPaths;

    fn of((): ()) -> Self {
        ClaimPaths::default()
    }

    /// A text value is parsed as a JSON list.
    fn read(_: ValueKind, written: &WrittenValue<'_>) -> Result<Self, Misfit> {
        let all = match written {
            WrittenValue::Text("") => Vec::new(),
            WrittenValue::Text(text) => serde_json::from_str(text).map_err(|_| None)?,
            WrittenValue::Nested(json) => serde_json::from_value(json.clone()).map_err(|_| None)?,
            WrittenValue::Texts(texts) if texts.is_empty() => Vec::new(),
            _ => return Err(None),
        };
        ClaimPaths::check(all)
    }

    fn show(&self) -> String {
        serde_json::json!(self.0).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claim_paths_are_read_from_a_list_of_tables_and_checked() {
        let read = |text: &str| ClaimPaths::read(ClaimPaths::KIND, &WrittenValue::Text(text));
        let good = r#"[{"key":"tenant","value":"org.id"},{"key":"_a1","value":"x"}]"#;
        assert_eq!(read(good).map(|paths| paths.show()), Ok(good.to_owned()));
        assert_eq!(read(""), Ok(ClaimPaths::default()));
        for bad in [
            "{}",
            r#"[{"key":"a"}]"#,
            r#"[{"key":"a","value":"b","c":"d"}]"#,
            r#"[{"key":"1a","value":"b"}]"#,
            r#"[{"key":"a-b","value":"b"}]"#,
            r#"[{"key":"","value":"b"}]"#,
            r#"[{"key":"a","value":""}]"#,
            r#"[{"key":"a","value":"b..c"}]"#,
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn keys_are_found_wherever_they_are_written() {
        assert!(!TokenSettings::default().has_keys());
        for path in [
            "hmac_secret_key",
            "hmac_previous_secret_key",
            "rsa_public_key",
            "ecdsa_public_key",
            "eddsa_public_key",
            "jwks_public_endpoint",
        ] {
            let mut settings = TokenSettings::default();
            settings.set(path, &WrittenValue::Text("x")).expect("a key").expect("text");
            assert!(settings.has_keys(), "{path}");
            assert_eq!(settings.has_written_keys(), path != "jwks_public_endpoint", "{path}");
        }
    }

    #[test]
    fn every_option_of_an_issuer_is_part_of_its_tokens_settings() {
        let mut options = ProviderOptions::default();
        for key in options.keys() {
            let text = match key.kind {
                ValueKind::Boolean => "true",
                ValueKind::ClaimPaths => r#"[{"key":"a","value":"b"}]"#,
                _ => "x",
            };
            options.set(&key.path, &WrittenValue::Text(text)).expect("a key").expect("a value of its kind");
        }
        let token = options.token().keys();
        for key in options.keys() {
            let name = if key.path == "endpoint" { "jwks_public_endpoint" } else { &key.path };
            let is_elsewhere = key.path == "enabled" || key.path.starts_with("tls.");
            let found = token.iter().find(|of| of.path == name).map(|of| &of.default);
            assert!(is_elsewhere || found == Some(&key.default), "{}: {found:?}", key.path);
        }
    }
}
