//! Calls of the server API, for the commands that are its clients.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rustls::ClientConfig;
use serde_json::Value as Json;
use touchline_config::{Flags, Sources, process_variables};
use touchline_protocol::Error;
use touchline_server::{PROBES, Settings, operations};

use super::http;
use super::tls;
use super::url::{ServerUrl, TIMEOUT};
use crate::api_arguments::ApiArguments;
use crate::arguments::CONFIG_VARIABLE;

/// Maximum length of the excerpt of an answer in an error, characters.
const EXCERPT_LEN_MAX: usize = 200;

/// A client of the server API: its URL, key, TLS configuration and timeout.
#[derive(Clone)]
pub(crate) struct ApiClient {
    base: ServerUrl,
    key: String,
    /// The TLS configuration. `None` = the URL does not use TLS.
    tls: Option<Arc<ClientConfig>>,
    /// Maximum time of a whole call.
    patience: Duration,
}

impl ApiClient {
    /// A client for a base URL, with or without `/api` at its end. `ca` is a file with CA certificates that are trusted
    /// in addition to the system's.
    ///
    /// # Errors
    /// When the URL is not valid, the key is not valid in a header, or the file cannot be read.
    pub(crate) fn new(url: &str, key: String, ca: Option<&Path>) -> Result<Self> {
        let mut base = ServerUrl::parse(url, "http")?;
        if key.bytes().any(|b| !b.is_ascii_graphic()) {
            bail!("the key of the server API has characters that are not valid in a header");
        }
        base.path = base.path.trim_end_matches('/').trim_end_matches("/api").to_owned();
        let tls = base.is_tls.then(|| tls::client_config(ca)).transpose()?;
        Ok(ApiClient { base, key, tls, patience: TIMEOUT })
    }

    /// The same client with another timeout.
    fn within(self, patience: Duration) -> Self {
        ApiClient { patience, ..self }
    }

    /// A client as the arguments say. A URL or a key that they do not give comes from the configuration.
    ///
    /// # Errors
    /// When the URL is not valid, or the configuration or the CA certificates cannot be read.
    pub(crate) fn from_arguments(arguments: &ApiArguments) -> Result<Self> {
        let ca = arguments.ca.as_deref();
        if let (Some(url), Some(key)) = (&arguments.api, &arguments.key) {
            return Ok(ApiClient::new(url, key.clone(), ca)?.within(arguments.timeout));
        }
        let settings = configured(arguments.config.as_deref())?;
        let url = match &arguments.api {
            Some(url) => url.clone(),
            None => api_endpoint(&settings)?,
        };
        let key = arguments.key.clone().unwrap_or_else(|| configured_key(&settings));
        Ok(ApiClient::new(&url, key, ca)?.within(arguments.timeout))
    }

    /// Calls one operation and returns its result.
    ///
    /// # Errors
    /// When the server cannot be reached, is too slow or refuses the call. Errors of the API have their number and
    /// text. No error contains the key, even if the server repeats it.
    pub(crate) fn call(&self, operation: &str, request: &Json) -> Result<Json> {
        self.result_of(&self.answer(operation, request.to_string().into_bytes())?)
    }

    /// Calls one operation and returns the whole answer: the JSON of a result or of an API error.
    ///
    /// # Errors
    /// When the server cannot be reached, is too slow, or answers something else. No error contains the key.
    pub(crate) fn answer(&self, operation: &str, request: Vec<u8>) -> Result<Vec<u8>> {
        debug_assert!(operations().any(|known| known.name == operation), "the server has no operation {operation}");
        let url = ServerUrl { path: format!("{}/api/{operation}", self.base.path), ..self.base.clone() };
        let answer = http::post(&url, self.tls.as_ref(), &self.key, request, self.patience)?;
        match answer.status {
            200..=299 => {}
            401 => bail!(
                "the server at {} {} (401): set it with --key, --config or TOUCHLINE_HTTP_API_KEY",
                url.authority(),
                if self.key.is_empty() { "needs a key" } else { "refused the key" }
            ),
            _ if refusal_in(&answer.body, &self.key).is_some() => {}
            404 => bail!(
                "there is no server API at {} (404): with http_server.internal_port it is on that port (--api URL)",
                url.authority()
            ),
            status => bail!("the server answered {status}: {}", excerpt(&answer.body, &self.key)),
        }
        Ok(answer.body)
    }

