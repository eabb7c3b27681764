//! Adds names and groups of the registry to the descriptions of connections. The registry actor finds them by the
//! client id, in lists that it has anyway.

use std::time::Duration;

use tokio::sync::oneshot;
use touchline_engine::directory::{HeldEntries, HeldEntry};
use touchline_protocol::encode::{ObjectWriter, list, number};

use crate::node::Node;
use crate::runtime::connection_query::ConnectionRow;
use crate::runtime::registry_mailbox::RegistryMessage;

/// The most names and groups that are listed for one connection. Further ones are only counted.
const LISTED_ENTRIES_MAX: usize = 64;
/// The most bytes of the names and groups that are listed for one connection.
const LISTED_SIZE_MAX: usize = 4 * 1_024;
/// The most lookups, connections times scopes, in one message to the registry actor.
const LOOKUPS_IN_MESSAGE_MAX: usize = 512;

/// Adds the names and groups that connections of this node have. `until_us`: the deadline, in microseconds of the
/// node's clock. Connections for which the registry actor has not answered by then are marked.
pub(super) async fn add_held_entries(node: &Node, rows: &mut [ConnectionRow], until_us: u64) {
    let scopes = node.generation().session.scopes.in_use();
    if scopes == 0 {
        return;
    }
    for part in rows.chunks_mut((LOOKUPS_IN_MESSAGE_MAX / scopes).max(1)) {
        let left = Duration::from_micros(until_us.saturating_sub(node.clock.elapsed_us()));
        let owners = part.iter().map(|row| row.client).collect();
        let (reply, answer) = oneshot::channel();
        node.send_to_registry(RegistryMessage::Held { owners, most: LISTED_ENTRIES_MAX, reply });
        match node.clock.time().timeout(left, answer).await {
            Ok(Ok(held)) => part.iter_mut().zip(&held).for_each(|(row, held)| write_held(&mut row.json, held)),
            _ => part.iter_mut().for_each(|row| reopen(&mut row.json, |out| out.extend_from_slice(MISSING))),
        }
    }
}

/// The members of a connection for which the registry did not answer.
const MISSING: &[u8] = b",\"entries_missing\":true";

/// Adds members to an object that is not empty.
fn reopen(json: &mut Vec<u8>, add: impl FnOnce(&mut Vec<u8>)) {
    json.pop();
    add(json);
    json.push(b'}');
}

/// Adds the names and groups of a connection to its object.
fn write_held(json: &mut Vec<u8>, held: &HeldEntries) {
    let mut room = LISTED_SIZE_MAX;
    let listed: Vec<&HeldEntry> = held
        .entries
        .iter()
        .take_while(|held| {
            let left = room.checked_sub(held.scope.len() + held.entry.key().len());
            room = left.unwrap_or(0);
            left.is_some()
        })
        .collect();
    let unlisted = held.unlisted + held.entries.len() - listed.len();
    reopen(json, |out| {
        for (field, key, is_group) in [(",\"names\":", "name", false), (",\"groups\":", "group", true)] {
            let mut of_kind = listed.iter().filter(|held| held.is_group == is_group).peekable();
            if of_kind.peek().is_none() {
                continue;
            }
            out.extend_from_slice(field.as_bytes());
            list(out, of_kind, |out, held| {
                let mut object = ObjectWriter::open(out);
                object.text("scope", &held.scope).text(key, held.entry.key());
                object.close();
            });
        }
        if unlisted > 0 {
            out.extend_from_slice(b",\"entries_truncated\":");
            number(out, unlisted as u64);
        }
    });
}

#[cfg(test)]
mod tests {
    use touchline_engine::directory::{Directory, DirectoryRequest, Requester, ScopeId, ScopeOptions};
    use touchline_registry::{HashSeed, OwnerId, ReplicaTiming};

    use super::*;

    /// Returns the JSON for a client that has so many names of so many bytes, and one group, in a scope.
    fn told(names: usize, size: usize) -> serde_json::Value {
        let options = ScopeOptions {
            name: "devices".into(),
            client_entries_limit: 1_000,
            name_max_length: 65_535,
            ..ScopeOptions::default()
        };
        let timing = ReplicaTiming::default();
        let mut directory = Directory::<()>::new("here", &[options], &timing, 7, HashSeed::repeatable(7), false, 1_000);
        let requester = Requester { owner: OwnerId([1; 16]), user: Box::default(), is_backend: false };
        let scope = ScopeId(0);
        let mut execute = |request| directory.execute(&requester, request, None, 1_000);
        execute(DirectoryRequest::Join { scope, group: "bikes".into(), meta: "".into() });
        for number in 0..names {
            let name = format!("{number:0size$}").into();
            execute(DirectoryRequest::Register { scope, name, meta: "".into(), take_over: false });
        }
        let mut json = br#"{"user":"ann"}"#.to_vec();
        write_held(&mut json, &directory.held(requester.owner, LISTED_ENTRIES_MAX));
        serde_json::from_slice(&json).expect("JSON")
    }

    #[test]
    fn names_and_groups_are_listed_up_to_a_number_and_a_size_and_the_rest_is_counted() {
        let few = told(2, 3);
        let names = serde_json::json!([{"scope": "devices", "name": "001"}, {"scope": "devices", "name": "000"}]);
        let groups = serde_json::json!([{"scope": "devices", "group": "bikes"}]);
        assert_eq!(few, serde_json::json!({"user": "ann", "names": names, "groups": groups}));
        assert_eq!(told(0, 0), serde_json::json!({"user": "ann", "groups": groups}));
        let listed = |told: &serde_json::Value| told["names"].as_array().map_or(0, Vec::len);
        let many = told(100, 3);
        assert_eq!((listed(&many), &many["entries_truncated"]), (64, &37.into()));
        assert!(many["groups"].is_null(), "names come first: {many}");
        let long = told(10, 1_000);
        assert_eq!((listed(&long), &long["entries_truncated"]), (4, &7.into()));
        let longest = told(1, 5_000);
        assert_eq!(longest, serde_json::json!({"user": "ann", "entries_truncated": 2}));
    }
}
