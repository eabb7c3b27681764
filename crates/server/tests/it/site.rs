//! The pages, assets and routes of a program that embeds the server.

use std::io::Read;
use std::time::Duration;

use flate2::read::GzDecoder;
use touchline_server::http::{Request, Response};
use touchline_server::{Bytes, Server, Settings, Site, SiteFile, StartError};
use touchline_testkit::http::{head_of, to_the_end};

use crate::support::{TestServer, settings};

const SCRIPT: &[u8] = include_bytes!("site.rs");
const PAGE: &[u8] = b"<!doctype html><script type=module src=\"/app/main.js\"></script>";

fn site(script: &'static [u8]) -> Site {
    let file = |path, content_type, body| SiteFile { path, content_type, body };
    Site {
        folder: "/app/",
        pages: vec![file("/", "text/html; charset=utf-8", PAGE)],
        assets: vec![file("main.js", "text/javascript; charset=utf-8", script), file("small.css", "text/css", b"a{}")],
    }
}

fn served(site: Site) -> TestServer {
    let server = Server::builder(settings()).site(site).build().expect("the paths are good");
    TestServer::of(server.start().expect("it starts"))
}

/// Sends a request. Returns the status, the header fields and the body of the answer.
fn get(server: &TestServer, path: &str, fields: &str) -> (u16, String, Vec<u8>) {
    let mut socket = server.socket();
    let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n{fields}\r\n");
    std::io::Write::write_all(&mut socket, request.as_bytes()).expect("the server listens");
    let head = head_of(&mut socket);
    let mut body = Vec::new();
    socket.read_to_end(&mut body).expect("the server closes");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    (status, head.to_ascii_lowercase(), body)
}

/// The value of a header field.
fn field<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

/// The path of the script as the page names it.
fn script_of(server: &TestServer) -> String {
    let (status, head, body) = get(server, "/", "");
    assert_eq!((status, field(&head, "cache-control")), (200, Some("no-cache")), "{head}");
    let page = String::from_utf8(body).expect("it is text");
    page.split('"').nth(1).expect("it names the script").to_owned()
}

#[test]
fn assets_have_names_of_their_content_and_are_kept_for_ever() {
    let server = served(site(SCRIPT));
    let path = script_of(&server);
    let hash = path.strip_prefix("/app/").and_then(|rest| rest.strip_suffix("/main.js")).expect("a folder of a hash");
    assert!(hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()), "{path}");
    let (status, head, body) = get(&server, &path, "");
    assert_eq!((status, &body[..]), (200, SCRIPT));
    assert_eq!(field(&head, "cache-control"), Some("public, max-age=31536000, immutable"));
    assert_eq!(field(&head, "content-type"), Some("text/javascript; charset=utf-8"));
    assert_eq!(get(&server, &format!("/app/{hash}/small.css"), "").0, 200, "modules name each other by relative paths");
    for elsewhere in ["/app/main.js", "/app/0123456789abcdef/main.js", &format!("/app/{hash}/"), &format!("{path}/")] {
        assert_eq!(get(&server, elsewhere, "").0, 404, "{elsewhere}");
    }
    assert_eq!(script_of(&served(site(SCRIPT))), path, "the same content has the same name on every node");
    assert_ne!(script_of(&served(site(PAGE))), path, "another content has another name");
}

#[test]
fn compression_is_used_where_it_is_accepted_and_smaller() {
    let server = served(site(SCRIPT));
    let path = script_of(&server);
    for fields in ["Accept-Encoding: br, gzip\r\n", "Accept-Encoding: br\r\nAccept-Encoding: *\r\n"] {
        let (_, head, body) = get(&server, &path, fields);
        assert_eq!(field(&head, "content-encoding"), Some("gzip"), "{head}");
        assert_eq!(field(&head, "vary"), Some("accept-encoding"));
        let mut plain = Vec::new();
        GzDecoder::new(&body[..]).read_to_end(&mut plain).expect("it is gzip");
        assert!(plain == SCRIPT && body.len() < SCRIPT.len());
    }
    for fields in ["", "Accept-Encoding: identity\r\n", "Accept-Encoding: gzip;q=0, *\r\n"] {
        let (_, head, body) = get(&server, &path, fields);
        assert_eq!((field(&head, "content-encoding"), &body[..]), (None, SCRIPT), "{fields}");
        assert_eq!(field(&head, "vary"), Some("accept-encoding"), "caches between must know");
    }
    let (_, head, _) = get(&server, "/", "Accept-Encoding: gzip\r\n");
    assert_eq!((field(&head, "content-encoding"), field(&head, "vary")), (None, None), "a packet is not made smaller");
}

