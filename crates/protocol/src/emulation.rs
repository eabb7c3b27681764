//! What a client that listens to an endless answer sends by requests of its own: commands, and whose they are
//! (`EmulationRequest` of `client.proto`).

use std::borrow::Cow;

use serde::Deserialize;

use crate::data::Object;
use crate::protobuf::{Malformed, fields};

/// Commands and whose they are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EmulationCommand<'a> {
    /// The session's name, as its connect reply says it.
    pub session: Cow<'a, str>,
    /// The node that has it.
    pub node: Cow<'a, str>,
    /// Commands, as they would stand in a message.
    pub data: Cow<'a, [u8]>,
}

/// The same in JSON.
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
    /// Reads it from JSON; the commands are a text.
    ///
    /// # Errors
    /// [`Malformed`] when the text is not such an object.
    pub fn from_json(body: &'a [u8]) -> Result<Self, Malformed> {
        let Object(EmulationJson { session, node, data }) = serde_json::from_slice(body).map_err(|_| Malformed)?;
        let data = match data {
            Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
            Cow::Owned(text) => Cow::Owned(text.into_bytes()),
        };
        Ok(EmulationCommand { session, node, data })
    }

    /// Reads it from Protobuf.
    ///
    /// # Errors
    /// [`Malformed`] when the bytes are not such a message.
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
