//! This project's own cases for RFC 6455, by section. Each is decoded at once, byte by byte, and in pieces of many
//! sizes, always with the same outcome.

use touchline_protocol::websocket::{Assembly, Role};

use crate::random::Random;
use crate::wire::{BINARY, CLOSE, CONTINUATION, FIN, PING, PONG, Seen, TEXT, decode, masked, unmasked};

const MAX: usize = 70_000;

struct Case {
    name: &'static str,
    bytes: Vec<u8>,
    seen: Vec<Seen>,
    /// The close code of the violation at the end. `None` = there is no violation.
    stopped: Option<u16>,
}

fn good(name: &'static str, frames: &[Vec<u8>], seen: Vec<Seen>) -> Case {
    Case { name, bytes: frames.concat(), seen, stopped: None }
}

fn bad(name: &'static str, frames: &[Vec<u8>], seen: Vec<Seen>, code: u16) -> Case {
    Case { name, bytes: frames.concat(), seen, stopped: Some(code) }
}

fn check(role: Role, cases: &[Case]) {
    let mut random = Random::new(6455);
    for case in cases {
        let pieces = |size| vec![size];
        let mut ways = vec![pieces(usize::MAX), pieces(1), pieces(2), pieces(3), pieces(7)];
        ways.extend((0..20).map(|_| (0..40).map(|_| 1 + random.below(9)).collect()));
        for way in ways {
            let (seen, violation) = decode(role, MAX, &case.bytes, &way);
            assert_eq!(seen, case.seen, "{} in pieces of {way:?}", case.name);
            assert_eq!(violation.map(|v| v.code), case.stopped, "{} in pieces of {way:?}: {violation:?}", case.name);
        }
    }
}

fn text(text: &str) -> Seen {
    Seen::Text(text.into())
}

#[test]
fn section_5_1_masking() {
    check(
        Role::Server,
        &[
            good("a client masks", &[masked(FIN | TEXT, b"hello")], vec![text("hello")]),
            bad("a client that does not mask", &[unmasked(FIN | TEXT, b"hello")], vec![], 1002),
            bad("a control frame that is not masked", &[unmasked(FIN | PING, b"")], vec![], 1002),
        ],
    );
    check(
        Role::Client,
        &[
            good("a server does not mask", &[unmasked(FIN | TEXT, b"hello")], vec![text("hello")]),
            bad("a server that masks", &[masked(FIN | TEXT, b"hello")], vec![], 1002),
        ],
    );
}

#[test]
fn section_5_2_reserved_bits_and_opcodes() {
    let reserved = |bit: u8| {
        bad("a reserved bit", &[masked(FIN | TEXT, b"a"), masked(FIN | bit | TEXT, b"b")], vec![text("a")], 1002)
    };
    check(Role::Server, &[reserved(0x40), reserved(0x20), reserved(0x10), reserved(0x70)]);
    for opcode in [3, 4, 5, 6, 7, 11, 12, 13, 14, 15] {
        check(Role::Server, &[bad("a reserved opcode", &[masked(FIN | opcode, b"")], vec![], 1002)]);
    }
}

#[test]
fn section_5_2_lengths_are_in_their_shortest_form() {
    for length in [0, 1, 124, 125, 126, 127, 65_535, 65_536] {
        let payload = vec![b'x'; length];
        let seen = vec![Seen::Binary(payload.clone()), text("next")];
        check(Role::Server, &[good("a length", &[masked(FIN | BINARY, &payload), masked(FIN | TEXT, b"next")], seen)]);
    }
    let key = [0; 4].to_vec();
    let long = |head: &[u8]| [head.to_vec(), key.clone()].concat();
    check(
        Role::Server,
        &[
            bad("125 in two bytes", &[long(&[FIN | BINARY, 0xfe, 0, 125])], vec![], 1002),
            bad("65,535 in eight bytes", &[long(&[FIN | BINARY, 0xff, 0, 0, 0, 0, 0, 0, 0xff, 0xff])], vec![], 1002),
            bad("the highest bit of a length", &[long(&[FIN | BINARY, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 1])], vec![], 1002),
            bad("a length beyond the limit", &[long(&[FIN | BINARY, 0xff, 0, 0, 0, 0, 0, 2, 0, 0])], vec![], 1009),
            bad(
                "a length that no machine holds",
                &[long(&[FIN | BINARY, 0xff, 0x7f, 255, 255, 255, 255, 255, 255, 255])],
                vec![],
                1009,
            ),
        ],
    );
}

