//! The console.

use touchline_engine::setting::ValueKind;
use touchline_engine::settings;

settings! {
    /// The console: pages for operators.
    pub struct AdminSettings {
        /// The pages are served: on the internal port if there is one, else on the port for clients.
        key enabled: bool = false;
        /// The password of operators, who may do everything that the console can.
        key password: String = "", ValueKind::Secret;
        /// Signs sessions and live connections. All nodes of a cluster need the same: a session holds on each of them.
        key secret: String = "", ValueKind::Secret;
        /// No password is needed: everybody is an operator. For development.
        key insecure: bool = false;
        /// Path of the pages.
        key handler_prefix: String = "/admin";
        /// The pages are served on the port for clients although there is an internal port.
        key external: bool = false;
        /// The password of viewers, who may look and change nothing. Empty: there are none.
        own viewer_password: String = "", ValueKind::Secret;
        /// Traces of clients and users may show payloads. Off: they show what went in and out, and its size.
        own trace_payloads: bool = false;
        /// What stands in the head of each page, such as `production`.
        own label: String = "";
    }
}
