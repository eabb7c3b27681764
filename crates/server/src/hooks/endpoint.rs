//! The backends that answer hooks: their settings, checked and ready for use.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use hyper::Uri;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use touchline_config::{Settings, header_faults};
use touchline_engine::caps::CapsCache;
use touchline_engine::directory::ConflictPolicy;
use touchline_engine::hook::{DEFAULT_PROXY, HookKind, HookRequest, ProxySettings, StatusTransforms};

#[cfg(feature = "grpc")]
use super::grpc_backend::GrpcBackend;
use super::handler::HookHandler;
use crate::outbound::{HttpClient, basic_authorization, shown_address};
use crate::tls::TlsError;

/// One backend that answers hooks.
pub(crate) struct Endpoint {
    /// The section of the backend in the configuration, for logs and metrics.
    pub(crate) name: String,
    pub(super) backend: Backend,
    pub(super) timeout: Duration,
    /// Fields of the client's HTTP request that are forwarded.
    pub(super) http_headers: Vec<HeaderName>,
    /// Fields that the client states and that are forwarded.
    pub(super) emulated_headers: Vec<HeaderName>,
    pub(super) includes_meta: bool,
    pub(super) is_binary: bool,
}

/// The way to ask a backend.
pub(super) enum Backend {
    Http(Box<HttpBackend>),
    #[cfg(feature = "grpc")]
    Grpc(Box<GrpcBackend>),
    Handler(Arc<dyn HookHandler>),
}

/// A backend that is asked over HTTP.
pub(super) struct HttpBackend {
    pub(super) client: HttpClient,
    pub(super) uri: Uri,
    pub(super) static_headers: HeaderMap,
    pub(super) transforms: StatusTransforms,
}

/// Why a hook that is on cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EndpointFault {
    #[error("{0}.endpoint: missing, and the hook is on")]
    NoEndpoint(String),
    #[error("{0}.endpoint: not an http:// or https:// address")]
    Address(String),
    #[cfg(feature = "grpc")]
    #[error("{0}.endpoint: expected grpc:// with a host and a port")]
    Target(String),
    #[cfg(not(feature = "grpc"))]
    #[error("{0}.endpoint: this program was built without the feature `grpc`: build it with, or use http://")]
    NoGrpc(String),
    #[error("{0}.timeout: must be above zero")]
    NoTimeout(String),
    #[error("{section}: {name:?} is not a header field, or its value is not valid")]
    Header { section: String, name: String },
    #[error("{0}")]
    Fields(String),
    #[error("proxies: {0:?} is not the name of a backend")]
    Name(String),
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// All backends that the hooks may ask.
#[derive(Default)]
pub(crate) struct Endpoints {
    pub(crate) all: Vec<Endpoint>,
    /// The backend of each hook that has one, by the kind of the hook and the name of the proxy.
    by_use: HashMap<(HookKind, String), usize>,
    /// The compiled capabilities of the node. Answers may contain capabilities too.
    pub(crate) caps: Arc<CapsCache>,
}

impl Endpoints {
    /// Makes the backends of the hooks that are on. `handler`: answers the hooks without an endpoint.
    ///
    /// # Errors
    /// When a hook that is on cannot be used.
    pub(crate) fn new(settings: &Settings, handler: Option<&Arc<dyn HookHandler>>) -> Result<Self, EndpointFault> {
        let mut endpoints = Endpoints::default();
        let (client, channel) = (&settings.client.proxy, &settings.channel);
        let mut add =
            |kind, is_on, name: &str| if is_on { endpoints.add(kind, name, settings, handler) } else { Ok(()) };
        add(HookKind::Connect, client.connect.enabled, DEFAULT_PROXY)?;
        add(HookKind::Refresh, client.refresh.enabled, DEFAULT_PROXY)?;
        let options = channel.namespaces.iter().map(|namespace| &namespace.options);
        for options in options.chain([&channel.without_namespace]) {
            add(HookKind::Subscribe, options.subscribe_proxy_enabled, &options.subscribe_proxy_name)?;
            add(HookKind::Publish, options.publish_proxy_enabled, &options.publish_proxy_name)?;
            add(HookKind::SubRefresh, options.sub_refresh_proxy_enabled, &options.sub_refresh_proxy_name)?;
        }
        let is_contested = settings.registry.scopes.iter().any(|scope| scope.conflict_policy == ConflictPolicy::Hook);
        add(HookKind::Conflict, is_contested, DEFAULT_PROXY)?;
        let methods = settings.rpc.namespaces.iter().map(|namespace| &namespace.options);
        for options in methods.chain([&settings.rpc.without_namespace]) {
            add(HookKind::Rpc, options.proxy_enabled, &options.proxy_name)?;
        }
        Ok(endpoints)
    }

