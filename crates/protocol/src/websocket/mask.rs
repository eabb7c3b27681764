//! Masking of WebSocket payloads.

/// Applies a mask to a whole payload in place (RFC 6455 section 5.3).
pub fn mask(key: [u8; 4], bytes: &mut [u8]) {
    let wide = u64::from_ne_bytes([key[0], key[1], key[2], key[3], key[0], key[1], key[2], key[3]]);
    if wide == 0 {
        return;
    }
    let (chunks, rest) = bytes.as_chunks_mut::<8>();
    for chunk in chunks {
        *chunk = (u64::from_ne_bytes(*chunk) ^ wide).to_ne_bytes();
    }
    for (byte, key) in rest.iter_mut().zip(key.iter().cycle()) {
        *byte ^= key;
    }
}
