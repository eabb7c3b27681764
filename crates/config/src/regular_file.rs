//! Reads files that a configuration names.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// The content of a regular file of at most `size_max` bytes.
///
/// # Errors
/// When the file cannot be read, is not a regular file (opening a pipe could block for ever), or is too large.
pub fn read_regular_file(path: &Path, size_max: u64) -> io::Result<Vec<u8>> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?.take(size_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > size_max {
        return Err(io::Error::other(format!("it has more than {size_max} bytes")));
    }
    Ok(bytes)
}

/// As [`read_regular_file`], for a text in UTF-8.
///
/// # Errors
/// As [`read_regular_file`], and when the content is not UTF-8.
pub(crate) fn read_regular_text(path: &Path, size_max: u64) -> io::Result<String> {
    String::from_utf8(read_regular_file(path, size_max)?)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8"))
}
