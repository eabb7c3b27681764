//! Rows with data of applications or clients: their format, and detection of damage.

use bytes::Bytes;
use serde::de::IgnoredAny;

/// The format of rows with data of applications or clients. A row with a higher format is not read.
const ROW_FORMAT: i64 = 1;

/// A row that a later version of this program wrote. The field is the row's format.
#[derive(Debug, thiserror::Error)]
#[error("a row has format {0}, and this program reads formats up to {ROW_FORMAT}: run the newer program")]
pub struct NewerRow(i64);

/// Checks that this program can read rows of a format.
pub(crate) fn readable(format: i64) -> Result<(), NewerRow> {
    if format > ROW_FORMAT { Err(NewerRow(format)) } else { Ok(()) }
}

/// A row whose content differs from what was written.
#[derive(Debug, thiserror::Error)]
#[error("the row of {place} is damaged: it does not hold a JSON object")]
pub(crate) struct DamagedRow {
    place: String,
}

/// Returns the object of a row if it is a JSON object, as every stored one is. A database itself detects damage in its
/// pages only if the damage breaks their structure.
pub(crate) fn intact(object: Vec<u8>, place: impl FnOnce() -> String) -> Result<Bytes, DamagedRow> {
    let text = std::str::from_utf8(&object).ok().filter(|text| text.starts_with('{'));
    match text.map(serde_json::from_str::<IgnoredAny>) {
        Some(Ok(_)) => Ok(object.into()),
        _ => Err(DamagedRow { place: place() }),
    }
}
