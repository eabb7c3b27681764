//! Answers requests for the console: its files, sign-in, operations.

use std::net::IpAddr;

use hyper::header::{COOKIE, HOST, HeaderMap, HeaderName, HeaderValue, ORIGIN, SET_COOKIE};
use hyper::{Method, Request, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use touchline_config::AdminSettings;
use touchline_protocol::Error;

use super::files;
use super::live;
use super::running::{error, run};
use crate::api::documents::Document;
use crate::api::operation::Operation as _;
use crate::api::operations::forget_user::ForgetUserOperation;
use crate::api::request_id::{X_REQUEST_ID, request_id};
use crate::api::table::{BATCH, place_of, reads};
use crate::api::version::NEWEST;
use crate::console::{Activity, ConsoleRole, ConsoleSession, ConsoleSigner, SESSION_TIME, TOKEN_TIME};
use crate::node::Node;
use crate::runtime::operation_metrics::NO_OPERATION;
use crate::runtime::process::VERSION;
use crate::transport::http::body::RequestBody;
use crate::transport::http::respond::{self, HttpResponse, JSON};
use crate::transport::http::{Origin, Routed};

/// What a browser may load into the page and send from it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";
/// The name of the session cookie.
const COOKIE_NAME: &str = "touchline_console";
/// Only the console's own pages send this field. A page of another origin would need a preflight request, which is
/// refused.
const OWN_FIELD: HeaderName = HeaderName::from_static("x-touchline-console");
/// The largest body of a sign-in request, in bytes.
const LOGIN_SIZE_MAX: usize = 4 * 1_024;

/// Whether a path belongs to the console, and this port serves it.
pub(in crate::api) fn is_of_console(origin: &Origin, path: &str) -> bool {
    let admin = &origin.node.generation().settings.admin;
    admin.enabled
        && origin.side.serves_api(admin.external)
        && path.strip_prefix(admin.handler_prefix.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Answers a request for the console.
pub(in crate::api) async fn answer(origin: &Origin, request: Request<RequestBody>) -> Routed {
    let generation = origin.node.generation();
    let admin = &generation.settings.admin;
    let signer = ConsoleSigner::new(&admin.secret, &admin.password, &admin.viewer_password);
    let console = Console { origin, admin, signer };
    let path = request.uri().path();
    let path = path.strip_prefix(admin.handler_prefix.as_str()).unwrap_or_default().to_owned();
    if admin.insecure && !host_of(&request).is_some_and(is_local) {
        // A host name of another site may resolve to this node. Without a password, a page of that site could act as an
        // operator.
        let why = "without a password the console answers only requests to localhost or to an IP address";
        return Routed::Answer(refuse(StatusCode::MISDIRECTED_REQUEST, Error::PERMISSION_DENIED, why));
    }
    if path == "/connection/websocket" {
        return console.connect(&request);
    }
    let mut answer = console.answer(&path, request).await;
    protect(answer.headers_mut());
    Routed::Answer(answer)
}

/// Adds the header fields that protect the page from other sites.
fn protect(fields: &mut HeaderMap) {
    for (name, value) in [
        ("content-security-policy", POLICY),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("x-frame-options", "DENY"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
    ] {
        fields.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
}

/// The console as one request sees it.
struct Console<'o> {
    origin: &'o Origin,
    admin: &'o AdminSettings,
    signer: ConsoleSigner,
}

#[derive(Deserialize)]
struct LoginRequest {
    password: String,
}

impl Console<'_> {
    async fn answer(&self, path: &str, request: Request<RequestBody>) -> HttpResponse {
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        match path {
            _ if path.starts_with("/assets/") && is_read => files::asset(path, request.headers()),
            "/session" if is_read => self.session(request.headers()),
            "/op-openapi.json" if is_read => self.document(request.headers()),
            _ if is_read => files::page(&self.admin.handler_prefix),
            _ if *request.method() != Method::POST => respond::method_not_allowed("GET, HEAD, POST"),
            _ if !self.is_own(&request) => refuse(
                StatusCode::FORBIDDEN,
                Error::PERMISSION_DENIED,
                "the request is not from the console's own page",
            ),
            "/login" => self.login(request).await,
            "/logout" => self.logout(request.headers()),
            "/token" => match self.signed_in(request.headers()) {
                Some(session) => respond_json(&json!({
                    "token": self.signer.token(session.role, self.now_s()),
                    "ttl": TOKEN_TIME,
                })),
                None => signed_out(),
            },
            _ => match path.strip_prefix("/op/").filter(|operation| !operation.is_empty()) {
                Some(operation) => self.operate(operation, request).await,
                None => respond::not_found(),
            },
        }
    }

    fn node(&self) -> &Node {
        &self.origin.node
    }

    fn now_s(&self) -> u64 {
        self.node().clock.now_ms() / 1_000
    }

    /// Whether a request comes from the console's own page.
    fn is_own(&self, request: &Request<RequestBody>) -> bool {
        let headers = request.headers();
        let site = headers.get("sec-fetch-site").and_then(|value| value.to_str().ok());
        headers.contains_key(OWN_FIELD)
            && (!headers.contains_key(ORIGIN) || has_own_origin(request))
            && site.is_none_or(|site| matches!(site, "same-origin" | "none"))
    }

    /// Returns the session of the browser; None = it is not signed in.
    fn signed_in(&self, headers: &HeaderMap) -> Option<ConsoleSession> {
        if self.admin.insecure {
            return Some(ConsoleSession::begin(ConsoleRole::Operator, self.now_s()));
        }
        let fields = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut cookies = fields.flat_map(|field| field.split(';')).filter_map(|cookie| cookie.trim().split_once('='));
        let (_, cookie) = cookies.find(|(name, _)| *name == COOKIE_NAME)?;
        self.signer.session(cookie, self.now_s())
    }

    fn session(&self, headers: &HeaderMap) -> HttpResponse {
        respond_json(&self.about(self.signed_in(headers).map(|session| session.role)))
    }

    fn about(&self, role: Option<ConsoleRole>) -> Value {
        let node = self.node();
        json!({
            "signed_in": role.is_some(),
            "role": role,
            "insecure": self.admin.insecure,
            "label": self.admin.label,
            "node": match role {
                Some(_) => json!({"id": node.id, "name": node.generation().settings.node.name, "version": VERSION}),
                None => json!({"id": "", "name": "", "version": ""}),
            },
            "now_ms": node.clock.now_ms(),
        })
    }

    /// Extends a session that is in use.
    fn with_use(&self, mut answer: HttpResponse, session: Option<ConsoleSession>, headers: &HeaderMap) -> HttpResponse {
        if let Some(used) = session.and_then(|session| session.used(self.now_s())).filter(|_| !self.admin.insecure) {
            self.set_cookie(&mut answer, &self.signer.cookie(used), SESSION_TIME, headers);
        }
        answer
    }

    fn set_cookie(&self, answer: &mut HttpResponse, value: &str, age_s: u64, headers: &HeaderMap) {
        let is_secure = headers.get(ORIGIN).is_some_and(|origin| origin.as_bytes().starts_with(b"https://"));
        let secure = if is_secure { "; Secure" } else { "" };
        let path = &self.admin.handler_prefix;
        let cookie = format!("{COOKIE_NAME}={value}; Path={path}; Max-Age={age_s}; HttpOnly; SameSite=Strict{secure}");
        if let Ok(cookie) = HeaderValue::try_from(cookie) {
            answer.headers_mut().insert(SET_COOKIE, cookie);
        }
    }

    async fn login(&self, request: Request<RequestBody>) -> HttpResponse {
        let address = self.origin.remote.address;
        let headers = request.headers().clone();
        let Ok((body, _budget)) = request.into_body().read(LOGIN_SIZE_MAX).await else {
            return refuse(StatusCode::BAD_REQUEST, Error::BAD_REQUEST, "the body cannot be read");
        };
        let Ok(login) = serde_json::from_slice::<LoginRequest>(&body) else {
            return refuse(StatusCode::BAD_REQUEST, Error::BAD_REQUEST, "a password is expected");
        };
        let left = match self.node().console.throttle().take(address, self.now_s()) {
            Ok(left) => left,
            Err(wait_s) => {
                let mut body = error(Error::TOO_MANY_REQUESTS, "too many wrong passwords");
                body["error"]["retry_after"] = json!(wait_s);
                return with_status(StatusCode::TOO_MANY_REQUESTS, &body);
            }
        };
        let Some(role) = self.role_of(&login.password) else {
            self.note(None, "sign in", "", "wrong password");
            let mut body = error(Error::UNAUTHORIZED, "wrong password");
            body["error"]["tries_left"] = json!(left);
            return with_status(StatusCode::UNAUTHORIZED, &body);
        };
        self.node().console.throttle().give_back(address);
        self.note(Some(role), "sign in", "", "ok");
        let mut answer = respond_json(&self.about(Some(role)));
        let cookie = self.signer.cookie(ConsoleSession::begin(role, self.now_s()));
        self.set_cookie(&mut answer, &cookie, SESSION_TIME, &headers);
        answer
    }

    /// Returns the role of a password. The comparison takes the same time for every password.
    fn role_of(&self, password: &str) -> Option<ConsoleRole> {
        let is = |wanted: &str| {
            let digest = |text: &str| aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, text.as_bytes());
            let is_equal =
                aws_lc_rs::constant_time::verify_slices_are_equal(digest(password).as_ref(), digest(wanted).as_ref());
            is_equal.is_ok() && !wanted.is_empty()
        };
        let (is_operator, is_viewer) = (is(&self.admin.password), is(&self.admin.viewer_password));
        if is_operator { Some(ConsoleRole::Operator) } else { is_viewer.then_some(ConsoleRole::Viewer) }
    }

    fn logout(&self, headers: &HeaderMap) -> HttpResponse {
        let mut answer = respond_json(&json!({}));
        self.set_cookie(&mut answer, "", 0, headers);
        answer
    }

    fn document(&self, headers: &HeaderMap) -> HttpResponse {
        match self.signed_in(headers) {
            Some(_) => respond::body(StatusCode::OK, JSON, Document::OpenApi.text(NEWEST.number)),
            None => signed_out(),
        }
    }

    async fn operate(&self, operation: &str, request: Request<RequestBody>) -> HttpResponse {
        let headers = request.headers().clone();
        let Some(session) = self.signed_in(&headers) else { return signed_out() };
        let id = request_id(headers.get(&X_REQUEST_ID));
        let (is_change, role) = (!reads(operation), session.role);
        if is_change && role == ConsoleRole::Viewer {
            let why = "your role is viewer; an operator may do this";
            return refuse(StatusCode::FORBIDDEN, Error::PERMISSION_DENIED, why);
        }
        let limit = self.node().generation().settings.http_api.body_size_limit;
        let Ok((body, _budget)) = request.into_body().read(limit).await else {
            return refuse(StatusCode::BAD_REQUEST, Error::BAD_REQUEST, "the body is too large, or incomplete");
        };
        let (status, answered, refused) = run(self.node(), role, operation, &body).await;
        if is_change && (operation == BATCH || place_of(operation) != NO_OPERATION) {
            self.note_changes(role, operation, &body, &answered, refused.as_deref());
        }
        let mut answer = respond::body(status, JSON, answered);
        answer.headers_mut().insert(X_REQUEST_ID.clone(), id);
        self.with_use(answer, Some(session), &headers)
    }

    /// Notes what an operation has changed; for a batch, what each command has changed.
    fn note_changes(&self, role: ConsoleRole, operation: &str, body: &[u8], answered: &[u8], refused: Option<&str>) {
        let request: Value = serde_json::from_slice(body).unwrap_or_default();
        let commands = request["commands"].as_array().filter(|_| operation == BATCH);
        let Some(commands) = commands else {
            return self.note(Some(role), operation, &target(operation, &request), refused.unwrap_or("ok"));
        };
        let answered: Value = serde_json::from_slice(answered).unwrap_or_default();
        for (index, command) in commands.iter().enumerate() {
            let named = command.as_object().into_iter().flatten().next();
            let (operation, request) = named.map_or(("", &Value::Null), |(name, request)| (name.as_str(), request));
            if reads(operation) || place_of(operation) == NO_OPERATION {
                continue;
            }
            let result = match (refused, answered["replies"][index]["error"]["code"].as_u64()) {
                (Some(refused), _) => refused.to_owned(),
                (None, Some(code)) => format!("error {code}"),
                (None, None) => "ok".to_owned(),
            };
            self.note(Some(role), operation, &target(operation, request), &result);
        }
    }

    /// Notes an action of a user of the console.
    fn note(&self, role: Option<ConsoleRole>, what: &str, target: &str, result: &str) {
        let node = self.node();
        node.console.activity.note(Activity {
            at_ms: node.clock.now_ms(),
            node: node.generation().settings.node.name.clone(),
            who: self.origin.remote.address.to_string(),
            role: role.map_or(String::new(), |role| format!("{role:?}").to_lowercase()),
            what: what.to_owned(),
            target: target.to_owned(),
            result: result.to_owned(),
        });
    }

    fn connect(&self, request: &Request<RequestBody>) -> Routed {
        // A browser cannot add its own header fields to a WebSocket request.
        if !has_own_origin(request) {
            let why = "the request is not from the console's own page";
            return Routed::Answer(refuse(StatusCode::FORBIDDEN, Error::PERMISSION_DENIED, why));
        }
        // A client that has not signed in must not use up a permit.
        if self.signed_in(request.headers()).is_none() {
            return Routed::Answer(signed_out());
        }
        live::upgrade(self.origin, request)
    }
}

/// Returns the host that a request names. Over HTTP/2 it is a part of the target.
fn host_of(request: &Request<RequestBody>) -> Option<&str> {
    let named = request.headers().get(HOST).and_then(|value| value.to_str().ok());
    named.or_else(|| request.uri().authority().map(|authority| authority.as_str()))
}

/// Whether a request says that it comes from a page of the host that it names.
fn has_own_origin(request: &Request<RequestBody>) -> bool {
    let origin = request.headers().get(ORIGIN).and_then(|value| value.to_str().ok());
    let authority = origin.and_then(|origin| origin.split_once("://")).map(|(_, authority)| authority);
    authority.zip(host_of(request)).is_some_and(|(authority, host)| host.eq_ignore_ascii_case(authority))
}

/// Whether a host, with or without a port, is an address, or a name that always means this machine.
fn is_local(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    let name = name.to_ascii_lowercase();
    name.parse::<IpAddr>().is_ok() || name == "localhost" || name.ends_with(".localhost")
}

/// Returns the target of a request for the log of changes. For `forget_user` it is empty, so that the log does not name
/// the user.
fn target(operation: &str, request: &Value) -> String {
    if operation == ForgetUserOperation::NAME {
        return String::new();
    }
    let names = ["channel", "user", "client", "name", "endpoint", "jti"];
    names.iter().find_map(|name| request[*name].as_str()).unwrap_or_default().to_owned()
}

fn respond_json(value: &Value) -> HttpResponse {
    with_status(StatusCode::OK, value)
}

fn with_status(status: StatusCode, value: &Value) -> HttpResponse {
    respond::body(status, JSON, value.to_string())
}

fn refuse(status: StatusCode, code: Error, why: &str) -> HttpResponse {
    with_status(status, &error(code, why))
}

fn signed_out() -> HttpResponse {
    refuse(StatusCode::UNAUTHORIZED, Error::UNAUTHORIZED, "you are signed out")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_and_localhost_are_local() {
        for (host, expected) in [
            ("localhost:8000", true),
            ("LOCALHOST", true),
            ("demo.localhost:8000", true),
            ("127.0.0.1:8000", true),
            ("[::1]:8000", true),
            ("10.0.0.7", true),
            ("evil.example:8000", false),
            ("127.0.0.1.evil.example", false),
            ("", false),
        ] {
            assert_eq!(is_local(host), expected, "{host}");
        }
    }
}
