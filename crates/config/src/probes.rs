//! Checks of settings that only a server can make.

use touchline_engine::ClientSettings;

use crate::settings::Settings;

/// Checks of settings that only a server can make. The server passes them to [`crate::read`].
#[derive(Clone, Copy)]
pub struct Probes {
    /// Returns why the public keys of tokens cannot be used; the text begins with the configuration key. `None` = they
    /// can be used.
    pub token_keys: fn(&ClientSettings) -> Option<String>,
    /// Returns why a node with these settings would not start, one text for each fault. Each text begins with the
    /// configuration key.
    pub start: fn(&Settings) -> Vec<String>,
}

impl Probes {
    /// Probes that find no fault, for callers that read a configuration without starting a server.
    pub const NONE: Probes = Probes { token_keys: |_| None, start: |_| Vec::new() };
}
