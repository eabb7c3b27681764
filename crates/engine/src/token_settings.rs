//! The settings of tokens: keys, issuers, audiences, and what of a token's claims is the user. Names and defaults are
//! those of Centrifugo 6 where it has them.

use regex::Regex;
use serde::{Deserialize, Serialize};

use crate::hook::ClientTlsSettings;
use crate::setting::{Filled, Key, Misfit, SettingValue, SettingsTable, ValueKind, WrittenValue, described, fill};

settings! {
    /// How JSON Web Tokens are verified: by keys that are written here, by those of one endpoint, or by those of
    /// several issuers. A token is valid if a key verifies it by one of that key's own algorithms.
    pub struct TokenSettings {
        /// Secret of tokens signed with HS256, HS384 or HS512. It is used as text.
        key hmac_secret_key: String = "", ValueKind::Secret;
        /// The secret before `hmac_secret_key`: tokens that are signed with it are good too.
        key hmac_previous_secret_key: String = "", ValueKind::Secret;
        /// Until when `hmac_previous_secret_key` counts, Unix seconds; 0 is for ever.
        key hmac_previous_secret_key_valid_until: u64 = 0;
        /// Public key of tokens signed with RS256, RS384, RS512, PS256, PS384 or PS512: PEM, base64 of it, or the path
        /// of a file.
        key rsa_public_key: String = "", ValueKind::Pem;
        /// Public key of tokens signed with ES256, ES384 or ES512, by its curve; written as `rsa_public_key`.
        key ecdsa_public_key: String = "", ValueKind::Pem;
        /// Public key of tokens signed with EdDSA (Ed25519); written as `rsa_public_key`.
        own eddsa_public_key: String = "", ValueKind::Pem;
        /// Address of a JSON Web Key Set, `https://…`, whose keys verify tokens by their `kid`. Then keys that are
        /// written in this section do not count. `{{name}}` stands for the group of this name in `issuer_regex` or
        /// `audience_regex`.
        key jwks_public_endpoint: String = "";
        /// `jwks_public_endpoint` may be `http://` on another machine too: who is on the way to it can forge tokens.
        key insecure_skip_jwks_endpoint_safety_check: bool = false;
        /// Several issuers.
        section jwks: TokenJwksSettings = TokenJwksSettings::default();
        /// If set, the `aud` claim must contain it.
        key audience: String = "";
        /// If set, the whole of an audience in the `aud` claim must match it. Not beside `audience`.
        key audience_regex: Option<Regex> = None;
        /// If set, the `iss` claim must equal it.
        key issuer: String = "";
        /// If set, the whole `iss` claim must match it. Not beside `issuer`.
        key issuer_regex: Option<Regex> = None;
        /// The claim that is the user, instead of `sub`; a number becomes text. A token without it is refused.
        key user_id_claim: String = "";
        /// Claims that become fields of `meta`: a list of tables with `key`, the field, and `value`, the path of the
        /// claim with dots. Claims that a token lacks are passed over.
        key meta_from_claim: ClaimPaths = (), ValueKind::ClaimPaths;
        /// Claims that become labels of the connection, over the `labels` of the token; written as `meta_from_claim`.
        /// What is no text becomes its JSON.
        key labels_from_claim: ClaimPaths = (), ValueKind::ClaimPaths;
    }
}

impl TokenSettings {
    /// Whether some key verifies tokens.
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
        /// Tokens are verified by the keys of `providers`, and by nothing else of the section around this one.
        key enabled: bool = false;
        /// The issuers.
        plain providers: Vec<TokenProvider> = Vec::new();
    }
}

/// An issuer that has a name.
#[derive(Debug, Clone, Default)]
pub struct TokenProvider {
    /// Its name.
    pub name: String,
    /// What is known of it.
    pub options: ProviderOptions,
}

settings! {
    /// An issuer of tokens. A token is of the issuer that its `iss` and `aud` name, else of that which its `iss` names
    /// and which has no audience.
    pub struct ProviderOptions {
        /// The issuer counts.
        key enabled: bool = false;
        /// Address of its JSON Web Key Set, `https://…`. Empty: a key that is written here verifies its tokens.
        key endpoint: String = "";
        /// `endpoint` may be `http://` on another machine too: who is on the way to it can forge tokens.
        own insecure_skip_jwks_endpoint_safety_check: bool = false;
        /// TLS to `endpoint`.
        section tls: ClientTlsSettings = ClientTlsSettings::default();
        /// Secret of its tokens, as `client.token.hmac_secret_key`.
        own hmac_secret_key: String = "", ValueKind::Secret;
        /// Its public key of RSA, as `client.token.rsa_public_key`.
        own rsa_public_key: String = "", ValueKind::Pem;
        /// Its public key of an elliptic curve, as `client.token.ecdsa_public_key`.
        own ecdsa_public_key: String = "", ValueKind::Pem;
        /// Its public key of Ed25519, as `client.token.eddsa_public_key`.
        own eddsa_public_key: String = "", ValueKind::Pem;
        /// The `iss` claim of its tokens.
        key issuer: String = "";
        /// What the whole `iss` claim of its tokens must match. Not beside `issuer`.
        own issuer_regex: Option<Regex> = None;
        /// What the `aud` claim of its tokens must contain.
        key audience: String = "";
        /// What the whole of an audience in the `aud` claim must match. Not beside `audience`.
        own audience_regex: Option<Regex> = None;
        /// The claim that is the user, as `client.token.user_id_claim`.
        own user_id_claim: String = "";
        /// Claims that become fields of `meta`, as `client.token.meta_from_claim`, which does not count here.
        key meta_from_claim: ClaimPaths = (), ValueKind::ClaimPaths;
        /// Claims that become labels, as `client.token.labels_from_claim`, which does not count here.
        key labels_from_claim: ClaimPaths = (), ValueKind::ClaimPaths;
    }
}

impl ProviderOptions {
    /// The same in the shape of the settings of one issuer.
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

/// Settings of their own for subscription tokens: all of those of connection tokens.
#[derive(Debug, Clone, Default)]
pub struct SubscriptionTokenSettings {
    /// Subscription tokens are verified by `token`, and by nothing of the connection tokens' settings.
    pub enabled: bool,
    /// How they are verified.
    pub token: TokenSettings,
}

const OWN_SECTION: &str = "Subscription tokens are verified by the keys of this section, and by nothing of \
                           `client.token`.";

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
    /// The field: letters, digits and `_`, no digit first.
    pub key: String,
    /// The path of the claim, with dots.
    pub value: String,
}

/// Claims that become fields, in the order in which they are written; of two for one field the later one counts.
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

    /// Text is a JSON list.
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
