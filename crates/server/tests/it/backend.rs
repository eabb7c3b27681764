//! A backend that answers hooks: a small HTTP server of the test, which records its questions.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;

/// A question that the backend has received.
#[derive(Debug, Clone)]
pub(crate) struct Question {
    pub(crate) path: String,
    /// The header fields, with their names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Value,
    /// The bytes of the body, as text.
    pub(crate) text: String,
}

impl Question {
    /// The values of a header field.
    pub(crate) fn header(&self, name: &str) -> Vec<&str> {
        self.headers.iter().filter(|(key, _)| key == name).map(|(_, value)| value.as_str()).collect()
    }
}

/// What the backend does with a question.
pub(crate) enum Answer {
    /// Answers 200 with this JSON.
    Json(Value),
    /// Answers with a status and a body.
    Status(u16, String),
    /// Sends these bytes instead of an HTTP answer, then closes the connection.
    Raw(Vec<u8>),
    /// Gives this answer after a time.
    Late(Duration, Box<Answer>),
}

type Decide = dyn Fn(&Question) -> Answer + Send + Sync;

/// A backend that runs until it is dropped.
pub(crate) struct Backend {
    pub(crate) address: SocketAddr,
    questions: Arc<Mutex<Vec<Question>>>,
    /// The number of connections that were accepted.
    pub(crate) connections: Arc<AtomicUsize>,
    /// The number of questions that have no answer yet.
    pub(crate) under_way: Arc<AtomicUsize>,
    /// The most questions that had no answer at the same time.
    pub(crate) most: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
}

impl Backend {
    pub(crate) fn start(decide: impl Fn(&Question) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let backend = Backend {
            address,
            questions: Arc::default(),
            connections: Arc::default(),
            under_way: Arc::default(),
            most: Arc::default(),
            is_over: Arc::default(),
        };
        let decide: Arc<Decide> = Arc::new(decide);
        let (questions, connections) = (Arc::clone(&backend.questions), Arc::clone(&backend.connections));
        let (under_way, most) = (Arc::clone(&backend.under_way), Arc::clone(&backend.most));
        let is_over = Arc::clone(&backend.is_over);
        std::thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                if is_over.load(SeqCst) {
                    return;
                }
                connections.fetch_add(1, SeqCst);
                let (decide, questions) = (Arc::clone(&decide), Arc::clone(&questions));
                let (under_way, most) = (Arc::clone(&under_way), Arc::clone(&most));
                std::thread::spawn(move || serve(socket, &*decide, &questions, &under_way, &most));
            }
        });
        backend
    }

    /// The URL of a path of the backend.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The questions that it has received so far.
    pub(crate) fn questions(&self) -> Vec<Question> {
        self.questions.lock().expect("no thread panics with it").clone()
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.is_over.store(true, SeqCst);
        let _ = TcpStream::connect(self.address);
    }
}

fn serve(
    socket: TcpStream,
    decide: &Decide,
    questions: &Mutex<Vec<Question>>,
    under_way: &AtomicUsize,
    most: &AtomicUsize,
) {
    let Ok(mut out) = socket.try_clone() else { return };
    let mut input = BufReader::new(socket);
    while let Some(question) = read(&mut input) {
        most.fetch_max(under_way.fetch_add(1, SeqCst) + 1, SeqCst);
        questions.lock().expect("no thread panics with it").push(question.clone());
        let is_open = write(&mut out, decide(&question));
        under_way.fetch_sub(1, SeqCst);
        if !is_open {
            return;
        }
    }
}

fn read(input: &mut BufReader<TcpStream>) -> Option<Question> {
    let mut line = String::new();
    input.read_line(&mut line).ok()?;
    let path = line.split(' ').nth(1)?.to_owned();
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        input.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let mut body = vec![0; length.map_or(Ok(0), |(_, length)| length.parse()).ok()?];
    input.read_exact(&mut body).ok()?;
    let text = String::from_utf8(body.clone()).expect("the body is text");
    let body = if body.is_empty() { Value::Null } else { serde_json::from_slice(&body).expect("the body is JSON") };
    Some(Question { path, headers, body, text })
}

fn write(out: &mut TcpStream, answer: Answer) -> bool {
    let (status, body) = match answer {
        Answer::Json(json) => (200, json.to_string()),
        Answer::Status(status, body) => (status, body),
        Answer::Raw(bytes) => {
            let _ = out.write_all(&bytes);
            return false;
        }
        Answer::Late(time, answer) => {
            // waits: the backend answers late.
            std::thread::sleep(time);
            return write(out, *answer);
        }
    };
    let head = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n", body.len());
    out.write_all(&[head.as_bytes(), body.as_bytes()].concat()).is_ok()
}
