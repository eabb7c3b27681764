//! Access control: the token verifier of clients, the callers of the server API, and the keys of both.

use touchline_clock::Clock;
use touchline_config::{GrpcApiSettings, HttpApiSettings};
use touchline_engine::ClientSettings;

use super::api_access::{ApiAccess, FindOperations};
use super::key_set::KeySets;
use super::verifier::TokenVerifier;
use crate::start_error::StartError;

/// Decides which clients may connect, and which callers may use the server API.
pub(crate) struct AccessControl {
    /// Verifies the tokens of clients.
    pub(crate) verifier: TokenVerifier,
    /// Knows the callers of the server API and their rights.
    pub(crate) api: ApiAccess,
    /// The key sets that are fetched.
    pub(crate) key_sets: KeySets,
}

impl AccessControl {
    /// Reads all keys of these settings. Keys at an endpoint are not fetched yet, unless `before` has them.
    ///
    /// # Errors
    /// When a key cannot be used.
    pub(crate) fn new(
        client: &ClientSettings,
        (http_api, grpc_api): (&HttpApiSettings, &GrpcApiSettings),
        find: FindOperations,
        (before, clock): (Option<&AccessControl>, &Clock),
    ) -> Result<Self, StartError> {
        let mut key_sets = KeySets::after(before.map(|before| &before.key_sets), clock);
        let verifier = TokenVerifier::new(client, &mut key_sets)?;
        let api = ApiAccess::new(http_api, find, &mut key_sets)?.with_grpc(grpc_api);
        let api = match before {
            Some(before) => api.count_on(&before.api),
            None => api,
        };
        Ok(AccessControl { verifier, api, key_sets: key_sets.complete() })
    }
}
