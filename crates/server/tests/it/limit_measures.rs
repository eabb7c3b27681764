//! What happens when a client ignores refusals, when connects fail, and when a client causes errors. Also which clients
//! are not affected.

use std::io::Write as _;
use std::time::Duration;

use serde_json::{Value, json};
use touchline_testkit::http::{head_of, up_to};
use touchline_testkit::websocket::{Heard, WebSocket, handshake};
use touchline_testkit::{until, until_eq, until_some};

use crate::backend::{Answer, Backend};
use crate::limits::{block, code, codes, connected, counted, each, rate, start, stats};
use crate::support::token;
use crate::unauthenticated::certificate;

/// Long enough for the checks of a test meanwhile, even on a slow machine.
const REFUSED_FOR: Duration = Duration::from_secs(5);

#[test]
fn who_does_not_heed_refusals_is_ended_then_refused_and_let_in_again() {
    let server = start(|settings| {
        let limits = &mut settings.client.rate_limit;
        limits.client_command = each(1);
        limits.client_command.history.enabled = true;
        limits.client_command.history.buckets = rate(100_000);
        limits.address_command.commands.enabled = true;
        limits.address_command.commands.history.enabled = true;
        limits.address_command.commands.history.buckets = rate(1);
        limits.escalation.enabled = true;
        limits.escalation.refusals = 2;
        limits.escalation.refused_for = REFUSED_FOR;
    });
    let (mut socket, _) = connected(&server, "ann");
    assert_eq!(codes(&mut socket, &stats("seen:a"), 9)[1..], [111; 8], "a burst counts once");
    assert_eq!(go_on(&mut socket, &stats("seen:a")), 3013);
    let connect = |user: &str| {
        let mut socket = server.websocket();
        code(&socket.ask(json!({"id": 1, "connect": {"token": token(json!({"sub": user}))}})))
    };
    assert_eq!((connect("ann"), connect("bob")), (111, 0));
    assert_eq!(counted(&server, "rate_limit_refused", "of=\"user\""), 1);
    assert_eq!(counted(&server, "rate_limit_refused_connects_total", "of=\"user\""), 1);
    assert_eq!(counted(&server, "rate_limit_measures_total", "cause=\"escalation\""), 1);
    until("the time is over", || connect("ann") == 0);
    assert_eq!(counted(&server, "rate_limit_refused", "of=\"user\""), 0);
    // A client without a user: only the connection is ended.
    let mut nobody = server.connected();
    assert_eq!(go_on(&mut nobody, &stats("seen:a")), 3013);
    assert_eq!(counted(&server, "rate_limit_measures_total", "cause=\"escalation\""), 2);
    // With the rates of an address, the address is refused. Connected clients stay.
    let mut waiting = server.websocket();
    let (mut bob, _) = connected(&server, "bob");
    let status = || {
        let mut socket = server.socket();
        socket.write_all(handshake("").as_bytes()).expect("the server listens");
        head_of(&mut socket).split(' ').nth(1).unwrap_or_default().to_owned()
    };
    until("the address is refused", || {
        codes(&mut bob, &json!({"history": {"channel": "history:a"}}), 1);
        status() == "429"
    });
    assert_eq!(counted(&server, "rate_limit_refused", "of=\"user\""), 0, "no user is refused for it");
    assert_eq!(code(&waiting.ask(json!({"id": 1, "connect": {}}))), 111, "it was open already");
    assert!(server.publish("news", json!(1))["result"].is_object(), "the server API is not refused");
    assert_eq!(counted(&server, "rate_limit_refused", "of=\"address\""), 1);
    until("the time is over", || status() == "101");
}

/// Sends the same command repeatedly until the connection is ended. Returns the code of the end.
fn go_on(socket: &mut WebSocket, command: &Value) -> u16 {
    let mut command = command.clone();
    command["id"] = json!(5_000);
    until_some("the connection ends", || {
        socket.send_json(&command);
        match socket.next_message() {
            Err(Heard::Close(code, _)) => Some(code),
            _ => None,
        }
    })
}

