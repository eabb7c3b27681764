//! Why a token is not taken, and at which step that was found.

use touchline_engine::TokenError;

pub(super) const NO_TOKEN: &str =
    "what was sent as a token is not a JWT: three parts of base64url are expected (is it the token alone?)";

/// A step in which a token is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenStage {
    /// Three parts of base64, and a header that is understood, with an algorithm that is known.
    Format,
    /// Which issuer it is of, where there are several.
    Provider,
    /// A key that may have signed it.
    Key,
    /// Whether the algorithm of the header is one of that key.
    Algorithm,
    /// The signature.
    Signature,
    /// `exp` and `nbf`.
    Times,
    /// `iss`.
    Issuer,
    /// `aud`.
    Audience,
    /// The types of all other claims, and the user.
    Claims,
}

/// Why a token is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TokenFault {
    /// The step that it fails.
    pub(super) stage: TokenStage,
    /// What the client is told.
    pub(super) error: TokenError,
}

impl TokenFault {
    /// A token that is never good.
    pub(super) fn invalid(stage: TokenStage, cause: &'static str) -> Self {
        TokenFault { stage, error: TokenError::Invalid(cause) }
    }

    /// A token whose key cannot be had now.
    pub(super) fn unavailable(cause: &'static str) -> Self {
        TokenFault { stage: TokenStage::Key, error: TokenError::Unavailable(cause) }
    }

    /// The same fault, found at an earlier step than usual. What is wrong with the format stays so.
    pub(super) fn at(self, stage: TokenStage) -> Self {
        let stage = if self.stage == TokenStage::Format { self.stage } else { stage };
        TokenFault { stage, ..self }
    }
}