    /// The result in an answer of the server API.
    ///
    /// # Errors
    /// [`ApiRefusal`] for an error of the API; another error if the answer does not come from a server API.
    pub(crate) fn result_of(&self, answer: &[u8]) -> Result<Json> {
        result_of(answer, &self.key)
    }
}

/// An error of the server API.
#[derive(Debug)]
pub(crate) struct ApiRefusal {
    code: u64,
    message: String,
    /// The field of the request that caused the error, if the server names one.
    field: Option<String>,
}

impl ApiRefusal {
    /// The error code.
    pub(crate) fn code(&self) -> u64 {
        self.code
    }
}

impl fmt::Display for ApiRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error {}: {}", self.code, self.message)?;
        if let Some(field) = &self.field {
            write!(f, ", because of the field {field}")?;
        }
        // A server of another version may have errors that this version does not know, and so may clients that answer a
        // call.
        let known = Error::CATALOGUE.iter().find(|known| u64::from(known.error.code) == self.code);
        known.map_or(Ok(()), |known| write!(f, " ({}). {}", known.name, known.remedy))
    }
}

impl std::error::Error for ApiRefusal {}

/// The error in an answer of the server API to a call with this key. `None` = the answer has no error.
fn refusal_in(body: &[u8], key: &str) -> Option<ApiRefusal> {
    let reply: Json = serde_json::from_slice(body).ok()?;
    let error = reply.get("error")?.as_object()?;
    let text = |name: &str| error.get(name).and_then(Json::as_str).map(|text| excerpt(text.as_bytes(), key));
    Some(ApiRefusal {
        code: error.get("code").and_then(Json::as_u64).unwrap_or_default(),
        message: text("message").unwrap_or_default(),
        field: text("field").filter(|field| !field.is_empty()),
    })
}

/// The result in an answer of the server API to a call with this key.
///
/// # Errors
/// The error of the API with its number and text; another error if the answer does not come from a server API.
fn result_of(body: &[u8], key: &str) -> Result<Json> {
    let foreign = || format!("the answer does not come from a server API: {}", excerpt(body, key));
    let mut reply: Json = serde_json::from_slice(body).with_context(foreign)?;
    if let Some(refusal) = refusal_in(body, key) {
        bail!(refusal);
    }
    reply.get_mut("result").map(Json::take).with_context(foreign)
}

/// The configuration file: the given one, else the one that TOUCHLINE_CONFIG names. `None` = there is none.
pub(crate) fn named(typed: Option<&Path>) -> Option<PathBuf> {
    typed.map(Path::to_owned).or_else(|| std::env::var_os(CONFIG_VARIABLE).map(Into::into))
}

/// The sources of a configuration: the given file or the one that TOUCHLINE_CONFIG names, the environment, and the keys
/// of the command line.
pub(crate) fn sources(file: Option<&Path>, keys: &[(String, String)]) -> Sources {
    let flags = Flags { keys: keys.to_vec(), ..Flags::default() };
    Sources { file: named(file), variables: process_variables(), flags, development: None }
}

/// The URL of the server API from this machine: on the internal port, if there is one.
///
/// # Errors
/// When `http_server.internal_address` is not valid.
fn api_endpoint(settings: &Settings) -> Result<String> {
    if settings.http_api.external { Ok(endpoint(settings, "http")) } else { operator_endpoint(settings) }
}

/// The URL of the probes and metrics from this machine: on the internal port, if there is one.
///
/// # Errors
/// When `http_server.internal_address` is not valid.
pub(crate) fn operator_endpoint(settings: &Settings) -> Result<String> {
    let server = &settings.http_server;
    let internal = server.internal_bind_address().context("http_server.internal_address")?;
    Ok(match internal {
        None => endpoint(settings, "http"),
        Some(address) => url_at("http", server.has_internal_tls(), address),
    })
}

/// The URL of the port for clients from this machine: `scheme://host:port`, or `schemes://host:port` if it uses TLS.
pub(crate) fn endpoint(settings: &Settings, scheme: &str) -> String {
    let server = &settings.http_server;
    let address = server.bind_address().unwrap_or(Ipv4Addr::LOCALHOST.into());
    let is_tls = server.tls.enabled || server.tls_autocert.enabled;
    url_at(scheme, is_tls, SocketAddr::new(address, server.port))
}