#[test]
fn section_5_4_fragmentation() {
    check(
        Role::Server,
        &[
            good("two fragments", &[masked(TEXT, b"a"), masked(FIN | CONTINUATION, b"b")], vec![text("ab")]),
            good(
                "empty fragments",
                &[
                    masked(BINARY, b""),
                    masked(CONTINUATION, b""),
                    masked(CONTINUATION, b"x"),
                    masked(FIN | CONTINUATION, b""),
                ],
                vec![Seen::Binary(b"x".to_vec())],
            ),
            good(
                "control frames between fragments",
                &[
                    masked(TEXT, b"a"),
                    masked(FIN | PING, b"p"),
                    masked(CONTINUATION, b"b"),
                    masked(FIN | PONG, b""),
                    masked(FIN, b"c"),
                ],
                vec![Seen::Ping(b"p".to_vec()), Seen::Pong(vec![]), text("abc")],
            ),
            good(
                "one message behind another",
                &[
                    masked(TEXT, b"a"),
                    masked(FIN, b"b"),
                    masked(BINARY, b"c"),
                    masked(FIN, b"d"),
                    masked(FIN | TEXT, b"e"),
                ],
                vec![text("ab"), Seen::Binary(b"cd".to_vec()), text("e")],
            ),
            good(
                "a goodbye between fragments",
                &[masked(TEXT, b"a"), masked(FIN | CLOSE, &[3, 232])],
                vec![Seen::Close(Some(1000), String::new())],
            ),
            bad("a continuation of nothing", &[masked(FIN | CONTINUATION, b"a")], vec![], 1002),
            bad("a continuation of nothing, not the last", &[masked(CONTINUATION, b"a")], vec![], 1002),
            bad(
                "a continuation behind a whole message",
                &[masked(FIN | TEXT, b"a"), masked(FIN, b"b")],
                vec![text("a")],
                1002,
            ),
            bad("a message inside another", &[masked(TEXT, b"a"), masked(FIN | TEXT, b"b")], vec![], 1002),
            good(
                "a message as large as the limit",
                &[masked(FIN | BINARY, &vec![0; MAX])],
                vec![Seen::Binary(vec![0; MAX])],
            ),
            bad("a message beyond the limit", &[masked(FIN | BINARY, &vec![0; MAX + 1])], vec![], 1009),
            good(
                "fragments up to the limit",
                &[masked(BINARY, &vec![0; MAX - 1]), masked(FIN, &[0])],
                vec![Seen::Binary(vec![0; MAX])],
            ),
            bad("fragments beyond the limit", &[masked(BINARY, &vec![0; MAX]), masked(FIN, b"x")], vec![], 1009),
        ],
    );
}

#[test]
fn section_5_5_control_frames() {
    let longest = vec![b'p'; 125];
    check(
        Role::Server,
        &[
            good("5.5.2 the longest ping", &[masked(FIN | PING, &longest)], vec![Seen::Ping(longest.clone())]),
            good("5.5.3 a pong that nobody asked for", &[masked(FIN | PONG, b"?")], vec![Seen::Pong(b"?".to_vec())]),
            bad("a ping that is too long", &[masked(FIN | PING, &[0; 126])], vec![], 1002),
            bad("a ping in fragments", &[masked(PING, b"a")], vec![], 1002),
            bad("a close in fragments", &[masked(CLOSE, &[3, 232])], vec![], 1002),
        ],
    );
}

#[test]
fn sections_5_5_1_and_7_4_close() {
    let close = |code: u16, reason: &str| masked(FIN | CLOSE, &[&code.to_be_bytes()[..], reason.as_bytes()].concat());
    check(
        Role::Server,
        &[
            good("without a code", &[masked(FIN | CLOSE, b"")], vec![Seen::Close(None, String::new())]),
            good("with a reason", &[close(4001, "tschüß")], vec![Seen::Close(Some(4001), "tschüß".into())]),
            bad("half a code", &[masked(FIN | CLOSE, &[3])], vec![], 1002),
            bad("a reason that is no UTF-8", &[masked(FIN | CLOSE, &[3, 232, 0xff])], vec![], 1007),
        ],
    );
    for code in [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999] {
        check(Role::Server, &[good("a code", &[close(code, "")], vec![Seen::Close(Some(code), String::new())])]);
    }
    for code in [0, 1, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65_535] {
        check(Role::Server, &[bad("a code that may not be sent", &[close(code, "")], vec![], 1002)]);
    }
}

#[test]
fn section_8_1_text_is_utf_8() {
    let words = "κόσμε, déjà vu, 你好, 😀";
    let mut cases = vec![good("many alphabets", &[masked(FIN | TEXT, words.as_bytes())], vec![text(words)])];
    for at in 1..words.len() {
        let (a, b) = words.as_bytes().split_at(at);
        cases.push(good("a character cut by a fragment", &[masked(TEXT, a), masked(FIN, b)], vec![text(words)]));
    }
    let broken: [&[u8]; 9] = [
        b"\xff",
        b"\x80",
        b"\xc3",
        b"\xc0\xaf",
        b"\xe0\x80\xaf",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"\xf8\x88\x80\x80\x80",
        b"ab\xe2\x82",
    ];
    for bytes in broken {
        cases.push(bad("no UTF-8", &[masked(FIN | TEXT, bytes)], vec![], 1007));
        cases.push(bad("no UTF-8 in a fragment", &[masked(TEXT, b"ok "), masked(FIN, bytes)], vec![], 1007));
        cases.push(good("bytes may be anything", &[masked(FIN | BINARY, bytes)], vec![Seen::Binary(bytes.to_vec())]));
    }
    check(Role::Server, &cases);
}

