//! Settings of the console.

use touchline_engine::setting::ValueKind;
use touchline_engine::settings;

settings! {
    /// The console: web pages for operators.
    pub struct AdminSettings {
        /// The console is served: on the internal port if there is one, else on the port for clients.
        key enabled: bool = false;
        /// The password of operators. An operator may use every function of the console.
        key password: String = "", ValueKind::Secret;
        /// The secret that signs sessions and live connections. Set the same value on all nodes of a cluster, so that a
        /// session is valid on each of them.
        key secret: String = "", ValueKind::Secret;
        /// The console asks for no password, and everybody is an operator. For development only.
        key insecure: bool = false;
        /// Path of the console.
        key handler_prefix: String = "/admin";
        /// The console is served on the port for clients even if there is an internal port.
        key external: bool = false;
        /// The password of viewers. A viewer may read all pages but cannot change anything. Empty: there are no
        /// viewers.
        own viewer_password: String = "", ValueKind::Secret;
        /// Traces of clients and users may show payloads. Off: a trace shows what was sent and received, and its size.
        own trace_payloads: bool = false;
        /// A text at the top of each page, such as `production`.
        own label: String = "";
    }
}
