//! Fuzzing of input that is neither frames nor commands: lines, emulation requests and compressed streams.

use std::borrow::Cow;

use serde_json::json;
use touchline_protocol::Wire;
use touchline_protocol::deflate::inflate;
use touchline_protocol::emulation::EmulationCommand;
use touchline_protocol::lines::{Lines, TooLong};
use touchline_protocol::message::Encoding;
use touchline_protocol::protobuf::Fields;
use touchline_protocol::wire::{Coding, Framing};

use crate::random::{Random, fuzz};

/// Random bytes of a small alphabet, so that line ends are common.
fn lines_of(random: &mut Random) -> Vec<u8> {
    let length = random.below(200);
    (0..length).map(|_| b"\n\n\r\t {}x"[random.below(8)]).collect()
}

#[test]
fn lines_are_those_of_the_text_however_it_arrives() {
    fuzz(|random| {
        let (text, most) = (lines_of(random), 1 + random.below(60));
        let whole: Vec<&[u8]> =
            text.split_inclusive(|byte| *byte == b'\n').filter_map(|line| line.strip_suffix(b"\n")).collect();
        let fits = whole.iter().take_while(|line| line.len() <= most).count();
        let (mut lines, mut found, mut rest, mut is_refused) = (Lines::default(), 0, &text[..], false);
        'parts: while !rest.is_empty() {
            let (part, later) = rest.split_at(1 + random.below(rest.len()));
            rest = later;
            let mut at = 0;
            loop {
                match lines.next(part, &mut at, most) {
                    Ok(Some(line)) => {
                        assert_eq!(line, whole[found].trim_ascii_end());
                        found += 1;
                    }
                    Ok(None) => break assert_eq!(at, part.len()),
                    Err(TooLong) => {
                        is_refused = true;
                        break 'parts;
                    }
                }
            }
            assert!(lines.buffered_bytes() <= most);
        }
        let begun = text.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
        assert_eq!((found, is_refused), (fits, fits < whole.len() || begun.len() > most));
    });
}

#[test]
fn requests_of_emulation_say_the_same_in_both_encodings() {
    fuzz(|random| {
        let [session, node, data] = [(); 3].map(|()| random.text());
        let json = json!({"session": session, "node": node, "data": data}).to_string().into_bytes();
        let mut protobuf = Vec::new();
        Fields(&mut protobuf).text(1, &node).text(2, &session).text(3, &data);
        let expected =
            EmulationCommand { session: Cow::from(session), node: Cow::from(node), data: Cow::from(data.into_bytes()) };
        assert_eq!(EmulationCommand::from_json(&json), Ok(expected.clone()));
        assert_eq!(EmulationCommand::from_protobuf(&protobuf), Ok(expected));
        for mut bytes in [json, protobuf] {
            random.mutate(&mut bytes);
            let judged = serde_json::from_slice::<serde_json::Value>(&bytes);
            if let (Ok(read), Ok(judged)) = (EmulationCommand::from_json(&bytes), judged) {
                let text = |name: &str| judged.get(name).and_then(|value| value.as_str()).unwrap_or_default();
                assert_eq!(
                    (&*read.session, &*read.node, &*read.data),
                    (text("session"), text("node"), text("data").as_bytes())
                );
            }
            let _ = EmulationCommand::from_protobuf(&bytes);
        }
    });
}

#[test]
fn compressed_messages_come_back_and_broken_ones_end_within_their_limit() {
    fuzz(|random| {
        let messages: Vec<Vec<u8>> = (0..1 + random.below(4))
            .map(|_| if random.one_in(2) { lines_of(random) } else { random.bytes_below(300) })
            .collect();
        let wire = Wire {
            encoding: Encoding::Protobuf,
            framing: Framing::Stream(Coding::Gzip { from: random.below(100) as u32 }),
        };
        let mut stream = Vec::new();
        messages.iter().for_each(|message| wire.frame(message, &mut stream));
        let plain = messages.concat();
        assert_eq!(inflate(&stream, plain.len()).as_deref(), Some(&plain[..]));
        if !plain.is_empty() {
            assert_eq!(inflate(&stream, plain.len() - 1), None);
        }
        random.mutate(&mut stream);
        assert!(inflate(&stream, 100).is_none_or(|inflated| inflated.len() <= 100));
    });
}
