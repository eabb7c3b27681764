//! The reasons why a token is refused, with the step that found them.

use touchline_engine::TokenError;

pub(super) const NO_TOKEN: &str =
    "what was sent as a token is not a JWT: three parts of base64url are expected (is it the token alone?)";

/// A step in the check of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenStage {
    /// Three parts of base64, and a readable header with a known algorithm.
    Format,
    /// The issuer that the token names, if several are configured.
    Provider,
    /// A key that may have signed the token.
    Key,
    /// Whether that key may be used with the algorithm in the header.
    Algorithm,
    /// The signature of the token.
    Signature,
    /// The times in the claims `exp` and `nbf`.
    Times,
    /// The issuer in the claim `iss`.
    Issuer,
    /// The audience in the claim `aud`.
    Audience,
    /// The types of all other claims, and the user.
    Claims,
}

/// Why a token is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TokenFault {
    /// The step that the token fails.
    pub(super) stage: TokenStage,
    /// The error that the client receives.
    pub(super) error: TokenError,
}

impl TokenFault {
    /// The fault of a token that can never become valid.
    pub(super) fn invalid(stage: TokenStage, cause: &'static str) -> Self {
        TokenFault { stage, error: TokenError::Invalid(cause) }
    }

    /// The fault of a token whose key is not available now.
    pub(super) fn unavailable(cause: &'static str) -> Self {
        TokenFault { stage: TokenStage::Key, error: TokenError::Unavailable(cause) }
    }

    /// Moves the fault to another step. A fault of the format stays in its step.
    pub(super) fn at(self, stage: TokenStage) -> Self {
        let stage = if self.stage == TokenStage::Format { self.stage } else { stage };
        TokenFault { stage, ..self }
    }
}
