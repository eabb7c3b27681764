//! What we write, we and others read back.

use proptest::prelude::*;
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
