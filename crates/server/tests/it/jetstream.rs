//! A JetStream client for tests: it sends requests, and messages into streams.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

use serde_json::{Value, json};
use touchline_testkit::PATIENCE;
use touchline_testkit::nats::NatsServer;

/// A connection to NATS.
pub(crate) struct JetStreamClient(BufReader<TcpStream>);

impl JetStreamClient {
    pub(crate) fn connect(nats: &NatsServer) -> Self {
        let mut socket = TcpStream::connect(("127.0.0.1", nats.port)).expect("NATS listens");
        socket.set_read_timeout(Some(PATIENCE)).expect("sockets have timeouts");
        let hello = b"CONNECT {\"verbose\":false,\"headers\":true,\"no_responders\":true}\r\nSUB answers 1\r\n";
        socket.write_all(hello).expect("NATS reads");
        JetStreamClient(BufReader::new(socket))
    }

    /// Sends a request, and returns the payload of the answer.
    pub(crate) fn ask(&mut self, subject: &str, payload: &str) -> String {
        self.ask_for_more(subject, payload).0
    }

    /// Sends a request. Returns the payload of the answer, and the subject for acknowledging it.
    fn ask_for_more(&mut self, subject: &str, payload: &str) -> (String, String) {
        self.tell(&format!("{subject} answers"), payload);
        loop {
            let mut line = String::new();
            assert!(self.0.read_line(&mut line).expect("NATS answers") > 0, "NATS has closed the connection");
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                ["PING"] => self.0.get_mut().write_all(b"PONG\r\n").expect("NATS reads"),
                ["MSG", _, _, reply @ .., size] => {
                    let mut payload = vec![0; size.parse::<usize>().expect("it is a number") + 2];
                    self.0.read_exact(&mut payload).expect("NATS sends all of it");
                    payload.truncate(payload.len() - 2);
                    let payload = String::from_utf8(payload).expect("it is a text");
                    return (payload, reply.first().map_or_else(String::new, |reply| (*reply).to_owned()));
                }
                ["HMSG" | "-ERR", ..] => panic!("{subject}: {line}"),
                _ => {}
            }
        }
    }

    /// Sends a message without waiting for an answer.
    pub(crate) fn tell(&mut self, subject: &str, payload: &str) {
        let told = format!("PUB {subject} {}\r\n{payload}\r\n", payload.len());
        self.0.get_mut().write_all(told.as_bytes()).expect("NATS reads");
    }

    /// Takes the next message of the durable consumer, as a node does. Returns the subject for acknowledging it.
    pub(crate) fn take(&mut self, durable: &str) -> String {
        self.ask_for_more(&format!("$JS.API.CONSUMER.MSG.NEXT.NEWS.{durable}"), "").1
    }

    /// Sends a request with JSON to the API of JetStream.
    pub(crate) fn api(&mut self, subject: &str, payload: &Value) -> Value {
        let answer = self.ask(&format!("$JS.API.{subject}"), &payload.to_string());
        let answer: Value = serde_json::from_str(&answer).expect("the answer is JSON");
        assert!(answer["error"].is_null(), "{subject}: {answer}");
        answer
    }

    /// Creates the stream `NEWS`.
    pub(crate) fn make_stream(&mut self) {
        self.api("STREAM.CREATE.NEWS", &json!({"name": "NEWS", "subjects": ["news.>"], "storage": "memory"}));
    }

    /// Stores a command in the stream.
    pub(crate) fn command(&mut self, method: &str, payload: Value) {
        let stored = self.ask("news.a", &json!({"method": method, "payload": payload}).to_string());
        assert!(stored.contains("\"seq\""), "{stored}");
    }
}
