//! The signature of a batch (Standard Webhooks, symmetric), and the id of a batch.

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use touchline_config::{EventsSettings, signing_key};

/// The digits of a ULID (Crockford's Base32).
const DIGITS: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/// Signs batches with the current key and then with the previous one.
pub(super) struct BatchSigner(Vec<hmac::Key>);

impl BatchSigner {
    /// Takes the keys of the settings; None = batches are not signed.
    pub(super) fn new(settings: &EventsSettings) -> Option<Self> {
        let keys = [&settings.secret, &settings.secret_previous].into_iter().filter_map(|secret| signing_key(secret));
        let keys: Vec<_> = keys.map(|key| hmac::Key::new(hmac::HMAC_SHA256, &key)).collect();
        (!keys.is_empty()).then_some(BatchSigner(keys))
    }

    /// Returns the `webhook-signature` of a batch. `timestamp_s`: the time of this try, in Unix seconds.
    pub(super) fn sign(&self, id: &str, timestamp_s: u64, body: &[u8]) -> String {
        let head = format!("{id}.{timestamp_s}.");
        let signatures = self.0.iter().map(|key| {
            let mut text = hmac::Context::with_key(key);
            text.update(head.as_bytes());
            text.update(body);
            format!("v1,{}", STANDARD.encode(text.sign()))
        });
        signatures.collect::<Vec<_>>().join(" ")
    }
}

/// The id of a batch: `msg_` and a ULID (48 bits of Unix milliseconds, 80 random bits).
pub(super) fn batch_id(now_ms: u64, random: u128) -> String {
    let ulid = u128::from(now_ms & 0xffff_ffff_ffff) << 80 | random & ((1 << 80) - 1);
    let digits = (0..26).rev().map(|at| char::from(DIGITS[(ulid >> (at * 5)) as usize & 31]));
    std::iter::once("msg_").map(str::to_owned).chain(digits.map(String::from)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &str = concat!(
        r#"[{"specversion":"1.0","id":"user:42:7","source":"/touchline/prod","type":"io.touchline.user.online","#,
        r#""subject":"42","time":"2026-11-22T15:00:00.123Z","partitionkey":"user:42","generation":"7","#,
        r#""data":{"user":"42","reason":"normal"}},{"specversion":"1.0","id":"channel:chat:1:4","#,
        r#""source":"/touchline/prod","type":"io.touchline.channel.vacated","subject":"chat:1","#,
        r#""time":"2026-11-22T15:00:00.150Z","partitionkey":"channel:chat:1","generation":"4","#,
        r#""data":{"channel":"chat:1","namespace":"chat","reason":"node_down","#,
        r#""empty_since":"2026-11-22T14:59:55.150Z"}}]"#
    );
    const NEW: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    const OLD: &str = "whsec_ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8=";

    fn signer(secret: &str, secret_previous: &str) -> BatchSigner {
        let (secret, secret_previous) = (secret.to_owned(), secret_previous.to_owned());
        let settings = EventsSettings { secret, secret_previous, ..EventsSettings::default() };
        BatchSigner::new(&settings).expect("a key")
    }

    #[test]
    fn signatures_are_those_of_other_programs() {
        // Checked with Python's hmac and with `openssl dgst -sha256 -mac HMAC`.
        let id = "msg_01JDA5Q2Z4T9W8V7R6P5N3M1K0";
        let (new, old) =
            ("v1,aZB0baacKf6QGSh1fNpCmd5+IGHaoM+cm9xdLtNVPbQ=", "v1,7xPxRPormt7LKjnFKAlm+Rq93G+V6EqZZUDW4QVR1yo=");
        assert_eq!(BODY.len(), 553);
        assert_eq!(signer(NEW, "").sign(id, 1_795_359_600, BODY.as_bytes()), new);
        assert_eq!(signer(NEW, OLD).sign(id, 1_795_359_600, BODY.as_bytes()), format!("{new} {old}"));
        // The test vector of the libraries of Standard Webhooks.
        let theirs = signer("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "");
        let signature = theirs.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        assert!(BatchSigner::new(&EventsSettings::default()).is_none());
    }

    #[test]
    fn an_id_is_a_ulid() {
        assert_eq!(batch_id(0, 0), "msg_00000000000000000000000000");
        assert_eq!(batch_id(u64::MAX, u128::MAX), "msg_7ZZZZZZZZZZZZZZZZZZZZZZZZZ");
        // The example in the specification, 01ARZ3NDEKTSV4RRFFQ69G5FAV, has this time.
        assert!(batch_id(1_469_922_850_259, 7).starts_with("msg_01ARZ3NDEK"));
        assert!(batch_id(1, 5) < batch_id(2, 3), "ids are in the order of their times");
    }
}