#[test]
fn a_page_of_another_site_cannot_have_its_visitor_refused() {
    let server = start(|settings| {
        settings.uni_sse.enabled = true;
        settings.client.allowed_origins = vec!["https://live.test".into()];
        let failed = &mut settings.client.rate_limit.failed_connect;
        failed.enabled = true;
        failed.buckets = rate(1);
    });
    let status = |headers: &str| {
        let target = "/connection/uni_sse?cf_connect=%7B%22token%22%3A%22x%22%7D";
        let mut socket = server.socket();
        let request = format!("GET {target} HTTP/1.1\r\nHost: t\r\n{headers}\r\n");
        socket.write_all(request.as_bytes()).expect("the server listens");
        head_of(&mut socket).split(' ').nth(1).unwrap_or_default().to_owned()
    };
    for site in ["cross-site", "same-site"] {
        for _ in 0..5 {
            assert_eq!(status(&format!("Sec-Fetch-Site: {site}\r\nSec-Fetch-Mode: no-cors\r\n")), "403");
        }
    }
    let allowed = "Sec-Fetch-Site: cross-site\r\nOrigin: https://live.test\r\n";
    assert_eq!([allowed, "Sec-Fetch-Site: same-origin\r\n", ""].map(status), ["200", "200", "429"]);
}

#[test]
fn guesses_in_parallel_reach_the_backend_no_more_often_than_one_by_one() {
    let backend = Backend::start(|question| {
        let answer = match question.body["data"].as_u64() {
            Some(0) => json!({"result": {"user": "ann"}}),
            _ => json!({"error": {"code": 401, "message": "no"}}),
        };
        Answer::Late(Duration::from_millis(300), Box::new(Answer::Json(answer)))
    });
    let server = start(|settings| {
        settings.client.proxy.connect.enabled = true;
        settings.client.proxy.connect.proxy.endpoint = backend.url("/connect");
        settings.client.rate_limit.failed_connect.enabled = true;
        settings.client.rate_limit.failed_connect.buckets = rate(2);
    });
    let ask = |sockets: &mut [WebSocket]| {
        for (number, socket) in (1..).zip(sockets.iter_mut()) {
            socket.send_json(json!({"id": 1, "connect": {"data": number}}));
        }
        let mut codes: Vec<u64> = sockets.iter_mut().map(|socket| code(&socket.message())).collect();
        codes.sort_unstable();
        codes
    };
    let mut right = server.websocket();
    assert_eq!(code(&right.ask(json!({"id": 1, "connect": {"data": 0}}))), 0);
    let mut sockets: Vec<_> = (0..20).map(|_| server.websocket()).collect();
    let found = ask(&mut sockets);
    assert_eq!((found[16], found[17], found[19]), (111, 401, 401), "{found:?}");
    assert_eq!(backend.questions().len(), 4);
    assert_eq!(counted(&server, "rate_limit_measures_total", "cause=\"failed_connect\""), 1);
}

#[test]
fn a_user_who_is_blocked_has_proved_who_he_is() {
    let server = start(|settings| {
        settings.client.rate_limit.failed_connect.enabled = true;
        settings.client.rate_limit.failed_connect.buckets = rate(1);
    });
    server.api("block_user", json!({"user": "eve"}));
    for _ in 0..5 {
        let mut socket = server.websocket();
        socket.send_json(json!({"id": 1, "connect": {"token": token(json!({"sub": "eve"}))}}));
        assert!(matches!(socket.close(), Heard::Close(..)));
    }
    connected(&server, "ann");
}

