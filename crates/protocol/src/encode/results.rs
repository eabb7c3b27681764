//! Writes errors and results as JSON.

use super::object::{ObjectWriter, number, separated, text};
use crate::code::Error;
use crate::publication::Publication;

/// Writes a list of publications: `[…]`.
pub fn publications<'p>(out: &mut Vec<u8>, items: impl IntoIterator<Item = &'p Publication>) {
    out.push(b'[');
    separated(out, items, |out, item| out.extend_from_slice(item.json()));
    out.push(b']');
}

/// Writes `Error` as in the replies to clients.
pub fn error(out: &mut Vec<u8>, error: &Error) {
    let mut object = ObjectWriter::open(out);
    object.number("code", error.code.into()).text("message", error.message).flag("temporary", error.temporary);
    object.close();
}

/// Writes `PresenceStatsResult`: the number of clients and of distinct users.
pub fn presence_stats(out: &mut Vec<u8>, clients: u64, users: u64) {
    let mut object = ObjectWriter::open(out);
    number(object.key("num_clients"), clients);
    number(object.key("num_users"), users);
    object.close();
}

/// Writes `HistoryResult`: publications, epoch and top offset.
pub fn history<'p>(out: &mut Vec<u8>, items: impl IntoIterator<Item = &'p Publication>, epoch: &str, offset: u64) {
    let mut object = ObjectWriter::open(out);
    publications(object.key("publications"), items);
    text(object.key("epoch"), epoch);
    number(object.key("offset"), offset);
    object.close();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_say_both_numbers_even_if_they_are_zero() {
        for (clients, users, json) in
            [(0, 0, r#"{"num_clients":0,"num_users":0}"#), (3, 2, r#"{"num_clients":3,"num_users":2}"#)]
        {
            let mut out = Vec::new();
            presence_stats(&mut out, clients, users);
            assert_eq!(out, json.as_bytes());
        }
    }
}
