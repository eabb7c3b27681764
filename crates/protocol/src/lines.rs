//! One message a line, as it comes over bare TCP.

/// The beginning of a line that is not whole yet.
#[derive(Debug, Default)]
pub struct Lines(Vec<u8>);

/// A line is longer than it may be.
#[derive(Debug, PartialEq, Eq)]
pub struct TooLong;

impl Lines {
    /// Gives the next whole line in `input`, of which `at` bytes are used up already, without its end; moves `at` on.
    /// What is incomplete is kept.
    ///
    /// # Errors
    /// [`TooLong`] above `most` bytes; then nothing more of the connection can be understood.
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

    /// Bytes that are kept.
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