#[test]
fn an_address_whose_connects_fail_is_refused_for_a_while() {
    let server = start(|settings| {
        settings.tcp.enabled = true;
        settings.tcp.address = "127.0.0.1".into();
        settings.tcp.port = 0;
        settings.http_server.trusted_proxies = vec!["127.0.0.1".into()];
        settings.client.allow_anonymous_connect_without_token = false;
        let failed = &mut settings.client.rate_limit.failed_connect;
        failed.enabled = true;
        failed.buckets = rate(2);
        failed.refused_for = REFUSED_FOR;
    });
    let status = |address: &str| {
        let mut socket = server.socket();
        let head = handshake(&format!("X-Forwarded-For: {address}\r\n"));
        socket.write_all(head.as_bytes()).expect("the server listens");
        (head_of(&mut socket).split(' ').nth(1).unwrap_or_default().to_owned(), WebSocket::from(socket))
    };
    let try_token = |token: Value| {
        let (found, mut socket) = status("203.0.113.1");
        assert_eq!(found, "101");
        socket.send_json(json!({"id": 1, "connect": {"token": token}}));
        socket.next_message()
    };
    let old = token(json!({"sub": "ann", "exp": 1}));
    for _ in 0..5 {
        assert_eq!(try_token(json!(old)).expect("a reply")["error"]["code"], 109, "an old token is not a failure");
    }
    assert!(matches!(try_token(json!("forged")), Err(Heard::Close(3500, _))));
    assert!(matches!(try_token(json!("")), Err(Heard::Close(3507, _))));
    assert!(try_token(json!(token(json!({"sub": "ann"})))).is_ok(), "two may fail");
    assert!(matches!(try_token(json!("forged")), Err(Heard::Close(3500, _))));
    assert_eq!(status("203.0.113.1").0, "429");
    assert_eq!(status("203.0.113.2").0, "101", "another address");
    assert_eq!(counted(&server, "rate_limit_measures_total", "cause=\"failed_connect\""), 1);
    until("the time is over", || status("203.0.113.1").0 == "101");
    // Lines have the address of their socket.
    for _ in 0..3 {
        let mut socket = server.line_socket();
        socket.write_all(b"{\"id\":1,\"connect\":{\"token\":\"forged\"}}\n").expect("it listens");
        assert!(up_to("\n", &mut socket).contains("3500"));
    }
    let mut socket = server.line_socket();
    let _ = socket.write_all(b"{\"id\":1,\"connect\":{}}\n");
    assert_eq!(up_to("\n", &mut socket), "", "it is closed");
}

#[test]
fn refusals_of_the_connect_hook_are_failures_and_its_faults_are_not() {
    let backend = Backend::start(|question| match question.body["data"].as_str() {
        Some("busy") => Answer::Json(json!({"error": {"code": 450, "message": "later", "temporary": true}})),
        Some("error") => Answer::Json(json!({"error": {"code": 401, "message": "who are you"}})),
        Some("end") => Answer::Json(json!({"disconnect": {"code": 4501, "reason": "banned"}})),
        _ => Answer::Status(500, String::new()),
    });
    let server = start(|settings| {
        settings.client.proxy.connect.enabled = true;
        settings.client.proxy.connect.proxy.endpoint = backend.url("/connect");
        let failed = &mut settings.client.rate_limit.failed_connect;
        failed.enabled = true;
        failed.buckets = rate(1);
    });
    let mut waiting = server.websocket();
    let connect = |data: &str| {
        let mut socket = server.websocket();
        socket.send_json(json!({"id": 1, "connect": {"data": data}}));
        socket.next_message().map(|reply| code(&reply))
    };
    for _ in 0..3 {
        assert_eq!((connect("busy"), connect("fault")), (Ok(450), Ok(100)));
    }
    assert_eq!(connect("end"), Err(Heard::Close(4501, "banned".into())));
    assert_eq!(connect("error"), Ok(401));
    assert_eq!(code(&waiting.ask(json!({"id": 1, "connect": {"data": "busy"}}))), 111, "the backend is not asked");
    assert_eq!(counted(&server, "rate_limit_measures_total", "cause=\"failed_connect\""), 1);
}

