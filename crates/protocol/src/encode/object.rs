//! JSON values, objects and lists, appended to a buffer.

use std::io::Write;

/// A JSON string.
pub fn text(out: &mut Vec<u8>, value: &str) {
    // Writing to a Vec can't fail, and a str is always a JSON string.
    let _ = serde_json::to_writer(out, value);
}

/// A decimal number.
pub fn number(out: &mut Vec<u8>, value: u64) {
    let _ = write!(out, "{value}");
}

/// Writes the members of one JSON object, with commas where they belong.
pub struct ObjectWriter<'a> {
    out: &'a mut Vec<u8>,
    is_empty: bool,
}

impl<'a> ObjectWriter<'a> {
    /// Opens an object.
    pub fn open(out: &'a mut Vec<u8>) -> Self {
        out.push(b'{');
        ObjectWriter { out, is_empty: true }
    }

    /// Starts a member and gives the buffer for its value.
    pub fn key(&mut self, name: &str) -> &mut Vec<u8> {
        if !self.is_empty {
            self.out.push(b',');
        }
        self.is_empty = false;
        self.out.push(b'"');
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\":");
        self.out
    }

    /// The same for a name that is any text.
    pub fn text_key(&mut self, name: &str) -> &mut Vec<u8> {
        if !self.is_empty {
            self.out.push(b',');
        }
        self.is_empty = false;
        text(self.out, name);
        self.out.push(b':');
        self.out
    }

    /// A string member, unless it is empty.
    pub fn text(&mut self, name: &str, value: &str) -> &mut Self {
        if !value.is_empty() {
            text(self.key(name), value);
        }
        self
    }

    /// A number, unless it is zero.
    pub fn number(&mut self, name: &str, value: u64) -> &mut Self {
        if value != 0 {
            number(self.key(name), value);
        }
        self
    }

    /// `true`, or nothing.
    pub fn flag(&mut self, name: &str, value: bool) -> &mut Self {
        if value {
            self.key(name).extend_from_slice(b"true");
        }
        self
    }

    /// A JSON value, if there is one.
    pub fn raw(&mut self, name: &str, value: Option<&[u8]>) -> &mut Self {
        if let Some(value) = value {
            self.key(name).extend_from_slice(value);
        }
        self
    }

    /// Closes the object.
    pub fn close(self) {
        self.out.push(b'}');
    }
}

/// Values with commas between them.
pub(crate) fn separated<T>(
    out: &mut Vec<u8>,
    items: impl IntoIterator<Item = T>,
    mut write: impl FnMut(&mut Vec<u8>, T),
) {
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write(out, item);
    }
}

/// Writes an array, whatever writes each item.
pub fn list<T>(out: &mut Vec<u8>, items: impl IntoIterator<Item = T>, write: impl FnMut(&mut Vec<u8>, T)) {
    out.push(b'[');
    separated(out, items, write);
    out.push(b']');
}
