//! Tokens and keys: JSON Web Tokens (RFC 7519) of clients and of callers of the server API, the keys that verify them,
//! and the keys of the server API.
//!
//! 1. `token.rs`: the parts of a token; `verifier.rs`: the checks of a token, step by step.
//! 2. `issuer.rs`: the keys of an issuer; `rules.rs`: the rules for its claims.
//! 3. `key_set.rs`: keys that are fetched; `fetch.rs`: the thread that fetches them.
//! 4. `api_access.rs`: the callers of the server API and their rights.

mod access_control;
mod api_access;
mod fault;
mod fetch;
mod issuer;
mod jwk;
mod key;
mod key_set;
mod report;
mod rules;
mod template;
#[cfg(test)]
mod tests;
mod token;
mod verifier;

pub(crate) use self::access_control::AccessControl;
pub(crate) use self::api_access::{ApiAccess, ApiCaller, ApiRights, Denied, NamedChannels};
pub use self::fault::TokenStage;
pub(crate) use self::fetch::{KeyFetcher, fetch_once};
pub(crate) use self::key_set::KeySets;
pub(crate) use self::report::token_parts;
pub use self::report::{TokenStep, TokenVerdict, shown_seconds};
pub(crate) use self::verifier::TokenVerifier;
pub use self::verifier::check_token_keys;
