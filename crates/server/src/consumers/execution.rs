//! Carries out what rows or messages ask for, in an order that no subscriber could tell from theirs: publications of
//! one channel one after the other, those of other channels beside them, and everything else alone.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::oneshot;

use super::command::AskedCommand;
use super::exact::{ExactRow, ExactRows};
use super::outcome::EntryOutcome;
use super::wave::{AskedPublication, Chains, Wave};
use crate::api::{CallFailure, OperationCall, run_in_order};
use crate::node::Node;
use crate::runtime::mailbox::Message;

/// The results of a chain of operations.
type ChainResults = Vec<Result<(), CallFailure>>;

/// Gives the idempotency key of an entry that has none, by its index.
pub(super) type KeyOf<'a> = &'a (dyn Fn(usize) -> String + Sync);

/// Carries entries out; the result has an outcome for each. `exact`: stores publications of durable channels together
/// with the deletion of their rows; None = the entries are not rows of the primary database.
pub(super) async fn carry_out(
    node: &Arc<Node>,
    entries: Vec<AskedCommand>,
    key_of: KeyOf<'_>,
    exact: Option<&ExactRows<'_>>,
) -> Vec<EntryOutcome> {
    let mut outcomes = vec![EntryOutcome::Waiting; entries.len()];
    let mut publications = Vec::new();
    for (index, entry) in entries.into_iter().enumerate() {
        match entry {
            AskedCommand::Publish { channel, call } => publications.push((index, channel, call)),
            AskedCommand::Nothing(why) => outcomes[index] = EntryOutcome::PassedOver(why),
            AskedCommand::Unreadable(why) => outcomes[index] = EntryOutcome::Failed(why),
            AskedCommand::Other(call) => {
                if !publish(node, std::mem::take(&mut publications), key_of, exact, &mut outcomes).await {
                    return settled(outcomes, index);
                }
                let shard = node.home(call.operation());
                let call = call.with_key(|| key_of(index));
                let mut results = start(node, shard, vec![call]).await.unwrap_or_default();
                outcomes[index] = outcome(results.pop());
                if matches!(outcomes[index], EntryOutcome::Retry(_)) {
                    return settled(outcomes, index + 1);
                }
            }
        }
    }
    publish(node, publications, key_of, exact, &mut outcomes).await;
    outcomes
}

/// The outcomes when nothing from `end` on is tried: what was read as bad there waits as well.
fn settled(mut outcomes: Vec<EntryOutcome>, end: usize) -> Vec<EntryOutcome> {
    outcomes[end..].fill(EntryOutcome::Waiting);
    outcomes
}

/// Carries out publications that have nothing else between them, wave by wave. False = one has to be tried again; what
/// is behind it in its channel stays [`EntryOutcome::Waiting`].
async fn publish(
    node: &Arc<Node>,
    publications: Vec<AskedPublication>,
    key_of: KeyOf<'_>,
    exact: Option<&ExactRows<'_>>,
    outcomes: &mut [EntryOutcome],
) -> bool {
    let channels: BTreeMap<usize, String> =
        publications.iter().map(|(index, channel, _)| (*index, channel.clone())).collect();
    let mut left = publications;
    loop {
        let wave = Wave::of(left, |(index, channel, call)| match exact {
            Some(exact) => exact.prepare(node, *index, channel, call),
            None => Ok(None),
        });
        let Wave { rows, mut chains, later, known } = wave;
        for (index, outcome) in known {
            outcomes[index] = outcome;
        }
        let stored = match exact {
            Some(exact) if !rows.is_empty() => exact.append(node, rows).await,
            _ => Vec::new(),
        };
        for (ExactRow { index, channel, call, .. }, outcome) in stored {
            match outcome {
                Some(outcome) => outcomes[index] = outcome,
                // They are not rows of the primary database after all.
                None => chains.entry(channel).or_default().push((index, call)),
            }
        }
        chains.values_mut().for_each(|chain| chain.sort_by_key(|(index, _)| *index));
        let held = first_again(&channels, outcomes);
        // What was prepared before a row that has to be tried again is in front of it, unless it was to be stored too.
        for (channel, chain) in &mut chains {
            let end = held.get(channel.as_str()).copied().unwrap_or(usize::MAX);
            chain.retain(|(index, _)| *index < end);
        }
        chains.retain(|_, chain| !chain.is_empty());
        run_chains(node, chains, key_of, outcomes).await;
        let held = first_again(&channels, outcomes);
        left = later.into_iter().filter(|(_, channel, _)| !held.contains_key(channel.as_str())).collect();
        if left.is_empty() {
            return channels.keys().all(|index| is_settled(&outcomes[*index]));
        }
    }
}

/// Whether an entry was carried out, or never can be.
fn is_settled(outcome: &EntryOutcome) -> bool {
    !matches!(outcome, EntryOutcome::Retry(_) | EntryOutcome::Waiting)
}

/// The first entry of each channel that has to be tried again.
fn first_again<'a>(channels: &'a BTreeMap<usize, String>, outcomes: &[EntryOutcome]) -> BTreeMap<&'a str, usize> {
    let again = channels.iter().filter(|(index, _)| matches!(outcomes[**index], EntryOutcome::Retry(_)));
    // The last one that is put in stays: the first.
    again.rev().map(|(index, channel)| (channel.as_str(), *index)).collect()
}

/// Runs the publications of each channel in their order, on the thread of the channel's home.
async fn run_chains(node: &Arc<Node>, chains: Chains, key_of: KeyOf<'_>, outcomes: &mut [EntryOutcome]) {
    let mut running = Vec::with_capacity(chains.len());
    for (channel, chain) in chains {
        let keyed = chain.into_iter().map(|(index, call)| (index, call.with_key(|| key_of(index))));
        let (indices, calls): (Vec<usize>, Vec<OperationCall>) = keyed.unzip();
        running.push((indices, start(node, node.home(&channel), calls)));
    }
    for (indices, results) in running {
        let mut results = results.await.unwrap_or_default().into_iter();
        for (number, index) in indices.into_iter().enumerate() {
            let result = results.next();
            // Without any result the shard has ended; behind the last result nothing was tried.
            let is_tried = result.is_some() || number == 0;
            outcomes[index] = if is_tried { outcome(result) } else { EntryOutcome::Waiting };
        }
    }
}

fn outcome(result: Option<Result<(), CallFailure>>) -> EntryOutcome {
    match result {
        Some(Ok(())) => EntryOutcome::Done,
        Some(Err(CallFailure::Temporary(error))) => EntryOutcome::Retry(error.to_string()),
        Some(Err(CallFailure::Final(why))) => EntryOutcome::Failed(why),
        None => EntryOutcome::Retry("the node stops".to_owned()),
    }
}

/// Starts operations on the thread of a shard. They end early when nobody waits for the results any more.
fn start(
    node: &Arc<Node>,
    shard: touchline_engine::ShardId,
    calls: Vec<OperationCall>,
) -> oneshot::Receiver<ChainResults> {
    let (sender, results) = oneshot::channel();
    let of_node = Arc::clone(node);
    let work = move || {
        tokio::task::spawn_local(async move {
            let results = run_in_order(&of_node, &calls, || !sender.is_closed()).await;
            let _ = sender.send(results);
        });
    };
    node.send(shard, Message::Start(Box::new(work)));
    results
}
