//! Random secrets for commands.

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use touchline_config::{DevelopmentPurpose, DevelopmentSecrets};

/// New random secrets for one run of `serve --dev` or `serve --ephemeral`. `is_open`: whether clients of other machines
/// are accepted.
///
/// # Errors
/// When the system provides no random bytes.
pub(crate) fn development_secrets(is_open: bool, purpose: DevelopmentPurpose) -> anyhow::Result<DevelopmentSecrets> {
    Ok(DevelopmentSecrets { api_key: random_secret()?, token_secret: random_secret()?, is_open, purpose })
}

/// 32 random bytes as text that needs no quotes in a shell or a file. It does not begin with a hyphen, because after
/// `--key` it would be parsed as an option.
///
/// # Errors
/// When the system provides no random bytes.
pub(crate) fn random_secret() -> anyhow::Result<String> {
    loop {
        let mut bytes = [0; 32];
        aws_lc_rs::rand::fill(&mut bytes).ok().context("failed to get random bytes from the system")?;
        let text = URL_SAFE_NO_PAD.encode(bytes);
        if !text.starts_with('-') {
            return Ok(text);
        }
    }
}

#[test]
fn a_secret_can_be_typed_behind_an_option() {
    // One in 64 texts of these letters begins with a hyphen.
    for _ in 0..2_000 {
        let secret = random_secret().expect("the system has randomness");
        assert!(secret.len() == 43 && !secret.starts_with('-'), "{secret}");
    }
}