    fn add(
        &mut self,
        kind: HookKind,
        name: &str,
        settings: &Settings,
        handler: Option<&Arc<dyn HookHandler>>,
    ) -> Result<(), EndpointFault> {
        let (section, proxy) = settings.backend(kind, name).ok_or_else(|| EndpointFault::Name(name.to_owned()))?;
        let index = match self.all.iter().position(|endpoint| endpoint.name == section) {
            Some(index) => index,
            None => {
                let faults = header_faults(&section, proxy, &settings.client.allowed_origins);
                if let Some(fault) = faults.into_iter().next() {
                    return Err(EndpointFault::Fields(fault));
                }
                self.all.push(Endpoint::new(&section, proxy, handler)?);
                self.all.len() - 1
            }
        };
        self.by_use.insert((kind, name.to_owned()), index);
        Ok(())
    }

    /// Returns the number of the backend to ask; None = the hook is off.
    pub(super) fn find(&self, request: &HookRequest) -> Option<usize> {
        let name = request.proxy().unwrap_or(DEFAULT_PROXY);
        self.by_use.get(&(request.kind(), name.to_owned())).copied()
    }

    /// Whether no hook is on.
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns the names of the backends.
    pub(crate) fn names(&self) -> Vec<String> {
        self.all.iter().map(|endpoint| endpoint.name.clone()).collect()
    }

    /// Returns the fields of clients' HTTP requests that at least one backend receives.
    pub(crate) fn forwarded_names(&self) -> Vec<HeaderName> {
        unique(self.all.iter().flat_map(|endpoint| &endpoint.http_headers))
    }

    /// Returns the fields that clients state and at least one backend receives, in lower case.
    pub(crate) fn emulated_names(&self) -> Vec<String> {
        let names = unique(self.all.iter().flat_map(|endpoint| &endpoint.emulated_headers));
        names.into_iter().map(|name| name.as_str().to_owned()).collect()
    }

    /// Whether at least one backend receives the `meta` of connections.
    pub(crate) fn includes_meta(&self) -> bool {
        self.all.iter().any(|endpoint| endpoint.includes_meta)
    }
}

fn unique<'n>(names: impl Iterator<Item = &'n HeaderName>) -> Vec<HeaderName> {
    let mut all: Vec<HeaderName> = Vec::new();
    for name in names {
        if !all.contains(name) {
            all.push(name.clone());
        }
    }
    all
}

impl Endpoint {
    fn new(
        section: &str,
        proxy: &ProxySettings,
        handler: Option<&Arc<dyn HookHandler>>,
    ) -> Result<Self, EndpointFault> {
        if proxy.timeout.is_zero() {
            return Err(EndpointFault::NoTimeout(section.to_owned()));
        }
        let backend = match (proxy.endpoint.is_empty(), handler) {
            (true, Some(handler)) => Backend::Handler(Arc::clone(handler)),
            (true, None) => return Err(EndpointFault::NoEndpoint(section.to_owned())),
            (false, _) => match proxy.grpc_target() {
                Some(target) => over_grpc(section, target, proxy)?,
                None => Backend::Http(Box::new(HttpBackend::new(section, proxy)?)),
            },
        };
        Ok(Endpoint {
            name: section.to_owned(),
            backend,
            timeout: proxy.timeout,
            http_headers: field_names(section, &proxy.http_headers)?,
            emulated_headers: field_names(section, &proxy.emulated_headers)?,
            includes_meta: proxy.include_connection_meta,
            is_binary: proxy.binary_encoding,
        })
    }
}

