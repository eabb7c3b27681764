//! Splits the bytes of a TCP connection into lines. Each line is one message.

/// The beginning of a line that is not complete yet.
#[derive(Debug, Default)]
pub struct Lines(Vec<u8>);

/// The error for a line that exceeds the maximum length.
#[derive(Debug, PartialEq, Eq)]
pub struct TooLong;

impl Lines {
    /// Returns the next complete line in `input` without its line end. `at` is the number of bytes that are consumed
    /// already, and the method advances it. An incomplete line is kept for the next call.
    ///
    /// # Errors
    /// [`TooLong`] if the line exceeds `most` bytes. The rest of the connection can then not be parsed.
    pub fn next(&mut self, input: &[u8], at: &mut usize, most: usize) -> Result<Option<Vec<u8>>, TooLong> {
        let rest = &input[*at..];
        let end = rest.iter().position(|byte| *byte == b'\n');
        let before = self.0.len();
        if before + end.unwrap_or(rest.len()) > most {
            return Err(TooLong);
        }
        let Some(end) = end else {
            self.0.extend_from_slice(rest);
            *at = input.len();
            return Ok(None);
        };
        *at += end + 1;
        let mut line = std::mem::take(&mut self.0);
        line.extend_from_slice(&rest[..end]);
        line.truncate(line.trim_ascii_end().len());
        Ok(Some(line))
    }

    /// The number of bytes kept from an incomplete line.
    pub fn buffered_bytes(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_whole_however_they_arrive() {
        let text = b"{\"id\":1}\r\n\n{\"id\":2}\n{\"id\"";
        for step in 1..=text.len() {
            let (mut lines, mut all) = (Lines::default(), Vec::new());
            for part in text.chunks(step) {
                let mut at = 0;
                while let Some(line) = lines.next(part, &mut at, 100).expect("no line is long") {
                    all.push(String::from_utf8(line).expect("it is text"));
                }
            }
            assert_eq!(all, ["{\"id\":1}", "", "{\"id\":2}"], "in steps of {step}");
        }
    }

    #[test]
    fn a_long_line_is_refused_before_it_is_kept() {
        let mut lines = Lines::default();
        assert_eq!(lines.next(&[b'x'; 60], &mut 0, 100), Ok(None));
        assert_eq!(lines.buffered_bytes(), 60);
        assert_eq!(lines.next(&[b'x'; 60], &mut 0, 100), Err(TooLong));
        assert_eq!(Lines::default().next(b"0123456789\n", &mut 0, 9), Err(TooLong));
    }
}
