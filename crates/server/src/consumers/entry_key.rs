//! The idempotency key of an entry that has none. It names the consumer, the current source, and the entry in it. It
//! stays the same however often the entry is read. The code is pure.

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use touchline_cluster::consumer::StreamMessage;
use touchline_store::outbox::OutboxRow;

/// Returns the key of a row, at most `longest` bytes.
pub(super) fn of_row(consumer: &str, row: &OutboxRow, longest: usize) -> String {
    within(longest, format!("outbox:{consumer}:{}:{}", row.incarnation, row.id))
}

/// Returns the key of a message, at most `longest` bytes. A recreated stream counts from 1 again, but its messages have
/// another time.
pub(super) fn of_message(consumer: &str, message: &StreamMessage, longest: usize) -> String {
    within(longest, format!("jetstream:{consumer}:{}:{}", message.stored_ns, message.sequence))
}

/// Returns a key, or its hash if the key is too long.
fn within(longest: usize, key: String) -> String {
    if key.len() <= longest {
        return key;
    }
    let mut hash = URL_SAFE_NO_PAD.encode(digest(&SHA256, key.as_bytes()));
    hash.truncate(longest);
    hash
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_key_names_one_entry_and_is_never_too_long() {
        let row =
            |id, incarnation: &str| OutboxRow { id, method: None, payload: None, incarnation: incarnation.into() };
        let message = |sequence, stored_ns| StreamMessage {
            sequence,
            stored_ns,
            deliveries: 1,
            headers: Vec::new(),
            payload: bytes::Bytes::new(),
        };
        for longest in [20, 50, 255] {
            let mut keys = HashSet::new();
            for consumer in ["shop", &"s".repeat(64)] {
                for (id, incarnation) in [(1, "2.3.4"), (2, "2.3.4"), (1, "2.3.5"), (1, "2.30.4")] {
                    let key = of_row(consumer, &row(id, incarnation), longest);
                    assert_eq!(key, of_row(consumer, &row(id, incarnation), longest));
                    assert!(key.len() <= longest && keys.insert(key), "{longest}");
                }
                for (sequence, stored_ns) in [(1, 2), (2, 2), (1, 3)] {
                    let key = of_message(consumer, &message(sequence, stored_ns), longest);
                    assert!(key.len() <= longest && keys.insert(key), "{longest}");
                }
            }
        }
        assert_eq!(of_row("shop", &row(1, "2.3.4"), 255), "outbox:shop:2.3.4:1");
    }
}
