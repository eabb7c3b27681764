//! The part of the Protobuf wire format (protobuf.dev, "Encoding") that the client protocol needs. It reads and writes
//! fields and has no schema.
//!
//! Hand-written: `prost` creates owned values, and here fields borrow from the input. The tests compare the results
//! with `prost`.

/// The error for bytes that are not a valid Protobuf message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

/// Appends a variable-length number.
pub fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Removes a variable-length number from the front of `bytes`. `None` = the number is not complete yet.
///
/// # Errors
/// Fails if the number is longer than ten bytes.
pub fn take_varint(bytes: &mut &[u8]) -> Result<Option<u64>, Malformed> {
    let mut value = 0;
    for (index, byte) in bytes.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f) << (index * 7);
        if byte & 0x80 == 0 {
            *bytes = &bytes[index + 1..];
            return Ok(Some(value));
        }
    }
    if bytes.len() >= 10 { Err(Malformed) } else { Ok(None) }
}

/// Writes the fields of a message. Zero and empty values are omitted, as in proto3.
pub struct Fields<'a>(pub &'a mut Vec<u8>);

impl Fields<'_> {
    /// Writes a number field. A negative number is passed as its two's complement.
    pub fn number(&mut self, tag: u32, value: u64) -> &mut Self {
        if value != 0 {
            varint(self.0, u64::from(tag) << 3);
            varint(self.0, value);
        }
        self
    }

    /// Writes a field with the value `true`, or nothing if `value` is false.
    pub fn flag(&mut self, tag: u32, value: bool) -> &mut Self {
        self.number(tag, value.into())
    }

    /// Writes a field of bytes, unless it is empty.
    pub fn bytes(&mut self, tag: u32, value: &[u8]) -> &mut Self {
        if value.is_empty() { self } else { self.whole(tag, value) }
    }

    /// Writes a text field, unless it is empty.
    pub fn text(&mut self, tag: u32, value: &str) -> &mut Self {
        self.bytes(tag, value.as_bytes())
    }

    /// Writes a field with an already encoded message, even an empty one.
    pub fn whole(&mut self, tag: u32, message: &[u8]) -> &mut Self {
        varint(self.0, u64::from(tag) << 3 | 2);
        varint(self.0, message.len() as u64);
        self.0.extend_from_slice(message);
        self
    }

    /// Writes a field with a message whose fields the closure writes, even an empty one.
    pub fn message(&mut self, tag: u32, write: impl FnOnce(&mut Fields<'_>)) -> &mut Self {
        varint(self.0, u64::from(tag) << 3 | 2);
        delimited(self.0, |out| write(&mut Fields(out)));
        self
    }
}

/// Writes a message preceded by its length.
pub fn delimited(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    // Most messages are short and need one byte of length. Longer ones are moved to make room.
    out.push(0);
    write(out);
    let length = out.len() - start - 1;
    if length < 0x80 {
        out[start] = length as u8;
        return;
    }
    let mut head = Vec::with_capacity(10);
    varint(&mut head, length as u64);
    out.splice(start..=start, head);
}

/// The value of one field.
#[derive(Debug, Clone, Copy)]
pub enum FieldValue<'a> {
    /// A number or a flag.
    Number(u64),
    /// Bytes, text or a message.
    Bytes(&'a [u8]),
    /// A fixed-width number. The client protocol does not use any.
    Fixed,
}

impl<'a> FieldValue<'a> {
    /// The value as bytes.
    ///
    /// # Errors
    /// Fails if the value is a number.
    pub fn bytes(self) -> Result<&'a [u8], Malformed> {
        if let FieldValue::Bytes(bytes) = self { Ok(bytes) } else { Err(Malformed) }
    }

    /// The value as text.
    ///
    /// # Errors
    /// Fails if the value is a number or is not UTF-8.
    pub fn text(self) -> Result<&'a str, Malformed> {
        simdutf8::basic::from_utf8(self.bytes()?).map_err(|_| Malformed)
    }

    /// The value as a number.
    ///
    /// # Errors
    /// Fails if the value is not a variable-length number.
    pub fn number(self) -> Result<u64, Malformed> {
        if let FieldValue::Number(number) = self { Ok(number) } else { Err(Malformed) }
    }

    /// The value as a flag: true if it is not zero.
    ///
    /// # Errors
    /// Fails if the value is not a number.
    pub fn flag(self) -> Result<bool, Malformed> {
        Ok(self.number()? != 0)
    }
}

