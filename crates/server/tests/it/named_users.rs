//! Users that a trusted proxy names in a header field: over each transport, behind the PROXY protocol, and together
//! with the certificate of the proxy.

use std::io::{Read, Write};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use touchline_config::ClientUser;
use touchline_server::Settings;
use touchline_testkit::http::up_to;
use touchline_testkit::websocket::{frame, handshake};

use crate::support::TestServer;
use crate::unauthenticated::certificate;

const LOCAL: &str = "127.0.0.1";
const PATHS: [&str; 6] = ["websocket", "uni_websocket", "http_stream", "uni_http_stream", "sse", "uni_sse"];
/// What a proxy may write, and the user that it names; empty = no user.
const FIELDS: [(&str, &str); 9] = [
    ("X-User: 42\r\n", "42"),
    ("x-user:  42\t \r\n", "42"),
    ("X-User: a b\r\n", "a b"),
    ("X-User: \u{a0}42\r\n", "\u{a0}42"),
    ("", ""),
    ("X-User:\r\n", ""),
    ("X-User: \r\n", ""),
    ("X-User: 42\r\nX-User: 42\r\n", ""),
    ("X-User: 42\r\nx-user: 43\r\n", ""),
];

/// A client with a named user has its personal channel from the start, which shows the user's name.
fn named(settings: &mut Settings) {
    settings.http_server.trusted_proxies = vec![LOCAL.into()];
    settings.client.user_id_http_header = "X-User".into();
    settings.client.subscribe_to_user_personal_channel.enabled = true;
    settings.http_stream.enabled = true;
    settings.sse.enabled = true;
    settings.uni_websocket.enabled = true;
    settings.uni_http_stream.enabled = true;
    settings.uni_sse.enabled = true;
}

/// The request by which a client connects over a transport, with these header fields.
fn request(path: &str, fields: &str) -> Vec<u8> {
    let is_one_way = path.starts_with("uni_");
    let command = if is_one_way { "{}" } else { r#"{"id":1,"connect":{}}"# };
    if path.ends_with("websocket") {
        let head = handshake(fields).replace("/connection/websocket", &format!("/connection/{path}"));
        return [head.as_bytes(), &frame(0x81, command.as_bytes())].concat();
    }
    let length = command.len();
    format!(
        "POST /connection/{path} HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\n{fields}\
         Content-Length: {length}\r\n\r\n{command}"
    )
    .into_bytes()
}

/// The user of a connected client; empty = the anonymous user.
fn user(socket: &mut (impl Read + Write), request: &[u8]) -> String {
    socket.write_all(request).expect("the server listens");
    up_to("\"client\":\"", socket);
    // `ping` comes after the subscriptions.
    let rest = up_to("\"ping\":", socket);
    match rest.split_once("\"#") {
        Some((_, name)) => name.split('"').next().unwrap_or_default().to_owned(),
        None => String::new(),
    }
}

#[test]
fn a_trusted_proxy_names_the_user_over_each_transport() {
    let server = TestServer::with(named);
    let distrustful = TestServer::with(|settings| {
        named(settings);
        settings.http_server.trusted_proxies = vec!["10.0.0.0/8".into()];
    });
    for path in PATHS {
        for (fields, expected) in FIELDS {
            let request = request(path, fields);
            assert_eq!(user(&mut server.socket(), &request), expected, "{path} {fields:?}");
            assert_eq!(user(&mut distrustful.socket(), &request), "", "it is not a proxy: {path} {fields:?}");
        }
    }
}

#[test]
fn behind_the_proxy_protocol_the_field_is_the_clients_own() {
    let server = TestServer::with(|settings| {
        named(settings);
        settings.http_server.proxy_protocol = true;
    });
    let binary = |command: u8, family: u8, rest: &[u8]| {
        let head = [b"\r\n\r\n\0\r\nQUIT\n".as_slice(), &[command, family, 0, rest.len() as u8]].concat();
        [&head[..], rest].concat()
    };
    let four = [127, 0, 0, 1, 127, 0, 0, 1, 0, 1, 0, 2];
    for header in [
        b"PROXY UNKNOWN\r\n".to_vec(),
        b"PROXY TCP4 203.0.113.9 127.0.0.1 1 2\r\n".to_vec(),
        // The header of the PROXY protocol names a trusted address.
        b"PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\n".to_vec(),
        binary(0x20, 0x00, &[]),
        binary(0x21, 0x00, &[]),
        binary(0x21, 0x31, &[1; 216]),
        binary(0x21, 0x11, &four),
    ] {
        for path in PATHS {
            for fields in ["X-User: 42\r\n", "X-User: 42\r\nX-Forwarded-For: 127.0.0.1\r\n"] {
                let request = [&header[..], &request(path, fields)].concat();
                assert_eq!(user(&mut server.socket(), &request), "", "{path} {:?}", header.escape_ascii().to_string());
            }
        }
    }
}

#[test]
fn the_certificate_of_a_proxy_names_nobody() {
    let (authority_key, key) = (KeyPair::generate().expect("a key"), KeyPair::generate().expect("a key"));
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = params.self_signed(&authority_key).expect("it signs itself").pem();
    let issuer = Issuer::new(params, authority_key);
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "edge");
    let leaf = params.signed_by(&key, &issuer).expect("it is signed").pem();
    let certificate = certificate("named-users");
    // The header field, the trusted proxies, the user without the field, and the user with it.
    for (header, trusted, alone, both) in
        [("X-User", LOCAL, "", "42"), ("X-User", "10.0.0.0/8", "edge", "edge"), ("", LOCAL, "edge", "edge")]
    {
        let server = certificate.server(|settings| {
            named(settings);
            settings.http_server.trusted_proxies = vec![trusted.into()];
            settings.client.user_id_http_header = header.into();
            settings.http_server.tls.client_ca_pem = authority.clone();
            settings.http_server.tls.client_user = ClientUser::CommonName;
        });
        let chain = || vec![CertificateDer::from_pem_slice(leaf.as_bytes()).expect("PEM")];
        let secret = || PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).expect("PEM");
        let connected = |fields: &str| {
            let mut stream = certificate.agree_as(server.socket(), Some((chain(), secret())));
            user(&mut stream, &request("websocket", fields))
        };
        assert_eq!(connected("X-User: 42\r\n"), both, "{header} {trusted}");
        for fields in ["", "X-User:\r\n", "X-User: 42\r\nX-User: 43\r\n"] {
            assert_eq!(connected(fields), alone, "{header} {trusted} {fields:?}");
        }
    }
}
