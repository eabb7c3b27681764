//! The page of the protocol lists every number there is.

use touchline_protocol::{Disconnect, Error, Unsubscribe};

#[test]
fn every_code_is_documented() {
    let page = include_str!("../../../../docs/protocol.md");
    let errors = Error::ALL.iter().map(|error| (error.code, error.message.to_owned()));
    let unsubscribes = Unsubscribe::ALL.iter().map(|why| (why.code, why.reason.to_owned()));
    let disconnects = Disconnect::ALL.iter().map(|why| (u32::from(why.code), why.reason.clone().into_owned()));
    for (code, text) in errors.chain(unsubscribes).chain(disconnects) {
        assert!(page.contains(&format!("| {code} | {text} |")), "docs/protocol.md does not tell of {code} {text}");
    }
}
