//! The client or user that is left out when a publication is delivered, and how the exclusion is stored and sent.
//!
//! An exclusion affects only the live delivery. The publication is in the log, and every client gets it by recovery and
//! history. So the exclusion is not a part of the publication's object, and clients never see it.

use crate::encode::object::text;

/// The kind of the field for the client in the head of a stored publication.
const CLIENT: u8 = b'c';
/// The kind of the field for the user.
const USER: u8 = b'u';
/// The text before the client and the user, after the other members of an object.
const MEMBER: &[u8] = b",\"exclude\":[";

/// The client and user that do not get a publication while it is delivered. At least one of them is set.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Exclusion {
    /// The excluded client id. Empty = no client.
    pub client: Box<str>,
    /// The excluded user, of at most [`crate::fact::NAME_LEN_MAX`] bytes, with all its connections. Empty = no user.
    pub user: Box<str>,
}

impl Exclusion {
    /// Creates an exclusion of a client and a user. `None` = both are empty.
    pub fn of(client: &str, user: &str) -> Option<Self> {
        let is_any = !client.is_empty() || !user.is_empty();
        is_any.then(|| Exclusion { client: client.into(), user: user.into() })
    }

    /// Encodes the exclusion for the head of a stored publication. Each field has its kind, its length in two bytes,
    /// and its text.
    pub(crate) fn head(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.client.len() + self.user.len() + 6);
        for (kind, field) in [(CLIENT, &self.client), (USER, &self.user)] {
            // Longer texts are refused earlier. A field that is not written excludes no one.
            if let (false, Ok(length)) = (field.is_empty(), u16::try_from(field.len())) {
                out.push(kind);
                out.extend_from_slice(&length.to_le_bytes());
                out.extend_from_slice(field.as_bytes());
            }
        }
        out
    }

    /// Reads the exclusion from a head. `None` = the head has none. Fields of other kinds are ignored.
    pub(crate) fn of_head(mut head: &[u8]) -> Option<Self> {
        let (mut client, mut user) = ("", "");
        while let Some(([kind, low, high], rest)) = head.split_first_chunk::<3>() {
            let Some((field, rest)) = rest.split_at_checked(u16::from_le_bytes([*low, *high]).into()) else { break };
            let field = std::str::from_utf8(field).unwrap_or_default();
            match *kind {
                CLIENT => client = field,
                USER => user = field,
                _ => {}
            }
            head = rest;
        }
        Exclusion::of(client, user)
    }

    /// Adds the exclusion to a publication's object as its last member. Databases store this form because it has no
    /// head.
    pub fn put_into(&self, object: &[u8]) -> Vec<u8> {
        let mut out = object.strip_suffix(b"}").unwrap_or(object).to_vec();
        out.extend_from_slice(MEMBER);
        text(&mut out, &self.client);
        out.push(b',');
        text(&mut out, &self.user);
        out.extend_from_slice(b"]}");
        out
    }

    /// Splits an object into the object without its exclusion, and the exclusion. `None` = it has none.
    ///
    /// JSON puts a backslash before a quotation mark inside a text, so the pattern can only match the name of a member.
    /// The member belongs to the object itself, because only the end of the object follows its list.
    pub fn take_from(object: &[u8]) -> Option<(Vec<u8>, Self)> {
        let inner = object.strip_suffix(b"}").filter(|inner| inner.ends_with(b"\"]"))?;
        let begin = inner.windows(MEMBER.len()).rposition(|window| window == MEMBER)?;
        let list = &inner[begin + MEMBER.len() - 1..];
        let (client, user): (String, String) = serde_json::from_slice(list).ok()?;
        let exclusion = Exclusion::of(&client, &user)?;
        let mut object = inner[..begin].to_vec();
        object.push(b'}');
        Some((object, exclusion))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// An exclusion that was written is read back from a head and from an object, whatever the payload and the
        /// names contain.
        #[test]
        fn an_exclusion_comes_back(client in ".{0,40}", user in ".{0,60}", payload in ".{0,40}") {
            let Some(exclusion) = Exclusion::of(&client, &user) else { return Ok(()) };
            prop_assert_eq!(Exclusion::of_head(&exclusion.head()), Some(exclusion.clone()));
            let member = serde_json::json!({"exclude": [client, user]});
            for data in [serde_json::json!(payload), serde_json::json!([payload, client]), member] {
                let object = format!("{{\"data\":{data}}}").into_bytes();
                prop_assert_eq!(Exclusion::take_from(&object), None, "of a payload alone");
                let put = exclusion.put_into(&object);
                prop_assert!(serde_json::from_slice::<serde_json::Value>(&put).is_ok());
                prop_assert_eq!(Exclusion::take_from(&put), Some((object, exclusion.clone())));
            }
        }

        /// No content of a head makes the reader fail.
        #[test]
        fn any_head_is_read(head in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = Exclusion::of_head(&head);
        }
    }

    #[test]
    fn a_member_of_the_payload_is_none_of_the_object() {
        for object in [
            r#"{"data":[{"a":1,"exclude":["c","u"]},"x"]}"#,
            r#"{"data":{"a":1,"exclude":["c","u"]}}"#,
            r#"{"data":["z,\"exclude\":[\"c\",\"u"]}"#,
            r#"{"data":["a","b"]}"#,
            r#"{"data":1,"exclude":["",""]}"#,
            "",
        ] {
            assert_eq!(Exclusion::take_from(object.as_bytes()), None, "{object}");
        }
    }

    #[test]
    fn fields_of_a_later_version_are_passed_over() {
        let head = [&b"x\x03\x00abc"[..], &Exclusion::of("c", "").expect("a client").head(), b"y\xff\xff"].concat();
        assert_eq!(Exclusion::of_head(&head), Exclusion::of("c", ""));
        assert_eq!(Exclusion::of_head(b"new"), None);
    }
}