#[test]
fn an_idle_decoder_keeps_nothing() {
    let mut assembly = Assembly::default();
    let mut input = [masked(TEXT, b"a"), masked(FIN | PING, b"p"), masked(FIN, b"b")].concat();
    let mut at = 0;
    while assembly.next(Role::Server, MAX, &mut input, &mut at).expect("the case is good").is_some() {}
    assert!(assembly.is_idle());
    assert_eq!(assembly.buffered_bytes(), 0);
}

#[test]
fn a_decoder_knows_what_it_keeps() {
    let mut assembly = Assembly::default();
    let mut see = |input: &[u8]| {
        let mut input = input.to_vec();
        let seen = assembly
            .next(Role::Server, MAX, &mut input, &mut 0)
            .expect("the case is good")
            .map(|event| Seen::of(&event));
        (seen, assembly.buffered_bytes(), assembly.is_idle(), assembly.take_fragments())
    };
    let last = masked(FIN | CONTINUATION, b"ef");
    let (cut, rest) = last.split_at(3);
    assert_eq!(see(&[]), (None, 0, true, 0));
    assert_eq!(see(&[masked(TEXT, b"ab"), masked(CONTINUATION, b"cd")].concat()), (None, 4, false, 2));
    assert_eq!(see(cut), (None, 7, false, 0), "a frame of which the rest has not come");
    assert_eq!(see(rest).0, Some(text("abcdef")));
    assembly.release();
    assert_eq!((assembly.buffered_bytes(), assembly.is_idle(), assembly.take_fragments()), (0, true, 0));
}

/// The bit that marks a compressed message.
const RSV1: u8 = 0x40;

#[test]
fn rfc_7692_section_7_2_3_examples() {
    let hello: &[u8] = &[0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00];
    let (first, last) = hello.split_at(3);
    let role = Role::DeflatedServer;
    let whole = |name, payload: &[u8]| good(name, &[masked(FIN | RSV1 | TEXT, payload)], vec![text("Hello")]);
    check(
        role,
        &[
            whole("7.2.3.1, one block", hello),
            good("7.2.3.1, in fragments", &[masked(RSV1 | TEXT, first), masked(FIN, last)], vec![text("Hello")]),
            bad(
                "7.2.3.2, a window shared with the message before",
                &[masked(FIN | RSV1 | TEXT, &[0xf2, 0x00, 0x11, 0x00, 0x00])],
                vec![],
                1007,
            ),
            whole(
                "7.2.3.3, a block that is stored",
                &[0x00, 0x05, 0x00, 0xfa, 0xff, 0x48, 0x65, 0x6c, 0x6c, 0x6f, 0x00],
            ),
            whole("7.2.3.4, a final block", &[0xf3, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00, 0x00]),
            whole(
                "7.2.3.5, two blocks",
                &[0xf2, 0x48, 0x05, 0x00, 0x00, 0x00, 0xff, 0xff, 0xca, 0xc9, 0xc9, 0x07, 0x00],
            ),
            good("7.2.3.6, an empty message", &[masked(FIN | RSV1 | TEXT, &[0x00])], vec![text("")]),
        ],
    );
}

#[test]
fn rfc_7692_section_6_the_bit_stands_where_it_may() {
    let hello: &[u8] = &[0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00];
    let role = Role::DeflatedServer;
    check(
        role,
        &[
            good(
                "plain messages among compressed ones",
                &[masked(FIN | TEXT, b"a"), masked(FIN | RSV1 | TEXT, hello)],
                vec![text("a"), text("Hello")],
            ),
            good(
                "a control frame between fragments",
                &[masked(RSV1 | TEXT, &hello[..3]), masked(FIN | PING, b"p"), masked(FIN, &hello[3..])],
                vec![Seen::Ping(b"p".to_vec()), text("Hello")],
            ),
            bad("a compressed control frame", &[masked(FIN | RSV1 | PING, b"")], vec![], 1002),
            bad(
                "the bit on a continuation",
                &[masked(RSV1 | TEXT, &hello[..3]), masked(FIN | RSV1, &hello[3..])],
                vec![],
                1002,
            ),
            bad("another reserved bit", &[masked(FIN | 0x20 | TEXT, b"a")], vec![], 1002),
            bad("what can't be inflated", &[masked(FIN | RSV1 | TEXT, &[0xff; 9])], vec![], 1007),
            bad(
                "what inflates to no UTF-8",
                &[masked(FIN | RSV1 | TEXT, &[0x00, 0x01, 0x00, 0xfe, 0xff, 0xff, 0x00])],
                vec![],
                1007,
            ),
        ],
    );
    check(Role::Server, &[bad("nobody has agreed to it", &[masked(FIN | RSV1 | TEXT, hello)], vec![], 1002)]);
}
