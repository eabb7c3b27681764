//! Checks the settings of the console: who may use it.

use crate::finding::Finding;
use crate::settings::{Settings, resolve};

/// Minimum bytes of secrets and passwords. Shorter ones can be guessed.
const LEN_MIN: usize = 16;

/// Refuses settings with which anybody could use the console.
pub(super) fn check(settings: &Settings, findings: &mut Vec<Finding>) {
    let admin = &settings.admin;
    if !admin.enabled {
        return;
    }
    let mut refuse = |text: String| findings.push(Finding::error(text, None));
    if matches!(admin.handler_prefix.as_str(), "" | "/") || !admin.handler_prefix.starts_with('/') {
        refuse(format!(
            "admin.handler_prefix: a path such as \"/admin\" is expected, found {:?}",
            admin.handler_prefix
        ));
    }
    if admin.handler_prefix.len() > 1 && admin.handler_prefix.ends_with('/') {
        refuse("admin.handler_prefix: the path must not end with \"/\"".to_owned());
    }
    if admin.insecure {
        let http = &settings.http_server;
        let address = http.internal().filter(|_| !admin.external).map_or(http.address.as_str(), |(address, _)| address);
        if !resolve(address).is_ok_and(|ip| ip.is_loopback()) {
            refuse(
                "admin.insecure: everybody who can reach the port would be an operator. Set admin.password, \
                 or listen on the loopback address"
                    .to_owned(),
            );
        }
        return;
    }
    if admin.password.is_empty() {
        refuse("admin.password: missing, so nobody could sign in. Set it, or set admin.enabled = false".to_owned());
    }
    if admin.secret.is_empty() {
        refuse("admin.secret: missing. Set a long random text, the same on all nodes".to_owned());
    }
    if !admin.password.is_empty() && admin.password == admin.viewer_password {
        refuse("admin.viewer_password: the same as admin.password, so viewers would be operators".to_owned());
    }
    let mut warn = |text: String| findings.push(Finding::warning(text, None));
    for (key, value) in [("secret", &admin.secret), ("password", &admin.password)] {
        if !value.is_empty() && value.len() < LEN_MIN {
            warn(format!("admin.{key}: shorter than {LEN_MIN} bytes, so it can be guessed"));
        }
    }
}
