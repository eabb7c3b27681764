//! Operations that concern other nodes: the messages between nodes, and how their answers are merged.

use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use touchline_protocol::Error;
use touchline_protocol::encode::ObjectWriter;

use super::description::OperationScope;
use super::json::WriteJson;
use super::operation::{Operation, OperationError, OtherNodes, RequestNode};
use super::version::V1;
use crate::node::Node;

/// A request of one node to the others to run an operation.
#[derive(Deserialize)]
pub(super) struct BroadcastMessage<'a> {
    pub(super) method: &'a str,
    /// The first version of the server API that has the operation in this form; None = version 1.
    #[serde(default)]
    pub(super) version: Option<u16>,
    #[serde(borrow, default)]
    pub(super) params: Option<&'a RawValue>,
}

/// The suffix of an operation's name if its request is gathered. A node that does not know gathered requests refuses
/// the name, so it never mistakes the request for another one.
pub(super) const GATHERED: &str = ".gathered";

/// The number of bytes around the parameters of an operation in a message between nodes.
const BROADCAST_OVERHEAD: usize = 64;

/// Encodes an operation as a message to other nodes.
fn broadcast_message(method: &str, since: u16, params: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(params.len() + BROADCAST_OVERHEAD);
    let mut object = ObjectWriter::open(&mut out);
    object.text("method", method);
    if since > V1.number {
        object.number("version", since.into());
    }
    object.raw("params", (!params.is_empty()).then_some(params));
    object.close();
    out
}

/// The answer of another node.
#[derive(Deserialize)]
struct NodeReply<'a> {
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    error: Option<NodeError>,
    /// The id of the node; None = the node has an earlier version, which does not send its id.
    #[serde(default)]
    node: Option<&'a str>,
}

#[derive(Deserialize)]
struct NodeError {
    code: u32,
}

impl NodeError {
    fn is_busy(&self) -> bool {
        self.code == Error::TOO_MANY_REQUESTS.code
    }

    fn is_not_registered(&self) -> bool {
        self.code == Error::NOT_REGISTERED.code
    }
}

/// Runs an operation on all nodes that it concerns, and writes its result as the member `key` of an object. `params`:
/// the JSON of the request, for the other nodes.
///
/// # Errors
/// The error of the operation. Nothing is written then.
pub(super) async fn run_everywhere<'a, O: Operation>(
    node: RequestNode<'a>,
    request: O::Request<'a>,
    params: &[u8],
    object: &mut ObjectWriter<'_>,
    key: &str,
) -> Result<(), OperationError> {
    let is_gathered = O::is_gathered(&request);
    let may_go_out = is_gathered || matches!(O::SCOPE, OperationScope::Broadcast | OperationScope::ClientNode);
    // An operation that is too large for a message to the other nodes is not run here either.
    if may_go_out && node.is_too_large(params.len() + BROADCAST_OVERHEAD) {
        return Err(Error::BAD_REQUEST.into());
    }
    let outcome = O::run(node, request).await;
    let mut reply = match (outcome, &node.cluster) {
        (Err(refused), Some(_)) if O::SCOPE == OperationScope::ClientNode && refused.error == Error::NOT_REGISTERED => {
            let result = Box::pin(ask_client_node(&node, broadcast_message(O::NAME, O::SINCE, params))).await?;
            object.key(key).extend_from_slice(&result);
            return Ok(());
        }
        (outcome, _) => outcome?,
    };
    match (O::SCOPE, &node.cluster) {
        (_, Some(_)) if is_gathered => {
            let name = [O::NAME, GATHERED].concat();
            Box::pin(merge_others::<O>(&node, broadcast_message(&name, O::SINCE, params), &mut reply)).await;
        }
        (OperationScope::Broadcast, Some(cluster)) => cluster.broadcast(broadcast_message(O::NAME, O::SINCE, params)),
        (OperationScope::Gather, Some(_)) => {
            Box::pin(merge_others::<O>(&node, broadcast_message(O::NAME, O::SINCE, params), &mut reply)).await;
        }
        _ => {}
    }
    O::conclude(node, &mut reply).await?;
    reply.write(object.key(key));
    Ok(())
}

