//! Lines that are not valid commands.

use touchline_protocol::{Disconnect, Error};

use super::context::Context;
use super::counts::CommandMethod;
use super::refusal::NO_COMMAND;
use super::state::Session;
use super::transport::TransportMode;

/// The number of mistakes (lines that are not valid commands) that a client may make, in addition to one for each
/// [`COMMANDS_PER_MISTAKE`] commands.
const MISTAKES_MAX: u8 = 10;
/// The number of valid commands that cancel out one mistake.
const COMMANDS_PER_MISTAKE: u8 = 100;

impl Session {
    /// Counts a valid command. [`COMMANDS_PER_MISTAKE`] of them cancel out one mistake.
    pub(super) fn note_command(&mut self) {
        if self.mistakes > 0 {
            self.commands_since_mistake += 1;
            if self.commands_since_mistake == COMMANDS_PER_MISTAKE {
                (self.mistakes, self.commands_since_mistake) = (self.mistakes - 1, 0);
            }
        }
    }

    /// Counts an input that is not a valid command. A person who types lines may make several mistakes. A web page that
    /// makes a browser send an HTTP request may make none: what follows the request's head would be commands of the
    /// page.
    pub(super) fn note_mistake(&mut self, input: &[u8], context: &mut Context<'_>) {
        if self.transport != TransportMode::Lines {
            return context.refuse_input(NO_COMMAND);
        }
        self.mistakes = self.mistakes.saturating_add(1);
        context.effects.method = CommandMethod::None;
        context.effects.refuse(0, Error::NOT_A_COMMAND);
        let is_page = !self.is_connected() && is_request_line(input);
        if is_page || self.mistakes >= MISTAKES_MAX {
            context.disconnect(Disconnect::TOO_MANY_ERRORS);
        }
    }
}

/// Whether a line is the first line of an HTTP/1 request (RFC 9112 section 3): a method, a target and the version.
fn is_request_line(line: &[u8]) -> bool {
    let mut words = line.trim_ascii().split(|byte| *byte == b' ');
    let is_method = words
        .next()
        .is_some_and(|word| !word.is_empty() && word.iter().all(|byte| byte.is_ascii_uppercase() || *byte == b'-'));
    is_method && words.next_back().is_some_and(|word| word.starts_with(b"HTTP/1."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_lines_are_told_from_other_lines() {
        for line in ["POST / HTTP/1.1", "GET /a?b=c HTTP/1.0\r", "M-SEARCH * HTTP/1.1\r\n", "POST  /  HTTP/1.1"] {
            assert!(is_request_line(line.as_bytes()), "{line}");
        }
        for line in ["", "hello", "{\"id\":1,\"connect\":{}", "Host: HTTP/1.1", "post / HTTP/1.1", "GET", "HTTP/1.1"] {
            assert!(!is_request_line(line.as_bytes()), "{line}");
        }
    }
}
