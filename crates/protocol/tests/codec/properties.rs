//! Everything that this crate writes can be read back, by it and by other libraries.

use proptest::prelude::*;
use touchline_protocol::stored::{StoredPayload, decode as decode_stored, encode_clear, encode_publication};
use touchline_protocol::stream::Offset;
use touchline_protocol::websocket::{Opcode, Role, encode_close, encode_frame, encode_masked_frame};

use crate::fuzz_frames::tungstenite_reads;
use crate::wire::{Seen, decode};

fn length() -> impl Strategy<Value = usize> {
    prop_oneof![0..300usize, Just(125), Just(126), Just(127), Just(65_535), Just(65_536), Just(65_537)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn frames_come_back(
        length in length(),
        key in any::<[u8; 4]>(),
        filler in any::<u8>(),
        pieces in prop::collection::vec(1..5_000usize, 1..8),
    ) {
        let payload: Vec<u8> = (0..length).map(|index| filler.wrapping_add(index as u8)).collect();
        let expected = vec![Seen::Binary(payload.clone())];
        let (mut masked, mut plain) = (Vec::new(), Vec::new());
        encode_masked_frame(Opcode::Binary, &payload, key, &mut masked);
        encode_frame(Opcode::Binary, &payload, &mut plain);
        prop_assert_eq!(decode(Role::Server, 1 << 20, &masked, &pieces), (expected.clone(), None));
        prop_assert_eq!(decode(Role::Client, 1 << 20, &plain, &pieces), (expected.clone(), None));
        prop_assert_eq!(&tungstenite_reads(Role::Server, 1 << 20, &masked).0, &expected);
        prop_assert_eq!(&tungstenite_reads(Role::Client, 1 << 20, &plain).0, &expected);
    }

    #[test]
    fn stored_publications_come_back(time_ms in any::<u64>(), text in "\\PC{0,200}", until in any::<u64>()) {
        let object = serde_json::json!({"data": text}).to_string().into_bytes();
        let payload = encode_publication(time_ms, object.len(), |out| out.extend_from_slice(&object));
        prop_assert_eq!(decode_stored(&payload), Ok(StoredPayload::Publication { time_ms, object: &object }));
        let clear = encode_clear(Offset(until));
        prop_assert_eq!(decode_stored(&clear), Ok(StoredPayload::Clear(Offset(until))));
    }

    /// A payload that is cut within its head is an error. A later cut only shortens the object.
    #[test]
    fn cut_stored_publications_are_errors(time_ms in any::<u64>(), cut in 0..60usize) {
        let object = br#"{"data":{"score":[1,2]},"tags":{"a":"b"}}"#;
        let payload = encode_publication(time_ms, object.len(), |out| out.extend_from_slice(object));
        let cut = &payload[..cut.min(payload.len())];
        let head = payload.len() - object.len();
        match decode_stored(cut) {
            Ok(StoredPayload::Publication { object: left, .. }) => {
                prop_assert!(cut.len() > head);
                prop_assert_eq!(left, &object[..cut.len() - head]);
            }
            other => prop_assert!(other.is_err() && cut.len() <= head, "{:?}", other),
        }
    }

    /// Decoding ends for any bytes, and what it accepts is a part of the payload itself.
    #[test]
    fn hostile_stored_publications_are_errors_or_parts_of_themselves(
        is_begun in any::<bool>(),
        kind in prop_oneof![Just(b'P'), Just(b'C'), any::<u8>()],
        mut bytes in prop::collection::vec(any::<u8>(), 0..80),
        head in prop_oneof![Just(8u16), 0..80u16, any::<u16>()],
    ) {
        if is_begun {
            bytes.splice(0..0, [1, kind].into_iter().chain(head.to_le_bytes()));
        }
        match decode_stored(&bytes) {
            Ok(StoredPayload::Publication { object, .. }) => {
                let is_part = bytes[..2] == *b"\x01P" && bytes.ends_with(object) && object.first() == Some(&b'{');
                prop_assert!(is_part);
            }
            Ok(StoredPayload::Clear(_)) => prop_assert_eq!(&bytes[..2], b"\x01C"),
            Err(unreadable) => {
                prop_assert_eq!(unreadable.format, bytes.first().copied().unwrap_or_default());
                prop_assert!(!unreadable.to_string().is_empty());
            }
        }
    }

    #[test]
    fn close_frames_come_back_with_a_reason_that_fits(code in 3000u16..5000, reason in "\\PC{0,200}") {
        let mut frame = Vec::new();
        encode_close(code, &reason, &mut frame);
        let (seen, violation) = decode(Role::Client, 1 << 20, &frame, &[usize::MAX]);
        prop_assert_eq!(violation, None);
        let [Seen::Close(Some(read), kept)] = &seen[..] else { panic!("{seen:?}") };
        prop_assert_eq!(*read, code);
        prop_assert!(reason.starts_with(kept.as_str()) && kept.len() <= 123);
        prop_assert!(kept.len() == reason.len() || kept.len() > 119, "no more is cut than must be");
    }
}