/// Runs an operation on this node alone, and writes its result as the member `key` of an object.
///
/// # Errors
/// The error of the operation. Nothing is written then.
pub(super) async fn run_here<'a, O: Operation>(
    node: RequestNode<'a>,
    request: O::Request<'a>,
    object: &mut ObjectWriter<'_>,
    key: &str,
) -> Result<(), OperationError> {
    O::run(node, request).await?.write(object.key(key));
    Ok(())
}

/// Adds the results of all other nodes that answer in time to the result of this node.
async fn merge_others<O: Operation>(node: &Node, message: Vec<u8>, reply: &mut O::Reply) {
    let peers = node.peers_in_order();
    let (answers, _) = node.gather(message, |_| false).await;
    // Checked after the answers: if the link was lost in the meantime, no answers arrived.
    let is_cut_off = !node.is_linked.load(Relaxed);
    O::merge(reply, &OtherNodes { is_cut_off, ..others(&answers, peers) });
}

/// Returns the answers of the other nodes. `peers`: the ids of the nodes that were asked.
fn others(answers: &[Bytes], mut peers: Vec<Box<str>>) -> OtherNodes<'_> {
    let read = answers.iter().filter_map(|answer| serde_json::from_slice::<NodeReply<'_>>(answer).ok());
    let (mut results, mut busy, mut unnamed_refusals) = (Vec::new(), Vec::new(), 0);
    for answer in read {
        match answer.result {
            Some(result) => results.push((answer.node, result)),
            None => {
                unnamed_refusals += usize::from(answer.node.is_none());
                busy.extend(answer.node.filter(|_| answer.error.is_some_and(|error| error.is_busy())));
            }
        }
    }
    peers.retain(|peer| !results.iter().any(|(node, _)| *node == Some(&**peer)));
    // Nodes of an earlier version do not send their ids. If as many of them answered as peers are left, all answered.
    if results.iter().filter(|(node, _)| node.is_none()).count() >= peers.len() {
        peers.clear();
    }
    let may_come_back = peers.len() > unnamed_refusals;
    let busy = peers.iter().filter(|peer| busy.contains(&&***peer)).cloned().collect();
    OtherNodes { results, missing: peers, busy, may_come_back, is_cut_off: false }
}

/// Asks the other nodes to run an operation that only the node of a client can run.
///
/// # Errors
/// As [`first`].
async fn ask_client_node(node: &Node, message: Vec<u8>) -> Result<Vec<u8>, Error> {
    let (answers, asked) = node.gather(message, is_of_client).await;
    first(&answers, asked)
}

/// Whether an answer comes from the one node that has the client: any answer but "not registered" does.
fn is_of_client(answer: &[u8]) -> bool {
    serde_json::from_slice(answer).is_ok_and(|answer: NodeReply<'_>| match answer.error {
        Some(error) => !error.is_not_registered(),
        None => answer.result.is_some(),
    })
}

