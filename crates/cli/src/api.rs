//! Calls of the server API, by those commands that are its clients.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use serde_json::Value as Json;
use touchline_config::Sources;
use touchline_server::{PROBES, Settings};

use crate::arguments::{ApiArguments, CONFIG_VARIABLE};
use crate::http_client::{self, HttpUrl};

/// The URL of the server API, and its key.
#[derive(Clone)]
pub(crate) struct ApiClient {
    base: HttpUrl,
    key: String,
}

impl ApiClient {
    /// An API at a base URL, with or without `/api` at its end.
    ///
    /// # Errors
    /// When the URL is none.
    pub(crate) fn new(url: &str, key: String) -> Result<Self> {
        let mut base = HttpUrl::parse(url, "http")?;
        if key.bytes().any(|b| !b.is_ascii_graphic()) {
            bail!("the key of the server API has characters that no header can carry");
        }
        base.path = base.path.trim_end_matches('/').trim_end_matches("/api").to_owned();
        Ok(ApiClient { base, key })
    }

    /// As the arguments say; a key that they don't give comes from the configuration.
    ///
    /// # Errors
    /// When the URL is none, or the configuration can't be read.
    pub(crate) fn from_arguments(arguments: &ApiArguments) -> Result<Self> {
        if let (Some(url), Some(key)) = (&arguments.api, &arguments.key) {
            return ApiClient::new(url, key.clone());
        }
        let settings = configured(arguments.config.as_deref())?;
        let url = match &arguments.api {
            Some(url) => url.clone(),
            None => api_endpoint(&settings)?,
        };
        ApiClient::new(&url, arguments.key.clone().unwrap_or(settings.http_api.key))
    }

    /// Calls one operation and gives its result.
    ///
    /// # Errors
    /// When the server isn't there or refuses; the API's own errors with number and text.
    pub(crate) fn call(&self, operation: &str, request: &Json) -> Result<Json> {
        let url = HttpUrl { path: format!("{}/api/{operation}", self.base.path), ..self.base.clone() };
        let answer = http_client::post(&url, &self.key, request.to_string().as_bytes())?;
        match answer.status {
            200..=299 => {}
            401 => bail!(
                "the server at {} refused the key (401): give it by --key, --config or TOUCHLINE_HTTP_API_KEY",
                url.authority()
            ),
            404 => bail!("there is no server API at {} (404)", url.authority()),
            status => bail!("the server answered {status}: {}", excerpt(&answer.body)),
        }
        let mut reply: Json = serde_json::from_slice(&answer.body)
            .with_context(|| format!("the answer does not come from a server API: {}", excerpt(&answer.body)))?;
        if let Some(error) = reply.get("error") {
            let number = error["code"].as_u64().unwrap_or_default();
            bail!("error {number}: {}", error["message"].as_str().unwrap_or_default());
        }
        Ok(reply["result"].take())
    }
}

/// The configuration file: the one that was typed, else the one that TOUCHLINE_CONFIG names.
pub(crate) fn named(typed: Option<&Path>) -> Option<PathBuf> {
    typed.map(Path::to_owned).or_else(|| std::env::var_os(CONFIG_VARIABLE).map(Into::into))
}

/// Where the server API of these settings is reached from this machine: on the internal port, if there is one.
///
/// # Errors
/// When that speaks TLS, which the commands that are clients do not.
fn api_endpoint(settings: &Settings) -> Result<String> {
    let server = &settings.http_server;
    let internal = server.internal_bind_address().context("http_server.internal_address")?;
    let Some(address) = internal.filter(|_| !settings.http_api.external) else { return endpoint(settings, "http") };
    if server.has_internal_tls() {
        bail!(
            "the internal port of this configuration speaks TLS, and this command does not: \
             give the http:// URL of a port without TLS"
        );
    }
    Ok(format!("http://{}", reachable(address)))
}

/// Where clients reach a server with these settings from this machine: `scheme://host:port`.
///
/// # Errors
/// When it speaks TLS, which the commands that are clients do not.
pub(crate) fn endpoint(settings: &Settings, scheme: &str) -> Result<String> {
    let server = &settings.http_server;
    if server.tls.enabled || server.tls_autocert.enabled {
        bail!(
            "the server of this configuration speaks TLS, and this command does not: \
             give the {scheme}:// URL of a port without TLS"
        );
    }
    let address = server.bind_address().unwrap_or(Ipv4Addr::LOCALHOST.into());
    Ok(format!("{scheme}://{}", reachable(SocketAddr::new(address, server.port))))
}

/// The address to type. A server that listens on every interface is reached by the loopback address of IPv4: there
/// `serve --dev` listens too.
pub(crate) fn reachable(bound: SocketAddr) -> SocketAddr {
    if bound.ip().is_unspecified() { SocketAddr::from((Ipv4Addr::LOCALHOST, bound.port())) } else { bound }
}

/// The settings of a file, if one is named, and of the environment.
///
/// # Errors
/// When they have faults.
pub(crate) fn configured(file: Option<&Path>) -> Result<Settings> {
    let sources = Sources { file: named(file), variables: touchline_config::process_variables(), ..Sources::default() };
    let (configuration, _) = touchline_config::read(&sources, &PROBES).into_result()?;
    Ok(configuration.settings)
}

fn excerpt(body: &[u8]) -> String {
    String::from_utf8_lossy(body).chars().filter(|c| !c.is_control()).take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_api_is_where_the_settings_put_it() {
        let asked = |change: fn(&mut Settings)| {
            let mut settings = Settings::default();
            settings.http_server.address = "127.0.0.1".into();
            change(&mut settings);
            api_endpoint(&settings).ok()
        };
        let internal = |settings: &mut Settings| settings.http_server.internal_port = Some(9000);
        let with_tls = |settings: &mut Settings| settings.http_server.tls.enabled = true;
        assert_eq!(asked(|_| {}).as_deref(), Some("http://127.0.0.1:8000"));
        assert_eq!(asked(internal).as_deref(), Some("http://127.0.0.1:9000"));
        assert_eq!(asked(with_tls), None);
        type Change = fn(&mut Settings);
        let cases: [(Change, Option<&str>); 4] = [
            (
                |s| (s.http_server.internal_port, s.http_api.external) = (Some(9000), true),
                Some("http://127.0.0.1:8000"),
            ),
            (|s| s.http_server.internal_address = "127.0.0.2".into(), Some("http://127.0.0.2:8000")),
            (|s| (s.http_server.internal_port, s.http_server.tls.enabled) = (Some(9000), true), None),
            (
                |s| {
                    (s.http_server.internal_port, s.http_server.tls.enabled) = (Some(9000), true);
                    s.http_server.tls_external = true;
                },
                Some("http://127.0.0.1:9000"),
            ),
        ];
        for (index, (change, expected)) in cases.into_iter().enumerate() {
            assert_eq!(asked(change).as_deref(), expected, "case {index}");
        }
    }
}
