//! JSON values, objects and lists, appended to a buffer.

use std::io::Write;

/// Appends a JSON string.
pub fn text(out: &mut Vec<u8>, value: &str) {
    // Writing to a Vec cannot fail, and every str can be written as a JSON string.
    let _ = serde_json::to_writer(out, value);
}

/// Appends a decimal number.
pub fn number(out: &mut Vec<u8>, value: u64) {
    let _ = write!(out, "{value}");
}

/// Writes the members of one JSON object and the commas between them.
pub struct ObjectWriter<'a> {
    out: &'a mut Vec<u8>,
    is_empty: bool,
}

impl<'a> ObjectWriter<'a> {
    /// Opens an object: appends `{`.
    pub fn open(out: &'a mut Vec<u8>) -> Self {
        out.push(b'{');
        ObjectWriter { out, is_empty: true }
    }

    /// Writes the name of a member and returns the buffer for its value. The name must not need escapes.
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

    /// Like `key`, for a name that may need escapes.
    pub fn text_key(&mut self, name: &str) -> &mut Vec<u8> {
        if !self.is_empty {
            self.out.push(b',');
        }
        self.is_empty = false;
        text(self.out, name);
        self.out.push(b':');
        self.out
    }

    /// Writes a string member, unless the value is empty.
    pub fn text(&mut self, name: &str, value: &str) -> &mut Self {
        if !value.is_empty() {
            text(self.key(name), value);
        }
        self
    }

    /// Writes a number member, unless the value is zero.
    pub fn number(&mut self, name: &str, value: u64) -> &mut Self {
        if value != 0 {
            number(self.key(name), value);
        }
        self
    }

    /// Writes a member with the value `true`, or nothing if `value` is false.
    pub fn flag(&mut self, name: &str, value: bool) -> &mut Self {
        if value {
            self.key(name).extend_from_slice(b"true");
        }
        self
    }

    /// Writes a member that is already JSON. `None` writes nothing.
    pub fn raw(&mut self, name: &str, value: Option<&[u8]>) -> &mut Self {
        if let Some(value) = value {
            self.key(name).extend_from_slice(value);
        }
        self
    }

    /// Closes the object: appends `}`.
    pub fn close(self) {
        self.out.push(b'}');
    }
}

/// Appends values with commas between them.
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

/// Appends an array. `write` writes each item.
pub fn list<T>(out: &mut Vec<u8>, items: impl IntoIterator<Item = T>, write: impl FnMut(&mut Vec<u8>, T)) {
    out.push(b'[');
    separated(out, items, write);
    out.push(b']');
}