/// Returns the result of the one node that has the client, as JSON. `asked`: the number of nodes that were asked.
///
/// # Errors
/// The error of that node. 4009 if no node has the client and some nodes did not answer, because one of them may have
/// it.
fn first(answers: &[Bytes], asked: usize) -> Result<Vec<u8>, Error> {
    let mut refused = if answers.len() < asked { Error::CLUSTER_UNREACHABLE } else { Error::NOT_REGISTERED };
    for answer in answers {
        match serde_json::from_slice::<NodeReply<'_>>(answer) {
            Ok(NodeReply { result: Some(result), .. }) => return Ok(result.get().as_bytes().to_vec()),
            Ok(NodeReply { error: Some(error), .. }) if !error.is_not_registered() => {
                refused = Error::ALL.iter().find(|known| known.code == error.code).copied().unwrap_or(Error::INTERNAL);
            }
            _ => {}
        }
    }
    Err(refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_of_the_clients_node_is_taken_and_an_absent_answer_leaves_it_open() {
        let answers = |texts: &[&'static str]| texts.iter().map(|text| Bytes::from(*text)).collect::<Vec<_>>();
        let (not_here, taken) = (r#"{"error":{"code":4002}}"#, r#"{"error":{"code":4001}}"#);
        assert_eq!(first(&answers(&[not_here, r#"{"result":{"a":1}}"#]), 2), Ok(br#"{"a":1}"#.to_vec()));
        assert_eq!(first(&answers(&[not_here, taken]), 2), Err(Error::NAME_TAKEN));
        assert_eq!(first(&answers(&[not_here, not_here]), 2), Err(Error::NOT_REGISTERED));
        assert_eq!(first(&answers(&[not_here]), 2), Err(Error::CLUSTER_UNREACHABLE));
        assert_eq!(first(&answers(&[r#"{"error":{"code":9999}}"#]), 1), Err(Error::INTERNAL), "of a later version");
        assert!(!is_of_client(not_here.as_bytes()) && is_of_client(taken.as_bytes()));
        assert!(is_of_client(br#"{"result":{}}"#) && !is_of_client(b"{}") && !is_of_client(b"x"));
    }

    #[test]
    fn who_has_not_answered_is_named_unless_the_answers_without_a_name_are_theirs() {
        let peers = || ["a", "b", "c"].map(Box::from).to_vec();
        let answers = |texts: &[&'static str]| texts.iter().map(|text| Bytes::from(*text)).collect::<Vec<_>>();
        let missing = |texts: &[&'static str]| {
            let answers = answers(texts);
            let others = others(&answers, peers());
            (others.missing.iter().map(|node| node.to_string()).collect::<String>(), others.may_come_back)
        };
        let (a, b) = (r#"{"result":{},"node":"a"}"#, r#"{"result":{},"node":"b"}"#);
        let (unnamed, refused) = (r#"{"result":{}}"#, r#"{"error":{"code":104}}"#);
        assert_eq!(missing(&[a, b, r#"{"result":{},"node":"c"}"#]), (String::new(), false));
        assert_eq!(missing(&[a, b]), ("c".into(), true), "it is silent");
        assert_eq!(missing(&[a, b, r#"{"error":{"code":111},"node":"c"}"#]), ("c".into(), true), "it is busy");
        assert_eq!(missing(&[a, b, refused]), ("c".into(), false), "it does not know the operation");
        assert_eq!(missing(&[a, refused]), ("bc".into(), true));
        assert_eq!(missing(&[a, unnamed, unnamed]), (String::new(), false), "of an earlier version");
        assert_eq!(missing(&[a, unnamed]), ("bc".into(), true), "one of both");
        assert_eq!(missing(&[]), ("abc".into(), true));
        assert_eq!(others(&answers(&[a, "x", "[]"]), peers()).results.len(), 1);
        let (busy, refused_c) = (r#"{"error":{"code":111},"node":"b"}"#, r#"{"error":{"code":100},"node":"c"}"#);
        let answers = answers(&[a, busy, refused_c, r#"{"error":{"code":111}}"#]);
        let others = others(&answers, peers());
        assert_eq!((others.missing, others.busy), (["b", "c"].map(Box::from).to_vec(), vec!["b".into()]));
    }

    #[test]
    fn a_message_between_nodes_keeps_its_shape() {
        assert_eq!(broadcast_message("info", 1, b""), br#"{"method":"info"}"#);
        let message = broadcast_message("refresh", 1, br#"{"user":"a"}"#);
        assert_eq!(message, br#"{"method":"refresh","params":{"user":"a"}}"#);
        let read: BroadcastMessage<'_> = serde_json::from_slice(&message).expect("a message");
        assert_eq!((read.method, read.params.map(RawValue::get)), ("refresh", Some(r#"{"user":"a"}"#)));
        assert_eq!(read.version, None);
        let later = broadcast_message("info", 2, b"");
        assert_eq!(later, br#"{"method":"info","version":2}"#);
        assert_eq!(serde_json::from_slice::<BroadcastMessage<'_>>(&later).expect("a message").version, Some(2));
    }
}
