//! `touchline health`: whether the server of a configuration can serve, for health checks of containers.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};

use crate::client::api::{configured, operator_endpoint};
use crate::client::http::get;
use crate::client::tls::untrusting_config;
use crate::client::url::ServerUrl;
use crate::operator_arguments::HealthArguments;

/// Asks `/readyz`, and prints what the server says. The exit status is 0 if it can serve, 1 if not.
pub(crate) fn run(arguments: &HealthArguments) -> Result<ExitCode> {
    let base = match &arguments.api {
        Some(url) => url.clone(),
        None => {
            let settings = configured(arguments.config.as_deref())?;
            if !settings.health.enabled {
                bail!("health.enabled is off in this configuration, so the server answers no probe");
            }
            operator_endpoint(&settings)?
        }
    };
    let url = ServerUrl::parse(&base, "http")?;
    let url = ServerUrl { path: format!("{}/readyz", url.path.trim_end_matches('/')), ..url };
    // The certificate has the name that clients use, not that of the loopback; and nothing secret is sent.
    let tls = url.is_tls.then(untrusting_config).transpose()?;
    let reply = get(&url, tls.as_ref(), arguments.timeout)?;
    let said = String::from_utf8_lossy(&reply.body);
    match reply.status {
        200 => {
            writeln!(std::io::stdout(), "{}", said.trim_end())?;
            Ok(ExitCode::SUCCESS)
        }
        404 => {
            bail!("{} has no probes: health.enabled is off, or they are on http_server.internal_port", url.authority())
        }
        status => Err(anyhow::anyhow!("{}", said.trim_end())).with_context(|| format!("status {status}")),
    }
}
