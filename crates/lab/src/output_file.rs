//! Files that a measurement writes at its end.

use std::fs::OpenOptions;
use std::path::PathBuf;

/// Parses the path of a writable file. The file is opened before the measurement, which takes minutes.
///
/// # Errors
/// When it cannot be written.
pub(crate) fn writable(path: &str) -> Result<PathBuf, String> {
    let opened = OpenOptions::new().create(true).append(true).open(path);
    opened.map(|_| path.into()).map_err(|error| format!("it cannot be written: {error}"))
}