#[test]
fn a_refused_address_is_closed_before_its_tls_handshake_where_only_clients_come() {
    let certificate = certificate("limits");
    let server = certificate.server(|settings| {
        settings.http_server.internal_port = Some(0);
        settings.http_server.tls_external = true;
        let limits = &mut settings.client.rate_limit;
        limits.address_command.commands.enabled = true;
        limits.address_command.commands.presence_stats.enabled = true;
        limits.address_command.commands.presence_stats.buckets = rate(1);
        limits.escalation.enabled = true;
        limits.escalation.refusals = 1;
        limits.escalation.refused_for = REFUSED_FOR;
    });
    // Whether the TLS handshake succeeds, and the stream if the WebSocket handshake succeeds too.
    let come = || {
        let mut stream = certificate.agree(server.socket());
        let _ = stream.write_all(handshake("").as_bytes());
        let is_let_in = !stream.conn.is_handshaking();
        (is_let_in, (is_let_in && head_of(&mut stream).starts_with("HTTP/1.1 101")).then_some(stream))
    };
    let mut stream = come().1.expect("it is accepted");
    let frame = |command: Value| touchline_testkit::websocket::frame(0x81, command.to_string().as_bytes());
    stream.write_all(&frame(json!({"id": 1, "connect": {}}))).expect("it is open");
    for id in 2..5 {
        let _ = stream.write_all(&frame(json!({"id": id, "presence_stats": {"channel": "seen:a"}})));
    }
    let said = up_to("too many requests", &mut stream);
    assert!(said.ends_with("too many requests"), "{said:?}");
    assert!(!come().0, "no handshake");
    until("the time is over", || come().0);
}

#[test]
fn a_client_that_causes_errors_is_ended() {
    let limited = |is_trial: bool| {
        start(|settings| {
            let errors = &mut settings.client.rate_limit.client_error;
            errors.enabled = true;
            errors.dry_run = is_trial;
            errors.total = block(3);
        })
    };
    let server = limited(false);
    let (mut socket, _) = connected(&server, "ann");
    let wrong = json!({"subscribe": {"channel": "nowhere:a"}});
    assert_eq!(codes(&mut socket, &wrong, 4), [102; 4]);
    assert!(matches!(socket.close(), Heard::Close(3509, _)));
    assert_eq!(counted(&server, "rate_limit_measures_total", "cause=\"client_error\""), 1);
    let trial = limited(true);
    let (mut socket, _) = connected(&trial, "ann");
    assert_eq!(codes(&mut socket, &wrong, 9), [102; 9]);
    until_eq(6, || trial.metric("touchline_rate_limit_allowed_errors_total"));
}

#[test]
fn what_is_temporary_or_old_is_no_error_of_the_client() {
    let backend = Backend::start(|question| match question.body["method"].as_str() {
        Some("busy") => Answer::Json(json!({"error": {"code": 1005, "message": "later", "temporary": true}})),
        Some("no") => Answer::Json(json!({"error": {"code": 1006, "message": "no"}})),
        _ => Answer::Status(500, String::new()),
    });
    let server = start(|settings| {
        settings.rpc.proxy.endpoint = backend.url("/rpc");
        settings.rpc.without_namespace.proxy_enabled = true;
        let limits = &mut settings.client.rate_limit;
        limits.client_command.enabled = true;
        limits.client_command.presence_stats.enabled = true;
        limits.client_command.presence_stats.buckets = rate(1);
        limits.client_error.enabled = true;
        limits.client_error.total = block(2);
    });
    let (mut socket, _) = connected(&server, "ann");
    assert_eq!(codes(&mut socket, &json!({"rpc": {"method": "x"}}), 3), [100; 3]);
    assert_eq!(codes(&mut socket, &json!({"rpc": {"method": "busy"}}), 3), [1005; 3]);
    assert_eq!(codes(&mut socket, &stats("seen:a"), 4), [0, 111, 111, 111]);
    let old = token(json!({"sub": "ann", "channel": "seen:a", "exp": 1}));
    assert_eq!(codes(&mut socket, &json!({"subscribe": {"channel": "seen:a", "token": old}}), 4), [109; 4]);
    assert_eq!(codes(&mut socket, &json!({"rpc": {"method": "no"}}), 3), [1006; 3]);
    assert!(matches!(socket.close(), Heard::Close(3509, _)));
}
