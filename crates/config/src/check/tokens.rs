//! Checks the settings of tokens: keys that can verify tokens, and issuers that can be distinguished.

use std::collections::HashSet;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use touchline_engine::hook::ClientTlsSettings;
use touchline_engine::{TokenProvider, TokenSettings};

use crate::finding::Finding;
use crate::item_path::{is_key_name, item_path};
use crate::pem::inline_pem;

/// Minimum bytes of an HMAC secret that is as strong as HS256 (RFC 7518, 3.2).
const SECRET_LEN_MIN: usize = 32;
/// From this value on, a time in seconds was probably written in milliseconds: it is in the year 5138.
const MILLISECONDS: u64 = 100_000_000_000;

/// Checks a section with settings of tokens.
pub(super) fn check(section: &str, token: &TokenSettings, findings: &mut Vec<Finding>) {
    keys(section, token, findings);
    claims(section, token, findings);
    if token.hmac_previous_secret_key_valid_until >= MILLISECONDS {
        let text = "is after the year 5000; the time is in seconds, not milliseconds";
        findings.push(Finding::warning(format!("{section}.hmac_previous_secret_key_valid_until: {text}"), None));
    }
    if is_only_over(token) {
        let text = "its time (hmac_previous_secret_key_valid_until) is over, and there is no other key";
        findings.push(Finding::error(format!("{section}.hmac_previous_secret_key: {text}"), None));
    }
    let is_plain = token.insecure_skip_jwks_endpoint_safety_check;
    let (endpoint, no_tls) = (&token.jwks_public_endpoint, ClientTlsSettings::default());
    unproven_source(section, "jwks_public_endpoint", endpoint, is_plain, &no_tls, findings);
    let jwks = &token.jwks;
    let has_endpoint = !token.jwks_public_endpoint.is_empty();
    if jwks.enabled && has_endpoint {
        let text = format!("{section}.jwks_public_endpoint: cannot be combined with {section}.jwks: keep one of them");
        findings.push(Finding::error(text, None));
    }
    if (jwks.enabled || has_endpoint) && token.has_written_keys() {
        let text = format!("{section}: keys in this section have no effect beside those of a JSON Web Key Set");
        findings.push(Finding::warning(text, None));
    }
    if jwks.enabled {
        providers(section, token, findings);
    } else if !jwks.providers.is_empty() {
        let text = format!("{section}.jwks.providers: have no effect while {section}.jwks.enabled is false");
        findings.push(Finding::warning(text, None));
    }
}

/// Whether the only configured key is the previous secret, and its time is over.
fn is_only_over(token: &TokenSettings) -> bool {
    let only = TokenSettings { hmac_previous_secret_key: String::new(), ..token.clone() };
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let until_s = token.hmac_previous_secret_key_valid_until;
    token.has_written_keys() && !only.has_keys() && until_s > 0 && until_s < now_s
}

/// Warns of a key set endpoint that an attacker on the network path could impersonate, and so forge tokens.
pub(super) fn unproven_source(
    section: &str,
    key: &str,
    endpoint: &str,
    may_be_plain: bool,
    tls: &ClientTlsSettings,
    findings: &mut Vec<Finding>,
) {
    if tls.insecure_skip_verify && !endpoint.is_empty() {
        let text = "an attacker on the path to the endpoint can replace the keys and forge tokens";
        findings.push(Finding::warning(format!("{section}.tls.insecure_skip_verify: {text}"), None));
    }
    // An endpoint on this machine is safe. Others over http:// are refused by the server without the switch.
    let host = endpoint.strip_prefix("http://").map(|rest| rest.split(['/', '?']).next().unwrap_or_default());
    let is_here = |host: &str| {
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
        name == "localhost" || name == "[::1]" || name.starts_with("127.")
    };
    if may_be_plain && host.is_some_and(|host| !is_here(host)) {
        let text = "is http:// on another machine: an attacker on the path can replace the keys and forge tokens";
        findings.push(Finding::warning(format!("{section}.{key}: {text}"), None));
    }
}

/// Checks the keys in the settings.
fn keys(section: &str, token: &TokenSettings, findings: &mut Vec<Finding>) {
    let secrets =
        [("hmac_secret_key", &token.hmac_secret_key), ("hmac_previous_secret_key", &token.hmac_previous_secret_key)];
    for (name, secret) in secrets {
        if !secret.is_empty() && secret.len() < SECRET_LEN_MIN {
            let text =
                format!("{section}.{name}: shorter than {SECRET_LEN_MIN} bytes, so tokens can be forged by guessing");
            findings.push(Finding::warning(text, None));
        }
    }
    for (name, value) in [
        ("rsa_public_key", &token.rsa_public_key),
        ("ecdsa_public_key", &token.ecdsa_public_key),
        ("eddsa_public_key", &token.eddsa_public_key),
    ] {
        // A value that is not PEM is the path of a file, which the server reads.
        let is_other = inline_pem(value).is_some_and(|pem| !std::str::from_utf8(&pem).is_ok_and(is_public_key));
        if is_other {
            let text = format!(
                "{section}.{name}: expected a public key in PEM (\"-----BEGIN PUBLIC KEY-----\" …), \
                 found something else"
            );
            findings.push(Finding::error(text, None));
        }
    }
}

