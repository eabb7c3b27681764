//! Where the backend of a hook stands in the settings.

use touchline_engine::hook::{DEFAULT_PROXY, HookKind, ProxySettings};

use super::node::Settings;
use crate::keys::PROXIES;

impl Settings {
    /// The backend of a hook, and the section that it is in. `name`: as the options of a namespace name it; hooks about
    /// connections and names have one backend, which is the default. `None` = no backend has this name.
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
