//! Merges the answers of several nodes into one.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use touchline_protocol::Error;
use touchline_protocol::encode::{self, ObjectWriter};

use super::Json;

#[derive(Deserialize)]
struct NodeReply<'a> {
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    error: Option<NodeError>,
}

#[derive(Deserialize)]
struct NodeError {
    code: u32,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct NodeChannels<'a> {
    channels: BTreeMap<String, ClientCount>,
    #[serde(borrow)]
    nodes: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct ClientCount {
    num_clients: u64,
}

fn result(answer: &Bytes) -> Option<&str> {
    let answer: NodeReply<'_> = serde_json::from_slice(answer).ok()?;
    answer.result.map(RawValue::get)
}

/// Merges the results of `channels` or `info` of all nodes.
pub(super) fn merge(method: &str, own: Json, answers: &[Bytes]) -> Result<Json, Error> {
    let own = String::from_utf8(own).map_err(|_| Error::INTERNAL)?;
    let parts = std::iter::once(own.as_str()).chain(answers.iter().filter_map(result));
    let mut out = Vec::new();
    if method == "info" {
        out.extend_from_slice(b"{\"nodes\":[");
        for (index, node) in parts
            .filter_map(|json| serde_json::from_str::<NodeChannels<'_>>(json).ok())
            .flat_map(|part| part.nodes)
            .enumerate()
        {
            if index > 0 {
                out.push(b',');
            }
            out.extend_from_slice(node.get().as_bytes());
        }
        out.extend_from_slice(b"]}");
        return Ok(out);
    }
    let mut all: BTreeMap<String, u64> = BTreeMap::new();
    for part in parts.filter_map(|json| serde_json::from_str::<NodeChannels<'_>>(json).ok()) {
        for (name, count) in part.channels {
            *all.entry(name).or_default() += count.num_clients;
        }
    }
    out.extend_from_slice(b"{\"channels\":{");
    for (index, (name, clients)) in all.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        encode::text(&mut out, name);
        out.push(b':');
        let mut object = ObjectWriter::open(&mut out);
        object.number("num_clients", *clients);
        object.close();
    }
    out.extend_from_slice(b"}}");
    Ok(out)
}

/// Whether an answer comes from the one node that has the client: it is anything but "not registered".
pub(super) fn is_of_client(answer: &[u8]) -> bool {
    serde_json::from_slice(answer).is_ok_and(|answer: NodeReply<'_>| match answer.error {
        Some(error) => error.code != Error::NOT_REGISTERED.code,
        None => answer.result.is_some(),
    })
}

/// The answer of the one node that has the client. `asked` is the number of nodes that were asked.
///
/// # Errors
/// The error of that node; 4009 when no node has the client and some did not answer, because one of these may have it.
pub(super) fn first(answers: &[Bytes], asked: usize) -> Result<Json, Error> {
    let mut refused = if answers.len() < asked { Error::CLUSTER_UNREACHABLE } else { Error::NOT_REGISTERED };
    for answer in answers {
        match serde_json::from_slice::<NodeReply<'_>>(answer) {
            Ok(NodeReply { result: Some(result), .. }) => return Ok(result.get().as_bytes().to_vec()),
            Ok(NodeReply { error: Some(error), .. }) if error.code != Error::NOT_REGISTERED.code => {
                refused = Error::ALL.iter().find(|known| known.code == error.code).copied().unwrap_or(Error::INTERNAL);
            }
            _ => {}
        }
    }
    Err(refused)
}