/// Checks the settings of claims.
fn claims(section: &str, token: &TokenSettings, findings: &mut Vec<Finding>) {
    let mut error = |text: String| findings.push(Finding::error(format!("{section}.{text}"), None));
    for (name, text, regex) in
        [("audience", &token.audience, &token.audience_regex), ("issuer", &token.issuer, &token.issuer_regex)]
    {
        if !text.is_empty() && regex.is_some() {
            error(format!("{name}_regex: cannot be combined with {name}: keep one of them"));
        }
    }
    let claim = &token.user_id_claim;
    if !claim.bytes().all(|b| b.is_ascii_alphabetic() || b == b'_') {
        error("user_id_claim: must be the name of a claim, of letters and \"_\"".to_owned());
    }
}

/// Checks the names of issuers, also where the section is off.
pub(super) fn names(section: &str, token: &TokenSettings, findings: &mut Vec<Finding>) {
    let mut names = HashSet::new();
    for (index, TokenProvider { name, .. }) in token.jwks.providers.iter().enumerate() {
        let path = item_path(&format!("{section}.jwks.providers"), index, name);
        let mut error = |text: &str| findings.push(Finding::error(format!("{path}.name: {text}"), None));
        if !is_key_name(name) {
            error("expected two or more of letters, digits and \"_\"");
        }
        if !names.insert(name) {
            error("used twice");
        }
    }
}

fn providers(section: &str, token: &TokenSettings, findings: &mut Vec<Finding>) {
    let mut error = |text: String| findings.push(Finding::error(format!("{section}.{text}"), None));
    for (name, is_set) in [
        ("audience", !token.audience.is_empty()),
        ("audience_regex", token.audience_regex.is_some()),
        ("issuer", !token.issuer.is_empty()),
        ("issuer_regex", token.issuer_regex.is_some()),
        ("user_id_claim", !token.user_id_claim.is_empty()),
        ("meta_from_claim", !token.meta_from_claim.0.is_empty()),
        ("labels_from_claim", !token.labels_from_claim.0.is_empty()),
    ] {
        if is_set {
            error(format!("{name}: has no effect, because {section}.jwks is enabled: set it in its providers"));
        }
    }
    let enabled: Vec<&TokenProvider> = token.jwks.providers.iter().filter(|of| of.options.enabled).collect();
    if enabled.is_empty() {
        error("jwks.providers: none is enabled, so no token could be verified".to_owned());
    }
    let mut served = HashSet::new();
    for TokenProvider { name, options } in enabled {
        let token = options.token();
        let path = format!("jwks.providers[{name}]");
        match (options.endpoint.is_empty(), token.has_written_keys()) {
            (true, false) => error(format!("{path}.endpoint: missing, and there is no key")),
            (false, true) => error(format!("{path}.endpoint: cannot be combined with a key: keep one of them")),
            _ => {}
        }
        if options.issuer.is_empty() && options.issuer_regex.is_none() {
            error(format!("{path}.issuer: missing; it identifies the tokens of this issuer"));
        }
        let pattern = |regex: &Option<_>| regex.as_ref().map(ToString::to_string);
        let (issuer, audience) = (pattern(&options.issuer_regex), pattern(&options.audience_regex));
        if !served.insert((options.issuer.as_str(), issuer, options.audience.as_str(), audience)) {
            error(format!("{path}.audience: another issuer has the same issuer and audience"));
        }
    }
    for TokenProvider { name, options } in token.jwks.providers.iter().filter(|of| of.options.enabled) {
        let (section, token) = (format!("{section}.jwks.providers[{name}]"), options.token());
        keys(&section, &token, findings);
        claims(&section, &token, findings);
        let is_plain = token.insecure_skip_jwks_endpoint_safety_check;
        unproven_source(&section, "endpoint", &options.endpoint, is_plain, &options.tls, findings);
    }
}

/// Whether a text has the form of a public key in PEM (RFC 7468). The server parses the key itself.
fn is_public_key(pem: &str) -> bool {
    let Some(rest) = pem.trim().strip_prefix("-----BEGIN ") else { return false };
    let Some((label, rest)) = rest.split_once("-----") else { return false };
    let Some(body) = rest.trim_end().strip_suffix(&format!("-----END {label}-----")) else { return false };
    let body: String = body.split_whitespace().collect();
    label.ends_with("PUBLIC KEY") && !body.is_empty() && STANDARD.decode(body).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_public_key_in_pem_passes() {
        let good = "-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE\nAAAA\n-----END PUBLIC KEY-----\n";
        assert!(is_public_key(good));
        for bad in [
            "",
            "key",
            "/etc/key.pem",
            &good.replace("PUBLIC", "PRIVATE"),
            &good.replace("AAAA", "?"),
            &good.replace("-----END", "END"),
        ] {
            assert!(!is_public_key(bad), "{bad}");
        }
    }
}
