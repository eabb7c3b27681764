//! Finds the settings of the backend that a hook calls.

use touchline_engine::hook::{DEFAULT_PROXY, HookKind, ProxySettings};

use super::node::Settings;
use crate::keys::PROXIES;

impl Settings {
    /// The section and the settings of the backend that a hook calls. `name` is the backend's name in the options of a
    /// namespace. Hooks about connections and registered names have one backend, the default. `None` = no backend has
    /// this name.
    pub fn backend(&self, kind: HookKind, name: &str) -> Option<(String, &ProxySettings)> {
        let default = match kind {
            HookKind::Connect => ("client.proxy.connect", &self.client.proxy.connect.proxy),
            HookKind::Refresh => ("client.proxy.refresh", &self.client.proxy.refresh.proxy),
            HookKind::Subscribe => ("channel.proxy.subscribe", &self.channel.proxy.subscribe),
            HookKind::Publish => ("channel.proxy.publish", &self.channel.proxy.publish),
            HookKind::SubRefresh => ("channel.proxy.sub_refresh", &self.channel.proxy.sub_refresh),
            HookKind::Rpc => ("rpc.proxy", &self.rpc.proxy),
            HookKind::Conflict => ("registry.proxy.conflict", &self.registry.proxy.conflict),
        };
        if name == DEFAULT_PROXY {
            return Some((default.0.to_owned(), default.1));
        }
        let named = self.proxies.iter().find(|proxy| proxy.name == name)?;
        Some((format!("{PROXIES}[{name}]"), &named.proxy))
    }
}
