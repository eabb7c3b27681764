//! Tests of one publication in every encoding.

use std::sync::Arc;

use bytes::Bytes;

use super::{Content, Delta, EncodedPush, LogPosition, Publication, Recovered, Tags};
use crate::encoding::Encoding;
use crate::stream::Offset;
use crate::wire::{Coding, Framing, Wire};
use crate::{encode, fossil};

fn content(data: &str) -> Content {
    Content { data: Bytes::copy_from_slice(data.as_bytes()), ..Content::default() }
}

#[test]
fn a_publication_is_framed_once_and_its_object_is_inside() {
    let place = LogPosition { offset: Offset(2), epoch: "abcdefgh", time_ms: 5 };
    let publication = Publication::encode("news", &content("{\"a\":1}"), Some(place));
    assert_eq!(publication.json(), br#"{"data":{"a":1},"offset":2,"time":5}"#);
    let body = br#"{"push":{"channel":"news","pub":{"data":{"a":1},"offset":2,"time":5}}}"#;
    assert_eq!(publication.websocket_json()[..2], [0x81, body.len() as u8]);
    assert_eq!(&publication.websocket_json()[2..], body);
}

#[test]
fn the_first_publication_of_a_stream_carries_its_epoch() {
    let place = LogPosition { offset: Offset(1), epoch: "abcdefgh", time_ms: 5 };
    let publication = Publication::encode("news", &content("1"), Some(place));
    assert_eq!(publication.json(), br#"{"data":1,"offset":1,"time":5,"epoch":"abcdefgh"}"#);
}

#[test]
fn frames_of_every_head_length_are_whole() {
    for length in [10, 200, 70_000] {
        let text = format!("\"{}\"", "x".repeat(length));
        let publication = Publication::encode("c", &content(&text), None);
        assert!(publication.websocket_json().ends_with(b"}}}"));
        assert_eq!(publication.json().len(), text.len() + br#"{"data":}"#.len());
    }
}

#[test]
fn a_publication_that_was_stored_expires_when_it_did_before() {
    for (data, expires_ms) in
        [("1", 0), ("{\"expires_at\":5}", 0), ("\",\\\"expires_at\\\":7\"", 0), ("1", 1_700_000_000_123)]
    {
        let content = Content { expires_ms, ..content(data) };
        let mut object = Vec::new();
        encode::publication(&mut object, &content, None);
        let place = LogPosition { offset: Offset(1), epoch: "abcdefgh", time_ms: 5 };
        assert_eq!(Publication::wrap("c", &object, Some(place)).expires_ms, expires_ms, "{data}");
    }
}

#[test]
fn a_publication_that_was_stored_says_the_same_in_its_new_place() {
    let tags = Tags::from([("league".to_owned(), "serie-a".to_owned())]);
    for offset in [0, 1, 2] {
        let content = Content { tags: tags.clone(), ..content("{\"a\":1}") };
        let place = (offset > 0).then_some(LogPosition { offset: Offset(offset), epoch: "abcdefgh", time_ms: 5 });
        let (made, stored) = (Publication::encode("c", &content, place), Publication::encode("c", &content, None));
        let wrapped = Publication::wrap("c", stored.json(), place);
        let said = |publication: &Publication| {
            serde_json::from_slice::<serde_json::Value>(publication.json()).expect("it is JSON")
        };
        assert_eq!(said(&wrapped), said(&made));
        assert_eq!((wrapped.offset, wrapped.size()), (Offset(offset), made.size()));
        assert_eq!((made.tags(), wrapped.tags()), (tags.clone(), tags.clone()));
        assert_eq!(made.size(), made.websocket_json().len());
    }
}

#[test]
fn a_publication_expires_at_its_time_and_not_before() {
    for (expires_ms, now_ms, is_expired) in [(5, 4, false), (5, 5, true), (5, 6, true), (0, 0, false), (0, 6, false)] {
        let publication = Publication::encode("c", &Content { expires_ms, ..content("1") }, None);
        assert_eq!(publication.is_expired(now_ms), is_expired, "{expires_ms} at {now_ms}");
    }
}

#[test]
fn every_form_says_the_same() {
    let publication = Publication::encode("news", &content("{\"a\":1}"), None);
    let framed = |body, envelope| publication.framed(Wire { encoding: body, framing: envelope }, Delta::None);
    assert_eq!(
        &framed(Encoding::Json, Framing::Stream(Coding::Identity))[..],
        b"{\"push\":{\"channel\":\"news\",\"pub\":{\"data\":{\"a\":1}}}}\n"
    );
    assert_eq!(
        &framed(Encoding::Push, Framing::EventStream(Coding::Identity))[..],
        b"data: {\"channel\":\"news\",\"pub\":{\"data\":{\"a\":1}}}\n\n"
    );
    let message = b"\x13\x22\x11\x12\x04news\x22\x09\x22\x07{\"a\":1}";
    assert_eq!(&framed(Encoding::Protobuf, Framing::Stream(Coding::Identity))[..], message);
    assert_eq!(
        framed(Encoding::Protobuf, Framing::Stream(Coding::Identity)).as_ptr(),
        framed(Encoding::Protobuf, Framing::Stream(Coding::Identity)).as_ptr(),
        "made once"
    );
}

#[test]
fn a_message_that_many_get_is_what_one_alone_would_get() {
    use crate::message::{Messages, Push};
    let data = br#"{"from":{},"to":"all","data":[1,"x"]}"#;
    let shared = EncodedPush::encode(data.len(), |out| {
        out.extend_from_slice(b"{\"message\":{\"data\":");
        out.extend_from_slice(data);
        out.extend_from_slice(b"}}");
    });
    for body in [Encoding::Json, Encoding::Protobuf, Encoding::Push] {
        let wire = Wire { encoding: body, framing: Framing::Stream(Coding::Identity) };
        let mut alone = Messages::default();
        alone.encode_as(body);
        alone.push("", &Push::Message(data));
        let mut framed = Vec::new();
        wire.frame(alone.bytes(), &mut framed);
        assert_eq!(&shared.framed(wire)[..], &framed[..], "{body:?}");
    }
}

#[test]
fn a_change_is_sent_where_it_is_shorter() {
    let state = |goals: u32| format!("{{\"teams\":[\"Roma\",\"Lazio\"],\"stadium\":\"Olimpico\",\"goals\":{goals}}}");
    let (first, second) =
        (Publication::encode("c", &content(&state(1)), None), Publication::encode("c", &content(&state(2)), None));
    let line = Wire { encoding: Encoding::Json, framing: Framing::Stream(Coding::Identity) };
    let json =
        |bytes: Bytes| serde_json::from_slice::<serde_json::Value>(&bytes).expect("it is JSON")["push"]["pub"].clone();
    assert_eq!(json(first.framed(line, Delta::Whole)), serde_json::json!({"data": state(1)}));
    let change = json(second.framed(line, Delta::From(&first)));
    assert_eq!(change["delta"], true);
    assert!(change["data"].as_str().is_some_and(|delta| delta.len() < 40 && delta.ends_with(';')), "{change}");
    let other = Publication::encode("c", &content("\"short\""), None);
    assert_eq!(json(other.framed(line, Delta::From(&first))), serde_json::json!({"data": "\"short\""}));
}

#[test]
fn a_payload_as_text_is_the_same_bytes_in_protobuf() {
    let publication = Publication::encode("c", &content("{\"a\":\"\\n\"}"), None);
    let wire = Wire { encoding: Encoding::Protobuf, framing: Framing::Stream(Coding::Identity) };
    assert_eq!(publication.framed(wire, Delta::Whole), publication.framed(wire, Delta::None));
}

/// The data of a publication in Protobuf, and whether the data is a delta.
fn protobuf_data(publication: &[u8]) -> (Vec<u8>, bool) {
    let (mut data, mut is_delta) = (Vec::new(), false);
    crate::protobuf::fields(publication, |tag, value| {
        match tag {
            4 => data = value.bytes()?.to_vec(),
            8 => is_delta = value.flag()?,
            _ => {}
        }
        Ok(())
    })
    .expect("it is Protobuf");
    (data, is_delta)
}

#[test]
fn bytes_are_themselves_in_protobuf_and_a_change_to_them_is_one_of_bytes() {
    use crate::notation::notation;
    let [first, second] = [1_u8, 2].map(|last| [&[0xff; 200][..], &[last]].concat());
    let json = content("[1,2]");
    let contents = [&first, &second].map(|bytes| Content { data: notation(bytes), ..Content::default() });
    let cases = [(&contents[0], &contents[1]), (&json, &contents[1]), (&contents[1], &json), (&json, &json)];
    for (before, after) in cases {
        let raw = |content: &Content| crate::notation::bytes_of(&content.data).into_owned();
        let publications = [before, after].map(|content| Arc::new(Publication::encode("c", content, None)));
        let recovered: Vec<_> = Recovered { publications: &publications, is_delta: true }.iter().collect();
        assert_eq!(protobuf_data(&recovered[0].protobuf()), (raw(before), false));
        let (data, is_delta) = protobuf_data(&recovered[1].protobuf());
        let delta = fossil::create(&raw(before), &raw(after));
        let expected = if delta.len() < raw(after).len() { (delta, true) } else { (raw(after), false) };
        assert_eq!((data, is_delta), expected);
        let mut json = Vec::new();
        recovered[1].write_json(&mut json);
        assert!(serde_json::from_slice::<serde_json::Value>(&json).is_ok_and(|json| json["data"].is_string()));
    }
}

#[test]
fn a_change_as_long_as_the_payload_is_not_sent() {
    let text = "0123456789abcdefghijklmnopqrstuvwxyz";
    let mut seen = std::collections::BTreeSet::new();
    // With the quotation mark before it, the second block of the text begins at 15.
    for end in 31..text.len() {
        let payloads = [text.to_owned(), format!("!{}!", &text[15..end])];
        let publications = payloads.map(|text| Publication::encode("c", &content(&format!("\"{text}\"")), None));
        let [before, publication] = publications;
        let order = fossil::create(before.data(), publication.data()).len().cmp(&publication.data().len());
        let line = Wire { encoding: Encoding::Push, framing: Framing::Stream(Coding::Identity) };
        let push: serde_json::Value =
            serde_json::from_slice(&publication.framed(line, Delta::From(&before))).expect("it is JSON");
        assert_eq!(push["pub"].get("delta").is_some(), order.is_lt(), "{push}");
        seen.insert(order);
    }
    assert_eq!(seen.len(), 3, "longer, as long, and shorter");
}

#[test]
fn of_what_was_missed_the_first_is_whole_and_the_rest_are_changes() {
    let state = |goals: u32| format!("{{\"teams\":[\"Roma\",\"Lazio\"],\"stadium\":\"Olimpico\",\"goals\":{goals}}}");
    let publications = [1, 2, 3].map(|goals| Arc::new(Publication::encode("c", &content(&state(goals)), None)));
    let said = |is_delta| {
        Recovered { publications: &publications, is_delta }.iter().map(|one| {
            let mut json = Vec::new();
            one.write_json(&mut json);
            serde_json::from_slice::<serde_json::Value>(&json).expect("it is JSON")
        })
    };
    let whole = |goals| serde_json::from_str::<serde_json::Value>(&state(goals)).expect("it is JSON");
    assert!(said(false).eq([1, 2, 3].map(|goals| serde_json::json!({"data": whole(goals)}))));
    let deltas: Vec<_> = said(true).collect();
    assert_eq!(deltas[0], serde_json::json!({"data": state(1)}));
    assert!(deltas[1..].iter().all(|change| change["delta"] == true), "{deltas:?}");
    assert!(!Recovered { publications: &publications, is_delta: true }.is_empty());
    assert!(Recovered::default().is_empty());
}
