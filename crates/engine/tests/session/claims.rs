//! The tokens of stories.

use serde::de::DeserializeOwned;
use touchline_engine::session::SessionSigner;
use touchline_engine::{ConnectionClaims, SubscriptionClaims, TokenError, Verifier};
use touchline_registry::OwnerId;

/// A token whose text is its claims. It verifies nothing itself: the session detects expiry, or the token states it.
pub(crate) struct Claims;

impl Claims {
    fn read<T: DeserializeOwned>(token: &str) -> Result<T, TokenError> {
        match token {
            "expired" => Err(TokenError::Expired),
            "early" => Err(TokenError::Unavailable("the keys have not come yet")),
            _ => {
                serde_json::from_str(&token.replace('\'', "\"")).map_err(|_| TokenError::Invalid("the token is forged"))
            }
        }
    }
}

impl Verifier for Claims {
    fn connection(&self, token: &str, _: u64) -> Result<ConnectionClaims, TokenError> {
        Self::read(token)
    }

    fn subscription(&self, token: &str, _: u64) -> Result<SubscriptionClaims, TokenError> {
        Self::read(token)
    }
}

impl SessionSigner for Claims {
    fn sign(&self, client: OwnerId) -> String {
        format!("seal of {}", client.0[0])
    }
}