#[test]
fn what_a_browser_has_already_is_not_sent_again() {
    let server = served(site(SCRIPT));
    for (path, fields) in
        [("/".to_owned(), ""), (script_of(&server), ""), (script_of(&server), "Accept-Encoding: gzip\r\n")]
    {
        let tag = field(&get(&server, &path, fields).1, "etag").expect("a validator").to_owned();
        for tags in [tag.clone(), format!("\"other\", W/{tag}"), "*".to_owned()] {
            let (status, head, body) = get(&server, &path, &format!("{fields}If-None-Match: {tags}\r\n"));
            assert_eq!((status, field(&head, "etag"), body.len()), (304, Some(&tag[..]), 0), "{path} {tags}");
        }
        assert_eq!(get(&server, &path, &format!("{fields}If-None-Match: \"other\"\r\n")).0, 200);
    }
    let path = script_of(&server);
    let plain = field(&get(&server, &path, "").1, "etag").expect("a validator").to_owned();
    let fields = format!("Accept-Encoding: gzip\r\nIf-None-Match: {plain}\r\n");
    assert_eq!(get(&server, &path, &fields).0, 200, "each coding has a validator of its own");
}

#[test]
fn pages_are_read_only_and_have_heads() {
    let server = served(site(SCRIPT));
    let (status, _) = server.http("POST", "/", "", "{}");
    assert_eq!(status, 405);
    let mut socket = server.socket();
    let request = "HEAD / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";
    std::io::Write::write_all(&mut socket, request.as_bytes()).expect("the server listens");
    let answer = to_the_end(&mut socket).to_ascii_lowercase();
    assert!(answer.starts_with("http/1.1 200") && answer.ends_with("\r\n\r\n"), "{answer}");
}

async fn echo(request: Request<Bytes>) -> Response<Bytes> {
    let answer = format!("{} {} {}", request.method(), request.uri(), String::from_utf8_lossy(request.body()));
    Response::new(answer.into())
}

#[test]
fn a_program_answers_paths_of_its_own() {
    let server = Server::builder(settings()).route("/echo", echo).build().expect("the path is good");
    let server = TestServer::of(server.start().expect("it starts"));
    assert_eq!(server.http("POST", "/echo?value=1", "", "hello"), (200, "POST /echo?value=1 hello".to_owned()));
    assert_eq!(server.http("GET", "/echo/", "", "").0, 404, "paths are exact");
    let large = "x".repeat(Settings::default().http_api.body_size_limit + 1);
    assert_eq!(server.http("POST", "/echo", "", &large).0, 413);
}

async fn fail(_: Request<Bytes>) -> Response<Bytes> {
    panic!("a handler of the test fails")
}

async fn hang(_: Request<Bytes>) -> Response<Bytes> {
    std::future::pending().await
}

#[test]
fn a_handler_that_fails_or_hangs_costs_its_own_connection() {
    let mut settings = settings();
    settings.node.shards = 1;
    // Short: the test waits for the timeout.
    settings.http_server.request_timeout = Duration::from_millis(500);
    let builder = Server::builder(settings).route("/fail", fail).route("/hang", hang).route("/echo", echo);
    let server = TestServer::of(builder.build().expect("the paths are good").start().expect("it starts"));
    let ask = |path: &str| {
        let mut socket = server.socket();
        let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n");
        std::io::Write::write_all(&mut socket, request.as_bytes()).expect("the server listens");
        socket
    };
    let hanging: Vec<_> = (0..50).map(|_| ask("/hang")).collect();
    for _ in 0..50 {
        assert_eq!(to_the_end(&mut ask("/fail")), "", "the connection ends");
    }
    assert_eq!(server.http("GET", "/echo", "", "").0, 200, "others are answered");
    for mut socket in hanging {
        assert_eq!(to_the_end(&mut socket), "", "http_server.request_timeout ends it");
    }
    assert_eq!(server.http("GET", "/echo", "", "").0, 200);
}

#[test]
fn a_path_that_is_taken_stops_the_start() {
    let refused = |server: Result<Server, StartError>| server.err().map(|error| error.to_string());
    let with = |path: &str| refused(Server::builder(settings()).route(path, echo).build());
    // read once: the test reads the page, not its values.
    for path in ["/api", "/api/publish", "/connection/websocket", "/livez", "/metrics"] {
        assert_eq!(with(path), Some(format!("the path {path:?} is one that the server answers itself")));
    }
    assert_eq!(with("echo"), Some("the path \"echo\" does not begin with /".to_owned()));
    let twice = Server::builder(settings()).route("/a", echo).route("/a", echo).build();
    assert_eq!(refused(twice), Some("the path \"/a\" has two handlers".to_owned()));
    let both = Server::builder(settings()).route("/", echo).site(site(SCRIPT)).build();
    assert_eq!(refused(both), Some("the path \"/\" has a page and a handler".to_owned()));
    let pages = Server::builder(settings()).site(site(SCRIPT)).site(Site { folder: "/b/", ..site(SCRIPT) }).build();
    assert_eq!(refused(pages), Some("the path \"/\" is that of two pages or assets".to_owned()));
    for folder in ["", "/", "app/", "/app"] {
        let expected = format!("the path {folder:?} is not a folder for assets, such as /app/");
        assert_eq!(refused(Server::builder(settings()).site(Site { folder, ..site(SCRIPT) }).build()), Some(expected));
    }
}