/// The URL of a bound port from this machine.
pub(crate) fn url_at(scheme: &str, is_tls: bool, bound: SocketAddr) -> String {
    format!("{scheme}{}://{}", if is_tls { "s" } else { "" }, reachable(bound))
}

/// The address by which a client on this machine reaches a bound port. If the server listens on every interface, it is
/// the IPv4 loopback address, on which `serve --dev` listens too.
pub(crate) fn reachable(bound: SocketAddr) -> SocketAddr {
    if bound.ip().is_unspecified() { SocketAddr::from((Ipv4Addr::LOCALHOST, bound.port())) } else { bound }
}

/// The key of the server API in these settings: `http_api.key`, else the first of `http_api.keys`.
pub(crate) fn configured_key(settings: &Settings) -> String {
    let api = &settings.http_api;
    let named = api.keys.first().filter(|_| api.key.is_empty()).map(|named| &named.options.key);
    named.unwrap_or(&api.key).clone()
}

/// The settings of a file, if there is one, and of the environment.
///
/// # Errors
/// When the configuration has errors.
pub(crate) fn configured(file: Option<&Path>) -> Result<Settings> {
    let sources = Sources { file: named(file), variables: process_variables(), ..Sources::default() };
    let (configuration, _) = touchline_config::read(&sources, &PROBES).into_result()?;
    Ok(configuration.settings)
}

/// The beginning of an answer, for an error message. A server that repeats the request must not bring the key into a
/// log. The key is removed before the text is cut, so that no part of it stays.
fn excerpt(body: &[u8], key: &str) -> String {
    let mut text: String = String::from_utf8_lossy(body).chars().filter(|c| !c.is_control()).collect();
    // The key as it is, and as it appears within quotes in JSON.
    let quoted = Json::from(key).to_string();
    for shown in [key, &quoted[1..quoted.len() - 1]] {
        if !shown.is_empty() {
            text = text.replace(shown, "…");
        }
    }
    text.chars().take(EXCERPT_LEN_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_without_a_result_does_not_come_from_a_server_api() {
        for body in ["[]", "null", "{}", "7", "\"text\"", "", "<html>"] {
            let error = result_of(body.as_bytes(), "").expect_err(body).to_string();
            assert!(error.starts_with("the answer does not come from a server API"), "{body}: {error}");
        }
        assert!(
            result_of(br#"{"error":{"code":107,"message":"bad request"}}"#, "")
                .is_err_and(|e| e.to_string().contains("107"))
        );
        assert!(result_of(br#"{"result":{"offset":1}}"#, "").is_ok_and(|result| result["offset"] == 1));
    }

    #[test]
    fn no_error_has_the_key_that_was_sent() {
        let key = r#"5ecret-"k\ey"#;
        let within_json = Json::from(key).to_string();
        let long = format!("{}{key}", "x".repeat(EXCERPT_LEN_MAX - 4));
        let broken = format!("5ecret\0-{}", &key[7..]);
        let message = format!(r#"{{"error":{{"code":103,"message":{within_json}}}}}"#);
        for body in [key, &within_json, &long, &broken, &message, &format!("a {key} b {key}")] {
            let said =
                [excerpt(body.as_bytes(), key), format!("{:#}", result_of(body.as_bytes(), key).expect_err(body))];
            for said in said {
                assert!(!said.contains("5ecret") && !said.contains("ey\"") && said.contains('…'), "{body}: {said}");
            }
        }
        assert_eq!(excerpt("as it is".as_bytes(), ""), "as it is");
    }

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
        assert_eq!(asked(with_tls).as_deref(), Some("https://127.0.0.1:8000"));
        type Change = fn(&mut Settings);
        let cases: [(Change, Option<&str>); 4] = [
            (
                |s| (s.http_server.internal_port, s.http_api.external) = (Some(9000), true),
                Some("http://127.0.0.1:8000"),
            ),
            (|s| s.http_server.internal_address = "127.0.0.2".into(), Some("http://127.0.0.2:8000")),
            (
                |s| (s.http_server.internal_port, s.http_server.tls.enabled) = (Some(9000), true),
                Some("https://127.0.0.1:9000"),
            ),
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
