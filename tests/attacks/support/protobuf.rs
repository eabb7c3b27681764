//! A few commands in Protobuf, encoded by hand.

/// A field with its length before it.
pub(crate) fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    out.extend(varint(bytes.len() as u64));
    out.extend_from_slice(bytes);
    out
}

/// A number as a varint: seven bits per byte, the lowest bits first.
pub(crate) fn varint(mut number: u64) -> Vec<u8> {
    let mut out = Vec::new();
    while number > 0x7f {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
    out
}

/// A command with its length before it. `kind` is the number of its field: 4 connect, 5 subscribe, 6 unsubscribe, 7
/// publish, 8 presence, 10 history, 13 rpc.
pub(crate) fn command(id: u32, kind: u8, request: &[u8]) -> Vec<u8> {
    let mut body = vec![1 << 3];
    body.extend(varint(id.into()));
    body.extend(field(kind, request));
    let mut out = varint(body.len() as u64);
    out.extend(body);
    out
}
