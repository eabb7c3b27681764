//! Client ids as text.

use touchline_registry::OwnerId;
use uuid::Uuid;
use uuid::fmt::Hyphenated;

/// The length of a client id as text, bytes.
pub(super) const TEXT_LEN: usize = Hyphenated::LENGTH;

/// The usual text form of a client id.
pub fn client_text(owner: OwnerId) -> String {
    Uuid::from_bytes(owner.0).hyphenated().encode_lower(&mut [0; TEXT_LEN]).to_owned()
}

/// The same as bytes, without an allocation.
pub(super) fn client_bytes(owner: OwnerId) -> [u8; TEXT_LEN] {
    let mut text = [0; TEXT_LEN];
    Uuid::from_bytes(owner.0).hyphenated().encode_lower(&mut text);
    text
}

/// Reads a client id; `None` if the text is not one.
pub fn client_from_text(text: &str) -> Option<OwnerId> {
    // The `uuid` crate also reads forms without hyphens, in braces, and as URNs, which no client id has.
    if text.len() != TEXT_LEN {
        return None;
    }
    Uuid::try_parse(text).ok().map(|id| OwnerId(id.into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_client_id_is_read_back_from_its_text(bytes: [u8; 16]) {
            let text = client_text(OwnerId(bytes));
            prop_assert_eq!(client_from_text(&text), Some(OwnerId(bytes)));
            prop_assert_eq!(client_from_text(&text.to_uppercase()), Some(OwnerId(bytes)));
            prop_assert_eq!(&client_bytes(OwnerId(bytes))[..], text.as_bytes());
        }
    }

    #[test]
    fn other_forms_of_a_uuid_are_not_client_ids() {
        for text in [
            "",
            "67e5504410b1426f9247bb680e5fe0c8",
            "{67e55044-10b1-426f-9247-bb680e5fe0c8}",
            "urn:uuid:67e55044-10b1-426f-9247-bb680e5fe0c8",
            "67e55044-10b1-426f-9247-bb680e5fe0cg",
            "67e5504410b1426f9247bb680e5fe0c8----",
            "67e55044-10b1-426f-9247-bb680e5fe0\u{e9}",
        ] {
            assert_eq!(client_from_text(text), None, "{text}");
        }
        assert_eq!(client_text(OwnerId([0x0f; 16])), "0f0f0f0f-0f0f-0f0f-0f0f-0f0f0f0f0f0f");
    }
}
