//! Reads the clock of the machine.

use std::time::SystemTime;

/// The current time, Unix milliseconds.
pub(crate) fn now_ms() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}
