//! Programs that a test starts: their output is kept, and they end with the test.

use std::io::{BufRead as _, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::wait::{until, until_some};

/// A running program. It is killed when the value is dropped.
#[derive(Debug)]
pub struct TestProgram {
    child: Child,
    /// The lines that the program writes to its standard output.
    pub out: OutputLines,
    /// The lines that the program writes to its standard error: the log of a server.
    pub errors: OutputLines,
}

/// The lines of one output of a program, which a thread reads.
#[derive(Debug, Clone)]
pub struct OutputLines(Arc<Mutex<OutputState>>);

#[derive(Debug, Default)]
struct OutputState {
    lines: Vec<String>,
    /// The number of lines that the test has consumed.
    consumed: usize,
    is_over: bool,
}

impl TestProgram {
    /// Starts a program without input, and reads both of its outputs.
    #[track_caller]
    pub fn start(command: &mut Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let started = command.spawn();
        let mut child = started.unwrap_or_else(|error| panic!("{} is not installed: {error}", name_of(command)));
        let out = OutputLines::of(child.stdout.take().expect("the stream is piped"));
        let errors = OutputLines::of(child.stderr.take().expect("the stream is piped"));
        TestProgram { child, out, errors }
    }

    /// The id of the process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The address of a Touchline server. Waits until the server has logged that it is ready.
    #[track_caller]
    pub fn address(&self) -> SocketAddr {
        self.address_after("ready address=")
    }

    /// The address that follows some words in the log. Waits for these words.
    #[track_caller]
    pub fn address_after(&self, words: &str) -> SocketAddr {
        let line = self.errors.find(words);
        let address = line.split(words).nth(1).and_then(|rest| rest.split_whitespace().next()?.parse().ok());
        address.unwrap_or_else(|| panic!("no address after {words:?}: {line}"))
    }

    /// Whether the program has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_some())
    }

    /// Sends a signal, for example `STOP`.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.id().to_string()]).status();
        assert!(sent.is_ok_and(|status| status.success()), "the process {} gets {name}", self.id());
    }

    /// Waits until the program ends by itself.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        until_some("the program ends", || self.child.try_wait().expect("the test owns the process"))
    }

    /// Asks the program to end (SIGTERM), and waits for its end.
    #[track_caller]
    pub fn stop(&mut self) -> ExitStatus {
        self.signal("TERM");
        self.wait()
    }

    /// Kills the program: it ends as in a crash.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for TestProgram {
    fn drop(&mut self) {
        self.kill();
    }
}

impl OutputLines {
    fn of(stream: impl Read + Send + 'static) -> Self {
        let lines = OutputLines(Arc::default());
        let of_thread = lines.clone();
        std::thread::spawn(move || {
            let mut reader = BufReader::new(stream);
            let mut line = Vec::new();
            while reader.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
                of_thread.lock().lines.push(String::from_utf8_lossy(line.trim_ascii_end()).into_owned());
                line.clear();
            }
            of_thread.lock().is_over = true;
        });
        lines
    }

    /// The next line that contains some words. Consumes this line and the lines before it.
    #[track_caller]
    pub fn next(&self, words: &str) -> String {
        let consumed = self.lock().consumed;
        let (at, line) = self.first(words, consumed);
        self.lock().consumed = at + 1;
        line
    }

    /// The first line of all that contains some words. Consumes nothing.
    #[track_caller]
    pub fn find(&self, words: &str) -> String {
        self.first(words, 0).1
    }

    /// All lines so far, each with a line feed.
    pub fn text(&self) -> String {
        self.lock().lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect()
    }

    /// All lines, each with a line feed. Waits for the end of the output.
    #[track_caller]
    pub fn all(&self) -> String {
        until("the output ends", || self.lock().is_over);
        self.text()
    }

    #[track_caller]
    fn first(&self, words: &str, from: usize) -> (usize, String) {
        let found = until_some(format_args!("the output has {words:?}"), || {
            let state = self.lock();
            let found = state.lines.iter().enumerate().skip(from).find(|(_, line)| line.contains(words));
            let found = found.map(|(at, line)| (at, line.clone()));
            (found.is_some() || state.is_over).then_some(found)
        });
        found.unwrap_or_else(|| panic!("the output ended without {words:?}: {}", self.text()))
    }

    fn lock(&self) -> MutexGuard<'_, OutputState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn name_of(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_consumed_in_order_and_found_from_the_beginning() {
        let script = "echo one; echo two; echo ready address=127.0.0.1:5 >&2; exec sleep 600";
        let mut program = TestProgram::start(Command::new("sh").args(["-c", script]));
        assert_eq!(program.out.next("t"), "two");
        assert_eq!(program.out.find("o"), "one");
        assert_eq!(program.address().port(), 5);
        assert!(!program.has_ended());
        assert_eq!(program.stop().code(), None);
        assert_eq!(program.out.all(), "one\ntwo\n");
    }
}