impl Endpoint {
    /// Returns the address without query string and password.
    pub(crate) fn shown_address(&self) -> String {
        match &self.backend {
            Backend::Http(backend) => backend.shown_address(),
            #[cfg(feature = "grpc")]
            Backend::Grpc(backend) => backend.shown_address(),
            Backend::Handler(_) => String::new(),
        }
    }

    /// Connects once. Over HTTP it sends an OPTIONS request, which changes nothing (RFC 9110, 9.2.1), and accepts any
    /// answer.
    ///
    /// # Errors
    /// Why the backend cannot be reached.
    pub(crate) async fn try_connection(&self) -> Result<String, String> {
        match &self.backend {
            Backend::Http(backend) => backend.client.try_connection(&backend.uri).await,
            #[cfg(feature = "grpc")]
            Backend::Grpc(backend) => backend.try_connection().await,
            Backend::Handler(_) => Ok("this program answers itself".to_owned()),
        }
    }
}

/// Makes a backend that is asked over gRPC.
#[cfg(feature = "grpc")]
fn over_grpc(section: &str, target: &str, proxy: &ProxySettings) -> Result<Backend, EndpointFault> {
    let grpc = &proxy.grpc;
    let credentials = Some((&grpc.credentials_key, &grpc.credentials_value)).filter(|(key, _)| !key.is_empty());
    let mut metadata = HeaderMap::new();
    fixed_fields(section, grpc.static_metadata.0.iter().chain(credentials), &mut metadata)?;
    // The values are usually secrets.
    metadata.values_mut().for_each(|value| value.set_sensitive(true));
    let backend = GrpcBackend::new(section, target, grpc, metadata)?;
    backend.map(|backend| Backend::Grpc(Box::new(backend))).ok_or_else(|| EndpointFault::Target(section.to_owned()))
}

#[cfg(not(feature = "grpc"))]
fn over_grpc(section: &str, _: &str, _: &ProxySettings) -> Result<Backend, EndpointFault> {
    Err(EndpointFault::NoGrpc(section.to_owned()))
}

/// Adds the header fields of the settings to those of every question.
fn fixed_fields<'f>(
    section: &str,
    fields: impl Iterator<Item = (&'f String, &'f String)>,
    all: &mut HeaderMap,
) -> Result<(), EndpointFault> {
    for (name, value) in fields {
        let fault = || EndpointFault::Header { section: section.to_owned(), name: name.clone() };
        let value = HeaderValue::from_str(value).map_err(|_| fault())?;
        for field in field_names(section, std::slice::from_ref(name))? {
            all.insert(field, value.clone());
        }
    }
    Ok(())
}

impl HttpBackend {
    fn new(section: &str, proxy: &ProxySettings) -> Result<Self, EndpointFault> {
        let uri: Option<Uri> = proxy.endpoint.parse().ok();
        let is_http = |uri: &Uri| matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some();
        let uri = uri.filter(is_http).ok_or_else(|| EndpointFault::Address(section.to_owned()))?;
        let mut static_headers = HeaderMap::new();
        if let Some(value) = basic_authorization(&uri) {
            static_headers.insert(header::AUTHORIZATION, value);
        }
        fixed_fields(section, proxy.http.static_headers.0.iter(), &mut static_headers)?;
        let client = HttpClient::new(&format!("{section}.http.tls"), &proxy.http.tls, proxy.timeout)?;
        let transforms = proxy.http.status_to_code_transforms.clone();
        Ok(HttpBackend { client, uri, static_headers, transforms })
    }

    /// Returns the address without query string and password, for logs.
    pub(super) fn shown_address(&self) -> String {
        shown_address(&self.uri)
    }
}

/// Returns the names of header fields, each once.
fn field_names(section: &str, names: &[String]) -> Result<Vec<HeaderName>, EndpointFault> {
    let mut fields = Vec::new();
    for name in names {
        let fault = |_| EndpointFault::Header { section: section.to_owned(), name: name.clone() };
        let field = HeaderName::from_bytes(name.as_bytes()).map_err(fault)?;
        if !fields.contains(&field) {
            fields.push(field);
        }
    }
    Ok(fields)
}
