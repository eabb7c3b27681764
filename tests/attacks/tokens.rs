//! Forged tokens, tokens of another type, and the clients that the server accepts with them.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Instant;

use serde_json::{Value, json};
use touchline_testkit::websocket::WebSocket;

use crate::support::server::{SECRET, Server, configuration, refusal};
use crate::support::token::{signed, token, unsigned};
use crate::support::watch::Watch;
use crate::support::websocket::{Attacker, Told};
use crate::support::{MIB, alone};

const SLACK: u64 = 24 * MIB;
const FAR: u64 = 4_000_000_000;

fn connect(server: &Server, token: &str) -> Told {
    WebSocket::open(server.address).told(&json!({"id": 1, "connect": {"token": token}}))
}

fn hs256() -> Value {
    json!({"alg": "HS256", "typ": "JWT"})
}

#[test]
fn no_forged_token_opens_a_connection() {
    let _alone = alone();
    let server = Server::start();
    let claims = json!({"sub": "ann", "exp": FAR});
    let good = token(&claims);
    let mut parts = good.split('.');
    let (head, body, tag) =
        (parts.next().expect("head"), parts.next().expect("claims"), parts.next().expect("signature"));
    let with = |header: Value| signed(&header, &claims, SECRET.as_bytes());
    let of = |claims: Value| signed(&hs256(), &claims, SECRET.as_bytes());
    let forged = [
        unsigned(&json!({"alg": "none"}), &claims),
        unsigned(&json!({"alg": "None"}), &claims),
        unsigned(&hs256(), &claims),
        format!("{head}.{body}.{}", &tag[1..]),
        format!("{head}.{body}.{tag}="),
        format!("{head}.{body}"),
        format!("{head}.{body}.{tag}.{tag}"),
        signed(&hs256(), &claims, b"another secret"),
        signed(&hs256(), &claims, b""),
        with(json!({"alg": "HS512"})),
        with(json!({"alg": "RS256"})),
        with(json!({"alg": "ES256"})),
        with(json!({"alg": "none"})),
        with(json!({"alg": ["HS256"]})),
        with(json!({"typ": "JWT"})),
        with(json!({"alg": "HS256", "crit": ["exp"]})),
        with(json!({"alg": "HS256", "crit": ["b64"], "b64": false})),
        of(json!({"sub": "ann", "exp": 1})),
        of(json!({"sub": "ann", "exp": "never"})),
        of(json!({"sub": "ann", "nbf": FAR})),
        of(json!({"sub": 1, "exp": FAR})),
        of(json!(["ann"])),
        "..".to_owned(),
        "a.b.c".to_owned(),
        "x".repeat(60_000),
    ];
    let mut watch = Watch::begin("forged connection tokens", &server);
    assert_eq!(connect(&server, &good), Told::Done, "the good one is good");
    let told: Vec<Told> = forged.iter().map(|forged| connect(&server, forged)).collect();
    let let_in: Vec<&String> =
        forged.iter().zip(&told).filter(|(_, told)| **told == Told::Done).map(|(forged, _)| forged).collect();
    watch.told(format!("{} of {} let in", let_in.len(), forged.len()));
    let mut codes = told.clone();
    codes.sort();
    codes.dedup();
    watch.told(format!("{codes:?}"));
    watch.end(SLACK);
    assert_eq!(let_in, Vec::<&String>::new());
}

/// Starts an endpoint with one key, which has signed no token here. Returns its URL and its number of requests.
fn endpoint() -> (String, Arc<AtomicU64>) {
    let key = r#"{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"k","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let url = format!("http://{}/keys", listener.local_addr().expect("it is bound"));
    let asked = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&asked);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            count.fetch_add(1, SeqCst);
            let mut stream = BufReader::new(stream);
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") && stream.read_line(&mut head).is_ok_and(|length| length > 0) {}
            let length = key.len();
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{key}");
            let _ = stream.get_mut().write_all(answer.as_bytes());
        }
    });
    (url, asked)
}

#[test]
fn invented_kids_make_the_server_ask_nobody() {
    let _alone = alone();
    let (url, asked) = endpoint();
    let began = Instant::now();
    let server = Server::with(&json!({
        "client": {"subscription_token": {"enabled": true, "jwks_public_endpoint": url}},
    }));
    let mut watch = Watch::begin("5,000 tokens with invented kids of 2 KB", &server);
    let mut client = WebSocket::open(server.address);
    client.must(json!({"id": 1, "connect": {}}));
    let claims = json!({"sub": "", "channel": "shut:a"});
    let mut told: Vec<Told> = (0..5_000)
        .map(|number| {
            let header = json!({"alg": "EdDSA", "kid": format!("{number}{}", "x".repeat(2_000))});
            let token = signed(&header, &claims, SECRET.as_bytes());
            client.told(&json!({"id": number + 2, "subscribe": {"channel": "shut:a", "token": token}}))
        })
        .collect();
    told.sort();
    told.dedup();
    let (fetches, seconds) = (asked.load(SeqCst), began.elapsed().as_secs());
    watch.told(format!("{told:?}"));
    watch.told(format!("{fetches} fetches"));
    watch.end(SLACK);
    assert_eq!(told, [Told::Error(100)]);
    assert!(fetches <= 1 + seconds / 10, "{fetches} fetches in {seconds} s");
}

