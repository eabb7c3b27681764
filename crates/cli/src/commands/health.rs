//! `touchline health`: checks whether the server of a configuration can serve, for health checks of containers.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};

use crate::client::api::{configured, operator_endpoint};
use crate::client::http::get;
use crate::client::tls::untrusting_config;
use crate::client::url::ServerUrl;
use crate::commands::check::in_a_line;
use crate::operator_arguments::HealthArguments;

/// Requests `/readyz` and prints the answer. The exit code is 0 if the server can serve, else 1.
pub(crate) fn run(arguments: &HealthArguments) -> Result<ExitCode> {
    let base = match &arguments.api {
        Some(url) => url.clone(),
        None => {
            let settings = configured(arguments.config.as_deref())?;
            if !settings.health.enabled {
                bail!("health.enabled is off in this configuration, so the server has no probes");
            }
            let server = &settings.http_server;
            if server.proxy_protocol && server.internal().is_none() {
                bail!("http_server.proxy_protocol is on, so the probes need http_server.internal_port");
            }
            operator_endpoint(&settings)?
        }
    };
    let url = ServerUrl::parse(&base, "http")?;
    let url = ServerUrl { path: format!("{}/readyz", url.path.trim_end_matches('/')), ..url };
    // Any certificate is accepted: it has the name that clients use, not that of the loopback address, and no secret is
    // sent.
    let tls = url.is_tls.then(untrusting_config).transpose()?;
    let reply = get(&url, tls.as_ref(), arguments.timeout)?;
    let said = in_a_line(String::from_utf8_lossy(&reply.body).trim_end());
    match reply.status {
        200 => {
            writeln!(std::io::stdout(), "{said}")?;
            Ok(ExitCode::SUCCESS)
        }
        404 => {
            bail!("{} has no probes: health.enabled is off, or they are on http_server.internal_port", url.authority())
        }
        status => Err(anyhow::anyhow!("{said}")).with_context(|| format!("status {status}")),
    }
}