/// Calls `read` for each field of a message.
///
/// # Errors
/// Fails if the message is malformed, or if `read` fails.
pub fn fields<'a>(
    mut message: &'a [u8],
    mut read: impl FnMut(u32, FieldValue<'a>) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    while !message.is_empty() {
        let key = take_varint(&mut message)?.ok_or(Malformed)?;
        let tag = u32::try_from(key >> 3).ok().filter(|tag| (1..1 << 29).contains(tag)).ok_or(Malformed)?;
        let value = match key & 7 {
            0 => FieldValue::Number(take_varint(&mut message)?.ok_or(Malformed)?),
            1 => take(&mut message, 8).map(|_| FieldValue::Fixed)?,
            2 => {
                let length = take_varint(&mut message)?.ok_or(Malformed)?;
                FieldValue::Bytes(take(&mut message, usize::try_from(length).map_err(|_| Malformed)?)?)
            }
            5 => take(&mut message, 4).map(|_| FieldValue::Fixed)?,
            _ => return Err(Malformed),
        };
        read(tag, value)?;
    }
    Ok(())
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Result<&'a [u8], Malformed> {
    let (taken, rest) = bytes.split_at_checked(length).ok_or(Malformed)?;
    *bytes = rest;
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_every_length_come_back() {
        for value in (0..64).map(|shift| 1u64 << shift).chain([0, 127, 128, 300, u64::MAX]) {
            let mut out = Vec::new();
            varint(&mut out, value);
            assert_eq!(take_varint(&mut &out[..]), Ok(Some(value)));
            assert_eq!(take_varint(&mut &out[..out.len() - 1]), Ok(None), "{value} cut short");
        }
        assert_eq!(take_varint(&mut &[0x80; 10][..]), Err(Malformed));
    }

    #[test]
    fn long_messages_get_long_lengths() {
        for length in [0, 127, 128, 20_000] {
            let mut out = b"before".to_vec();
            delimited(&mut out, |out| out.resize(out.len() + length, 7));
            let mut rest = &out[6..];
            assert_eq!(take_varint(&mut rest), Ok(Some(length as u64)));
            assert_eq!(rest.len(), length);
        }
    }

    #[test]
    fn fields_of_fixed_width_are_passed_over() {
        for bytes in [&[0x09, 1, 2, 3, 4, 5, 6, 7, 8, 0x10, 1][..], &[0x0d, 1, 2, 3, 4, 0x10, 1]] {
            let mut seen = Vec::new();
            let read = fields(bytes, |tag, value| {
                seen.push((tag, value.number()));
                Ok(())
            });
            assert_eq!((read, seen), (Ok(()), vec![(1, Err(Malformed)), (2, Ok(1))]), "{bytes:?}");
        }
    }

    #[test]
    fn a_flag_is_a_number_other_than_zero() {
        for (value, flag) in [
            (FieldValue::Number(0), Ok(false)),
            (FieldValue::Number(1), Ok(true)),
            (FieldValue::Number(1 << 40), Ok(true)),
            (FieldValue::Bytes(&[1]), Err(Malformed)),
        ] {
            assert_eq!(value.flag(), flag, "{value:?}");
        }
    }

    #[test]
    fn what_is_no_message_is_refused() {
        for bytes in [&[0x0a][..], &[0x0a, 5, 1], &[0x03], &[0x00, 1], &[0x0d, 1, 2], &[0x08]] {
            assert_eq!(fields(bytes, |_, _| Ok(())), Err(Malformed), "{bytes:?}");
        }
    }
}