#[test]
fn a_subscription_token_neither_opens_nor_refreshes_a_connection() {
    let _alone = alone();
    let server = Server::start();
    let subscription = token(&json!({"sub": "ann", "channel": "shut:a", "exp": FAR}));
    let mut watch = Watch::begin("a subscription token as a connection token", &server);
    let told = connect(&server, &subscription);
    let mut client = WebSocket::open(server.address);
    client.must(json!({"id": 1, "connect": {"token": token(&json!({"sub": "ann", "exp": FAR}))}}));
    let subscribed = client.told(&json!({"id": 2, "subscribe": {"channel": "shut:a", "token": subscription}}));
    let refreshed = client.told(&json!({"id": 3, "refresh": {"token": subscription}}));
    watch.told(format!("{told:?} at connect, {refreshed:?} at refresh"));
    watch.end(SLACK);
    assert_eq!(subscribed, Told::Done, "the token is valid for its channel");
    assert_eq!((told, refreshed), (Told::Closed(3500), Told::Closed(3500)));
}

#[test]
fn a_token_for_one_channel_opens_no_other() {
    let _alone = alone();
    let server = Server::start();
    let mut watch = Watch::begin("subscription tokens of others", &server);
    let cases = [
        json!({"sub": "ann", "channel": "shut:b", "exp": FAR}),
        json!({"sub": "bob", "channel": "shut:a", "exp": FAR}),
        json!({"sub": "ann", "channel": "shut:a", "exp": 1}),
        json!({"sub": "ann", "exp": FAR}),
        json!({"sub": "ann", "channel": "shut:a", "client": "another", "exp": FAR}),
    ];
    for claims in cases {
        let mut client = WebSocket::open(server.address);
        client.must(json!({"id": 1, "connect": {"token": token(&json!({"sub": "ann", "exp": FAR}))}}));
        let told = client.told(&json!({"id": 2, "subscribe": {"channel": "shut:a", "token": token(&claims)}}));
        watch.told(format!("{told:?}"));
        assert_ne!(told, Told::Done, "{claims}");
    }
    watch.end(SLACK);
}

#[test]
fn ids_of_clients_cannot_be_computed_from_ones_own() {
    let _alone = alone();
    let server = Server::with(&json!({"node": {"shards": 1}}));
    let id = || {
        let reply = WebSocket::open(server.address).must(json!({"id": 1, "connect": {}}));
        let text = reply["connect"]["client"].as_str().expect("a client has an id").replace('-', "");
        u64::from_str_radix(&text[..16], 16).expect("it is hexadecimal")
    };
    let ids: Vec<u64> = (0..5).map(|_| id().swap_bytes()).collect();
    // Some later steps of Marsaglia's generator. Six bits of an id are fixed (version, variant), so they may differ.
    let step = |mut state: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let watch = Watch::begin("the next client's id from one's own", &server);
    for pair in ids.windows(2) {
        let is_foreseen = (0..16u64).any(|version| {
            // The version replaces four bits of the seventh byte.
            let mut state = (pair[0] & !(0xf0 << 48)) | version << 52;
            (0..12).any(|_| {
                state = step(state);
                (state ^ pair[1]) & !(0xf0 << 48) == 0
            })
        });
        assert!(!is_foreseen, "{pair:x?}");
    }
    watch.end(SLACK);
}

#[test]
fn a_users_connection_limit_holds_over_the_node_and_before_the_reply() {
    let _alone = alone();
    let server = Server::with(&json!({"client": {"user_connection_limit": 2}, "node": {"shards": 4}}));
    let token = token(&json!({"sub": "ann", "exp": FAR}));
    let mut watch = Watch::begin("12 connections of a user who may have 2", &server);
    let mut clients: Vec<WebSocket> = (0..12).map(|_| WebSocket::open(server.address)).collect();
    let told: Vec<Told> =
        clients.iter_mut().map(|client| client.told(&json!({"id": 1, "connect": {"token": token}}))).collect();
    let let_in = told.iter().filter(|told| **told == Told::Done).count();
    watch.told(format!("{let_in} let in, the others {:?}", told.last()));
    watch.end(SLACK);
    assert_eq!(let_in, 2, "{told:?}");
    assert!(told.iter().all(|told| matches!(told, Told::Done | Told::Closed(3504))), "{told:?}");
}

#[test]
fn an_empty_separator_lets_no_user_into_anothers_channel() {
    let _alone = alone();
    let mut namespaces = configuration()["channel"]["namespaces"].clone();
    if let Some(list) = namespaces.as_array_mut() {
        list.push(json!({"name": "mine", "allow_user_limited_channels": true}));
    }
    let changes = json!({"channel": {"namespaces": namespaces, "user_separator": ""}});
    if refusal(&changes).is_some() {
        return;
    }
    let server = Server::with(&changes);
    let mut watch = Watch::begin("user 1 at the channel of user 12", &server);
    let told = |user: &str| {
        let mut client = WebSocket::open(server.address);
        client.must(json!({"id": 1, "connect": {"token": token(&json!({"sub": user, "exp": FAR}))}}));
        client.told(&json!({"id": 2, "subscribe": {"channel": "mine:a#12"}}))
    };
    let (foreign, own) = (told("1"), told("12"));
    watch.told(format!("{foreign:?}"));
    watch.end(SLACK);
    assert_eq!((foreign, own), (Told::Error(103), Told::Done));
}
