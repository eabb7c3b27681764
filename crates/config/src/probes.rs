//! What only a server can tell of settings.

use touchline_engine::ClientSettings;

use crate::settings::Settings;

/// What only the server itself can tell of settings.
#[derive(Clone, Copy)]
pub struct Probes {
    /// Why the public keys of tokens can't be used, beginning with the key; `None` = they can.
    pub token_keys: fn(&ClientSettings) -> Option<String>,
    /// Why a node with these settings would not start, one text for each fault, beginning with the key.
    pub start: fn(&Settings) -> Vec<String>,
}

impl Probes {
    /// Probes that find no fault, for those who read a configuration that no server will use.
    pub const NONE: Probes = Probes { token_keys: |_| None, start: |_| Vec::new() };
}
