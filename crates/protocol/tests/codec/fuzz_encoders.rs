//! The output of the encoders is JSON with the intended content, in a frame that other libraries can read.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;
use touchline_protocol::publication::{ClientInfo, Content, LogPosition, Publication};
use touchline_protocol::stream::Offset;
use touchline_protocol::websocket::Role;

use crate::fuzz_frames::tungstenite_reads;
use crate::random::{Random, fuzz};
use crate::wire::Seen;

fn info(random: &mut Random) -> ClientInfo {
    let json = |random: &mut Random| random.one_in(2).then(|| Bytes::from(Value::from(random.text()).to_string()));
    ClientInfo {
        user: random.text().into(),
        client: random.text().into(),
        conn_info: json(random),
        chan_info: json(random),
    }
}

fn parse(bytes: &[u8]) -> Value {
    assert!(!bytes.contains(&b'\n'), "a line is a line");
    serde_json::from_slice(bytes).unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(bytes)))
}

#[test]
fn publications_say_what_was_meant() {
    fuzz(|random| {
        let data = Value::from(random.text());
        let content = Content {
            data: data.to_string().into(),
            tags: (0..random.below(3)).map(|_| (random.text(), random.text())).collect(),
            info: random.one_in(2).then(|| Arc::new(info(random))),
            expires_ms: 0,
        };
        let (channel, epoch) = (random.text(), random.text());
        let place = random.one_in(2).then(|| LogPosition {
            offset: Offset(1 + random.next() % 3),
            epoch: &epoch,
            time_ms: random.next() >> 20,
        });
        let publication = Publication::encode(&channel, &content, place);
        let object = parse(publication.json());
        assert_eq!(object["data"], data);
        assert_eq!(object.get("offset").and_then(Value::as_u64), place.map(|place| place.offset.0));
        assert_eq!(object.get("tags").map_or(0, |tags| tags.as_object().expect("a map").len()), content.tags.len());
        for (key, value) in &content.tags {
            assert_eq!(object["tags"][key.as_str()], value.as_str());
        }
        if let Some(info) = &content.info {
            assert_eq!(
                (object["info"]["user"].as_str(), object["info"]["client"].as_str()),
                (Some(&*info.user), Some(&*info.client))
            );
        }
        let (seen, _) = tungstenite_reads(Role::Client, 1 << 20, publication.websocket_json());
        let [Seen::Text(frame)] = &seen[..] else { panic!("{seen:?}") };
        let push = parse(frame.as_bytes());
        assert_eq!(push["push"]["channel"], channel.as_str());
        assert_eq!(push["push"]["pub"], object);
    });
}
