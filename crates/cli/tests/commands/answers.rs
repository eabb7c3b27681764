//! The commands that call the server API, against servers with faults: one never answers, and one repeats what it
//! received.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;

use touchline_testkit::until;

use super::{run, text};

const SENT_KEY: &str = "a-key-that-nobody-may-read";

/// Starts a server for one request and returns its URL. `answer` gets the connection and the head of the request.
fn server(answer: impl FnOnce(&mut TcpStream, &str) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    thread::spawn(move || {
        let (stream, _) = listener.accept().expect("the client comes");
        let mut stream = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") && stream.read_line(&mut head).is_ok_and(|length| length > 0) {}
        answer(stream.get_mut(), &head);
    });
    format!("http://{address}")
}

fn publish(api: &str, more: &[&str]) -> (Option<i32>, String) {
    let output = run(&[&["publish", "news:a", "1", "--api", api, "--key", SENT_KEY], more].concat());
    (output.status.code(), text(&output.stderr))
}

#[test]
fn a_call_ends_in_the_time_that_was_typed() {
    let silent = server(|stream, _| drop(stream.read_to_end(&mut Vec::new())));
    let (code, said) = publish(&silent, &["--timeout", "200ms"]);
    assert!(code == Some(1) && said.contains("it did not arrive in time"), "{said}");
    // Each chunk arrives soon, and the answer never ends.
    let endless = server(|stream, _| {
        let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        stream.write_all(head).expect("the client reads");
        until("the client leaves", || stream.write_all(b"1\r\nx\r\n").is_err());
    });
    let (code, said) = publish(&endless, &["--timeout", "300ms"]);
    assert!(code == Some(1) && said.contains("the rest did not arrive in time"), "{said}");
    let (code, said) = publish("http://127.0.0.1:9", &["--timeout", "0s"]);
    assert!(code == Some(2) && said.contains("expected a duration from 1ms"), "{said}");
}

#[test]
fn an_error_that_repeats_the_request_shows_no_key() {
    for status in ["200 OK", "400 No", "500 Oh"] {
        let echo = server(move |stream, head| {
            let length = head.len();
            let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{head}");
            stream.write_all(answer.as_bytes()).expect("the client reads");
        });
        let (code, said) = publish(&echo, &[]);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("POST /api/publish"), "it is an excerpt: {said}");
        assert!(!said.contains("that-nobody") && said.contains('…') && !said.contains(SENT_KEY), "{said}");
    }
}
