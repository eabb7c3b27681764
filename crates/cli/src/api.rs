//! Calls of the server API, by those commands that are its clients.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde_json::Value as Json;

use crate::arguments::ApiArguments;
use crate::config::{self, Sources};
use crate::http_client::{self, Url};

/// Where the server API is, and the key to it.
#[derive(Clone)]
pub(crate) struct Api {
    base: Url,
    key: String,
}

impl Api {
    /// An API at a base URL, with or without `/api` at its end.
    ///
    /// # Errors
    /// When the URL is none.
    pub(crate) fn new(url: &str, key: String) -> Result<Self> {
        let mut base = Url::parse(url, "http")?;
        if key.bytes().any(|b| !b.is_ascii_graphic()) {
            bail!("the key of the server API has characters that no header can carry");
        }
        base.path = base.path.trim_end_matches('/').trim_end_matches("/api").to_owned();
        Ok(Api { base, key })
    }

    /// As the arguments say; a key that they don't give comes from the configuration.
    ///
    /// # Errors
    /// When the URL is none, or the configuration can't be read.
    pub(crate) fn from_arguments(arguments: &ApiArguments) -> Result<Self> {
        let key = match &arguments.key {
            Some(key) => key.clone(),
            None => configured(arguments.config.as_deref())?.http_api.key,
        };
        Api::new(&arguments.api, key)
    }

    /// Calls one operation and gives its result.
    ///
    /// # Errors
    /// When the server isn't there or refuses; the API's own errors with number and text.
    pub(crate) fn call(&self, operation: &str, request: &Json) -> Result<Json> {
        let url = Url { path: format!("{}/api/{operation}", self.base.path), ..self.base.clone() };
        let answer = http_client::post(&url, &self.key, request.to_string().as_bytes())?;
        match answer.status {
            200..=299 => {}
            401 => bail!("the server refused the key (401): give it by --key, --config or TOUCHLINE_HTTP_API_KEY"),
            404 => bail!("there is no server API at {} (404)", url.authority()),
            status => bail!("the server answered {status}: {}", excerpt(&answer.body)),
        }
        let mut reply: Json =
            serde_json::from_slice(&answer.body).with_context(|| format!("what answers is no server API: {}", excerpt(&answer.body)))?;
        if let Some(error) = reply.get("error") {
            let number = error["code"].as_u64().unwrap_or_default();
            bail!("error {number}: {}", error["message"].as_str().unwrap_or_default());
        }
        Ok(reply["result"].take())
    }
}

/// The settings of a file, if one is given, and of the environment.
///
/// # Errors
/// When they have faults.
pub(crate) fn configured(file: Option<&Path>) -> Result<touchline_server::Settings> {
    let sources = Sources { file: file.map(Path::to_owned), variables: config::process_variables(), ..Sources::default() };
    let (configuration, _) = config::read(&sources).into_result()?;
    Ok(configuration.settings)
}

fn excerpt(body: &[u8]) -> String {
    String::from_utf8_lossy(body).chars().filter(|c| !c.is_control()).take(200).collect()
}
