//! Carries out the commands in rows or messages, in an order that no subscriber can distinguish from theirs.
//! Publications of one channel run one after the other, those of other channels beside them, and everything else runs
//! alone. Only the channel of an entry that has to be retried waits for it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::oneshot;

use super::command::{AskedCommand, CommandScope};
use super::exact::{ExactRow, ExactRows};
use super::outcome::EntryOutcome;
use super::wave::{AskedPublication, Chains, Wave};
use crate::api::{CallFailure, OperationCall, run_in_order};
use crate::node::Node;
use crate::runtime::mailbox::Message;

/// The results of a chain of operations.
type ChainResults = Vec<Result<(), CallFailure>>;

/// Returns the idempotency key of an entry that has none, by its index.
pub(super) type KeyOf<'a> = &'a (dyn Fn(usize) -> String + Sync);

/// What waits in this turn: the channels in which an entry has to be retried, or was carried out for the last time in
/// this turn.
#[derive(Debug, Default)]
struct HeldScopes {
    channels: BTreeSet<String>,
    everything: bool,
}

impl HeldScopes {
    fn holds(&self, channel: &str) -> bool {
        self.everything || self.channels.contains(channel)
    }

    fn holds_scope(&self, scope: &CommandScope) -> bool {
        match scope {
            CommandScope::Channels(channels) => self.everything || channels.iter().any(|one| self.holds(one)),
            // It does not wait for channels with an entry to retry. Otherwise one channel would delay all.
            CommandScope::Everything => self.everything,
        }
    }

    fn hold(&mut self, scope: &CommandScope) {
        match scope {
            CommandScope::Channels(channels) => self.channels.extend(channels.iter().cloned()),
            CommandScope::Everything => self.everything = true,
        }
    }
}

/// Carries out entries, and returns an outcome for each. `rests`: whether the entry with this index has failed and is
/// not due yet. `exact`: stores publications of durable channels together with the deletion of their rows; None = the
/// entries are not rows of the primary database.
///
/// Entries after one that has to be retried wait if they share a channel with it. Everything else continues. An entry
/// waits for the next turn if repeating an earlier one could undo it. By then the earlier one is certainly done.
pub(super) async fn carry_out(
    node: &Arc<Node>,
    entries: Vec<AskedCommand>,
    rests: impl Fn(usize) -> bool,
    key_of: KeyOf<'_>,
    exact: Option<&ExactRows<'_>>,
) -> Vec<EntryOutcome> {
    let mut outcomes = vec![EntryOutcome::Waiting; entries.len()];
    let (mut publications, mut held) = (Vec::new(), HeldScopes::default());
    for (index, entry) in entries.into_iter().enumerate() {
        match entry {
            AskedCommand::Publish { channel, .. } if held.holds(&channel) => {}
            AskedCommand::Publish { channel, .. } if rests(index) => {
                held.channels.insert(channel);
            }
            AskedCommand::Publish { channel, call } => publications.push((index, channel, call)),
            AskedCommand::Nothing(why) => outcomes[index] = EntryOutcome::PassedOver(why),
            AskedCommand::Unreadable(why) => outcomes[index] = EntryOutcome::Failed(why),
            AskedCommand::Other(call) => {
                let before = std::mem::take(&mut publications);
                held.channels.extend(publish(node, before, key_of, exact, &mut outcomes).await);
                if rests(index) || held.holds_scope(call.scope()) {
                    held.hold(call.scope());
                    continue;
                }
                let (scope, undoes, shard) = (call.scope().clone(), call.undoes(), node.home(call.operation()));
                let call = call.with_key(|| key_of(index));
                let mut results = start(node, shard, vec![call]).await.unwrap_or_default();
                outcomes[index] = outcome(results.pop());
                if undoes || !is_settled(&outcomes[index]) {
                    held.hold(&scope);
                }
            }
        }
    }
    publish(node, publications, key_of, exact, &mut outcomes).await;
    outcomes
}

/// Carries out publications without other commands between them, wave by wave. Returns the channels in which one has to
/// be retried. Later publications there stay [`EntryOutcome::Waiting`].
async fn publish(
    node: &Arc<Node>,
    publications: Vec<AskedPublication>,
    key_of: KeyOf<'_>,
    exact: Option<&ExactRows<'_>>,
    outcomes: &mut [EntryOutcome],
) -> BTreeSet<String> {
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
                // The publications are not rows of the primary database after all.
                None => chains.entry(channel).or_default().push((index, call)),
            }
        }
        chains.values_mut().for_each(|chain| chain.sort_by_key(|(index, _)| *index));
        let held = first_again(&channels, outcomes);
        // Publications prepared before a row that has to be retried come before it, unless they were to be stored as
        // well.
        for (channel, chain) in &mut chains {
            let end = held.get(channel.as_str()).copied().unwrap_or(usize::MAX);
            chain.retain(|(index, _)| *index < end);
        }
        chains.retain(|_, chain| !chain.is_empty());
        run_chains(node, chains, key_of, outcomes).await;
        let held = first_again(&channels, outcomes);
        left = later.into_iter().filter(|(_, channel, _)| !held.contains_key(channel.as_str())).collect();
        if left.is_empty() {
            let is_held = |(index, _): &(usize, String)| !is_settled(&outcomes[*index]);
            return channels.into_iter().filter(is_held).map(|(_, channel)| channel).collect();
        }
    }
}

/// Whether an entry was carried out, or never can be.
fn is_settled(outcome: &EntryOutcome) -> bool {
    !matches!(outcome, EntryOutcome::Retry(_) | EntryOutcome::Waiting)
}

/// Returns the first entry of each channel that has to be retried.
fn first_again<'a>(channels: &'a BTreeMap<usize, String>, outcomes: &[EntryOutcome]) -> BTreeMap<&'a str, usize> {
    let again = channels.iter().filter(|(index, _)| matches!(outcomes[**index], EntryOutcome::Retry(_)));
    // The last inserted entry remains, which is the first one of the channel.
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
            // Without any result the shard has ended. After the last result no operation was tried.
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

/// Starts operations on the thread of a shard. They end early when no task waits for the results any more.
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
