//! Settings that contain PEM: the text itself, its base64, or the path of a file. The value may be a secret in any of
//! these forms. So an error never contains it, unless it looks like a path.

use std::path::{Path, PathBuf};

use touchline_config::{inline_pem, read_regular_file};

use super::error::TlsError;

/// The largest file of certificates or keys, in bytes.
const PEM_FILE_MAX: u64 = 1_048_576;
/// The longest path of a missing file that an error shows, in bytes.
const PATH_SHOWN: usize = 255;
/// The longest extension of such a file, in bytes.
const EXTENSION_SHOWN: usize = 12;

/// Reads the bytes that the value of a setting means.
///
/// # Errors
/// [`TlsError::File`] when it is a path and the file can't be read.
pub(super) fn read(key: &str, value: &str) -> Result<Vec<u8>, TlsError> {
    match inline_pem(value) {
        Some(text) => Ok(text),
        None => {
            let unreadable = |source| TlsError::File { key: key.to_owned(), path: shown(value), source };
            let bytes = read_regular_file(Path::new(value), PEM_FILE_MAX).map_err(unreadable)?;
            // The content of a file may be in base64, as a value in the settings may be.
            Ok(std::str::from_utf8(&bytes).ok().and_then(inline_pem).unwrap_or(bytes))
        }
    }
}

/// Reads the PEM text that the value of a setting means: the value itself, its base64, or a file. An empty value gives
/// an empty text.
///
/// # Errors
/// [`TlsError::File`] when the value is a path and the file can't be read, and [`TlsError::Content`] when it is not
/// UTF-8.
pub fn read_pem(key: &str, value: &str) -> Result<String, TlsError> {
    if value.is_empty() {
        return Ok(String::new());
    }
    let no_text = |_| TlsError::Content { key: key.to_owned(), path: shown(value), what: "text" };
    String::from_utf8(read(key, value)?).map_err(no_text)
}

/// The value as a path that may be shown; None = it may be a secret. It may be shown if the file exists, or if the
/// value is a name with an extension. Neither PEM nor base64 has an extension.
pub(super) fn shown(value: &str) -> Option<PathBuf> {
    let path = Path::new(value);
    // The part of a token after a dot is longer than an extension.
    let has_extension = path.extension().is_some_and(|extension| extension.len() <= EXTENSION_SHOWN);
    let is_name = has_extension && value.len() <= PATH_SHOWN && !value.contains(char::is_whitespace);
    (inline_pem(value).is_none() && (is_name || path.exists())).then(|| path.to_owned())
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use touchline_config::is_inline_pem;

    use super::*;

    const SECRET: &str = "-----BEGIN PRIVATE KEY-----\nMIIEsecret\n-----END PRIVATE KEY-----\n";

    #[test]
    fn a_value_is_text_base64_or_a_path() {
        let packed = STANDARD.encode(SECRET);
        let wrapped =
            packed.as_bytes().chunks(20).map(|line| format!("{}\n", String::from_utf8_lossy(line))).collect::<String>();
        for value in [SECRET, &packed, &wrapped] {
            assert_eq!(read("tls.key_pem", value).ok(), Some(SECRET.as_bytes().to_vec()));
            assert!(is_inline_pem(value));
        }
        for path in ["key.pem", "/etc/ssl/private/live.key", "", "MIIEsecret", "c2VjcmV0"] {
            assert!(!is_inline_pem(path), "{path}");
        }
    }

    #[test]
    fn no_error_shows_what_was_written() {
        let packed = STANDARD.encode(SECRET);
        for broken in [&packed[1..], &packed.replace('=', "")[..9], "MIIEsecret", &"x".repeat(5_000)] {
            let error = read("tls.key_pem", broken).expect_err("it is nothing");
            assert!(!format!("{error} {error:?}").contains(broken), "{error:?}");
            assert!(error.to_string().starts_with("tls.key_pem: "), "{error}");
        }
    }
}
