//! A client that listens to an endless HTTP response sends its commands in separate requests. Such a request holds the
//! commands and names the session that they belong to (`EmulationRequest` of `client.proto`).

use std::borrow::Cow;

use serde::Deserialize;

use crate::data::Object;
use crate::protobuf::{Malformed, fields};

/// Commands of a client, with the session and node that they belong to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EmulationCommand<'a> {
    /// The session's name from its connect reply.
    pub session: Cow<'a, str>,
    /// The node that holds the session.
    pub node: Cow<'a, str>,
    /// The commands, encoded as in a message of a connection.
    pub data: Cow<'a, [u8]>,
}

/// The same request in its JSON form.
#[derive(Deserialize, Default)]
#[serde(default)]
struct EmulationJson<'a> {
    #[serde(borrow)]
    session: Cow<'a, str>,
    #[serde(borrow)]
    node: Cow<'a, str>,
    #[serde(borrow)]
    data: Cow<'a, str>,
}

impl<'a> EmulationCommand<'a> {
    /// Reads the request from JSON, where the commands are a text.
    ///
    /// # Errors
    /// [`Malformed`] if the text is not such an object.
    pub fn from_json(body: &'a [u8]) -> Result<Self, Malformed> {
        let Object(EmulationJson { session, node, data }) = serde_json::from_slice(body).map_err(|_| Malformed)?;
        let data = match data {
            Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
            Cow::Owned(text) => Cow::Owned(text.into_bytes()),
        };
        Ok(EmulationCommand { session, node, data })
    }

    /// Reads the request from Protobuf.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes are not such a message.
    pub fn from_protobuf(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut request = EmulationCommand::default();
        fields(body, |tag, value| {
            match tag {
                1 => request.node = value.text()?.into(),
                2 => request.session = value.text()?.into(),
                3 => request.data = value.bytes()?.into(),
                _ => {}
            }
            Ok(())
        })?;
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_no_request() {
        assert!(EmulationCommand::from_json(br#"{"session":"s","node":"n","data":"{}"}"#).is_ok());
        for list in ["[]", r#"["s","n","{}"]"#] {
            assert_eq!(EmulationCommand::from_json(list.as_bytes()), Err(Malformed), "{list}");
        }
    }
}
