//! What sessions have done, by method, code and namespace.

use std::collections::BTreeMap;
use std::sync::Arc;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use touchline_engine::session::{CommandMethod, SessionCount, SubscribeOutcome};
use touchline_engine::{NamespaceIndex, Namespaces, OTHER_NAMESPACE};
use touchline_lock::{Lock, LockGuard};
use touchline_protocol::Unsubscribe;

use super::code_counts::{CodeCounts, CodeKind, encode_codes};
use super::meters::{Amounts, Counter, SummedAmounts};

/// How many namespaces are counted one by one since the node started, over all its reloads. Further ones count as
/// `other`.
const NAMESPACES_MAX: usize = 1_000;

/// The counters of the channels of one namespace.
#[derive(Debug, Default)]
pub(crate) struct NamespaceCounts {
    publications: Counter,
    publication_bytes: Counter,
    deliveries: Counter,
    delivered_bytes: Counter,
    subscribes: [Counter; SubscribeOutcome::ALL.len()],
    recovered: Counter,
    unrecovered: Counter,
}

impl NamespaceCounts {
    /// Counts a publication. `bytes`: the size of its data. Any thread may call this, because a database or NATS
    /// confirms later that it has stored one.
    pub(crate) fn published(&self, bytes: usize) {
        self.publications.add_shared(1);
        self.publication_bytes.add_shared(bytes as u64);
    }

    /// Counts what was passed to connections. `bytes`: the size of the publication as a JSON object; 0 = a join or a
    /// leave.
    pub(crate) fn delivered(&self, deliveries: u64, bytes: usize) {
        self.deliveries.add(deliveries);
        self.delivered_bytes.add(deliveries * bytes as u64);
    }
}

/// The counters of the namespaces of a shard, in the order of the namespaces in one configuration.
#[derive(Debug, Default)]
pub(crate) struct NumberedNamespaces(Vec<Arc<NamespaceCounts>>);

impl NumberedNamespaces {
    /// The counters of one namespace; an unknown number means the counters of all other namespaces.
    pub(crate) fn get(&self, index: NamespaceIndex) -> Option<&Arc<NamespaceCounts>> {
        self.0.get(index.get()).or(self.0.last())
    }
}

type NamedCounts = BTreeMap<Box<str>, Arc<NamespaceCounts>>;

/// What the sessions of one shard have done. One thread at a time counts, and any thread reads.
#[derive(Debug)]
pub(crate) struct SessionMetrics {
    commands: [Counter; CommandMethod::ALL.len()],
    errors: [CodeCounts; CommandMethod::ALL.len()],
    unsubscribes: CodeCounts,
    recovered_publications: Amounts,
    /// The counters by namespace since the node started. A namespace that a reload removes keeps its counts.
    namespaces: Lock<NamedCounts>,
}

impl Default for SessionMetrics {
    fn default() -> Self {
        SessionMetrics {
            commands: Default::default(),
            errors: std::array::from_fn(|_| CodeCounts::of(CodeKind::Errors)),
            unsubscribes: CodeCounts::of(CodeKind::Unsubscribes),
            recovered_publications: Amounts::default(),
            namespaces: Lock::default(),
        }
    }
}

impl SessionMetrics {
    /// The counters of the namespaces of a configuration.
    pub(crate) fn numbered(&self, namespaces: &Namespaces) -> NumberedNamespaces {
        let mut known = self.known();
        NumberedNamespaces(namespaces.names().map(|name| of_name(&mut known, name)).collect())
    }

    /// The counters of a channel's namespace. This takes a lock, so it is not for every publication.
    pub(crate) fn of_channel(&self, namespaces: &Namespaces, channel: &str) -> Arc<NamespaceCounts> {
        let name = namespaces.name_at(namespaces.index_of(channel));
        of_name(&mut self.known(), name)
    }

    fn known(&self) -> LockGuard<'_, NamedCounts> {
        self.namespaces.lock()
    }

    /// Counts something that a session has done.
    pub(crate) fn count(&self, count: SessionCount, namespaces: &NumberedNamespaces) {
        let of = |namespace| namespaces.get(namespace);
        match count {
            SessionCount::Command(method) => self.commands[method as usize].add(1),
            SessionCount::Error { method, code } => self.errors[method as usize].count(code),
            SessionCount::Subscribe { namespace, outcome } => {
                of(namespace).inspect(|counts| counts.subscribes[outcome as usize].add(1));
            }
            SessionCount::Recovery { namespace, publications } => {
                if let Some(publications) = publications {
                    self.recovered_publications.observe(publications as u64);
                }
                let pick = |counts: &NamespaceCounts| match publications {
                    Some(_) => counts.recovered.add(1),
                    None => counts.unrecovered.add(1),
                };
                of(namespace).inspect(|counts| pick(counts));
            }
            SessionCount::Unsubscribe(code) => self.unsubscribes.count(code),
        }
    }

    /// The number of clients that have asked to connect.
    pub(crate) fn connects(&self) -> u64 {
        self.commands[CommandMethod::Connect as usize].get()
    }

    /// How often clients received an error with this code.
    pub(crate) fn errors(&self, code: u32) -> u64 {
        self.errors.iter().map(|counts| counts.get(code)).sum()
    }

    /// The numbers of publications and deliveries, over all namespaces.
    pub(crate) fn traffic(&self) -> (u64, u64) {
        let namespaces = self.known();
        let sum = |pick: fn(&NamespaceCounts) -> &Counter| namespaces.values().map(|counts| pick(counts).get()).sum();
        (sum(|counts| &counts.publications), sum(|counts| &counts.deliveries))
    }

    /// Counts one of each, so that each metric has a value.
    pub(super) fn count_all(&self) {
        let namespaces = self.numbered(&Namespaces::new(Default::default()));
        let namespace = NamespaceIndex::default();
        self.count(SessionCount::Error { method: CommandMethod::Rpc, code: 100 }, &namespaces);
        self.count(SessionCount::Recovery { namespace, publications: Some(1) }, &namespaces);
        self.count(SessionCount::Unsubscribe(0), &namespaces);
    }
}

/// The counters of a namespace by its name, or of all other namespaces if there is no room for it.
fn of_name(known: &mut NamedCounts, name: &str) -> Arc<NamespaceCounts> {
    if let Some(counts) = known.get(name) {
        return Arc::clone(counts);
    }
    let name = if known.len() < NAMESPACES_MAX { name } else { OTHER_NAMESPACE };
    Arc::clone(known.entry(name.into()).or_default())
}

type OfNamespace = (&'static str, &'static str, fn(&NamespaceCounts) -> &Counter);

const OF_NAMESPACE: [OfNamespace; 4] = [
    ("publications", "Publications accepted", |counts| &counts.publications),
    ("publication_bytes", "Data of the publications accepted, bytes", |counts| &counts.publication_bytes),
    ("deliveries", "Publications, joins and leaves passed to connections", |counts| &counts.deliveries),
    (
        "delivered_bytes",
        "Bytes of publications passed to connections, as JSON objects, before deltas, compression and encodings",
        |counts| &counts.delivered_bytes,
    ),
];

/// Encodes what the sessions of all shards have done.
pub(super) fn encode_sessions(encoder: &mut DescriptorEncoder<'_>, shards: &[&SessionMetrics]) -> std::fmt::Result {
    let mut family =
        encoder.encode_descriptor("commands", "Commands of clients by method", None, MetricType::Counter)?;
    for method in CommandMethod::ALL {
        let sum = shards.iter().map(|shard| shard.commands[method as usize].get()).sum();
        let labels = [("method", method.as_str())];
        ConstCounter::<u64>::new(sum).encode(family.encode_family(&labels)?)?;
    }
    let of_method = |method: CommandMethod| {
        let all = shards.iter().map(|shard| &shard.errors[method as usize]).collect();
        (Some(method.as_str()), all)
    };
    let about = ("errors", "Errors sent to clients, by method and code");
    encode_codes(encoder, about, CommandMethod::ALL.into_iter().map(of_method), &[])?;
    let unsubscribes = shards.iter().map(|shard| &shard.unsubscribes).collect();
    let about = ("unsubscribes", "Subscriptions that ended before their connection, by code");
    let known: Vec<u32> = [0].into_iter().chain(Unsubscribe::ALL.iter().map(|why| why.code)).collect();
    encode_codes(encoder, about, [(None, unsubscribes)].into_iter(), &known)?;
    let recovered = SummedAmounts::of(shards.iter().map(|shard| &shard.recovered_publications));
    let help = "Missed publications that clients received, by recovery";
    recovered.encode(encoder.encode_descriptor("recovered_publications", help, None, MetricType::Histogram)?)?;
    encode_namespaces(encoder, &by_name(shards))
}

/// The counters of all shards, by the name of the namespace.
fn by_name(shards: &[&SessionMetrics]) -> BTreeMap<Box<str>, Vec<Arc<NamespaceCounts>>> {
    let mut all: BTreeMap<Box<str>, Vec<Arc<NamespaceCounts>>> = BTreeMap::new();
    for shard in shards {
        for (name, counts) in shard.known().iter() {
            all.entry(name.clone()).or_default().push(Arc::clone(counts));
        }
    }
    all
}

fn encode_namespaces(
    encoder: &mut DescriptorEncoder<'_>,
    all: &BTreeMap<Box<str>, Vec<Arc<NamespaceCounts>>>,
) -> std::fmt::Result {
    let sum = |of: &[Arc<NamespaceCounts>], pick: &dyn Fn(&NamespaceCounts) -> &Counter| -> ConstCounter<u64> {
        ConstCounter::new(of.iter().map(|counts| pick(counts).get()).sum())
    };
    for (metric, help, pick) in OF_NAMESPACE {
        let mut family = encoder.encode_descriptor(metric, help, None, MetricType::Counter)?;
        for (name, of) in all {
            sum(of, &pick).encode(family.encode_family(&[("namespace", &**name)])?)?;
        }
    }
    let help = "Subscribes of clients and of the server by outcome";
    let mut family = encoder.encode_descriptor("subscribes", help, None, MetricType::Counter)?;
    for (name, of) in all {
        for outcome in SubscribeOutcome::ALL {
            let labels = [("namespace", &**name), ("outcome", outcome.as_str())];
            sum(of, &|counts| &counts.subscribes[outcome as usize]).encode(family.encode_family(&labels)?)?;
        }
    }
    let help = "Subscriptions whose clients asked for missed publications, by outcome";
    let mut family = encoder.encode_descriptor("recoveries", help, None, MetricType::Counter)?;
    for (name, of) in all {
        let recovered = [("namespace", &**name), ("outcome", "recovered")];
        sum(of, &|counts| &counts.recovered).encode(family.encode_family(&recovered)?)?;
        let failed = [("namespace", &**name), ("outcome", "not_recovered")];
        sum(of, &|counts| &counts.unrecovered).encode(family.encode_family(&failed)?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use touchline_engine::{ChannelSettings, Namespace};

    use super::*;

    fn namespaces(names: &[&str]) -> Namespaces {
        let namespaces = names.iter().map(|name| Namespace { name: (*name).into(), options: Default::default() });
        Namespaces::new(ChannelSettings { namespaces: namespaces.collect(), ..Default::default() })
    }

    #[test]
    fn a_namespace_keeps_its_counters_whatever_its_number() {
        let metrics = SessionMetrics::default();
        let (first, then) = (namespaces(&["chat", "news"]), namespaces(&["news"]));
        metrics.numbered(&first).get(first.index_of("news:1")).expect("there").published(10);
        metrics.numbered(&then).get(then.index_of("news:2")).expect("there").published(5);
        metrics.of_channel(&then, "chat:1").published(1);
        metrics.numbered(&then).get(then.index_of("plain")).expect("there").delivered(3, 7);
        let all = by_name(&[&metrics]);
        let of = |name: &str| {
            let counts = &all[name][0];
            (counts.publications.get(), counts.publication_bytes.get(), counts.delivered_bytes.get())
        };
        assert_eq!(
            (of("news"), of("chat"), of("other"), of("without")),
            ((2, 15, 0), (0, 0, 0), (1, 1, 0), (0, 0, 21))
        );
        assert_eq!(metrics.traffic(), (3, 3));
    }

    #[test]
    fn a_number_of_another_configuration_counts_as_other() {
        let metrics = SessionMetrics::default();
        let (many, few) = (namespaces(&["a", "b", "c", "d"]), namespaces(&[]));
        let numbered = metrics.numbered(&few);
        for namespace in [many.index_of("d:1"), NamespaceIndex::UNKNOWN] {
            metrics.count(SessionCount::Subscribe { namespace, outcome: SubscribeOutcome::Refused }, &numbered);
        }
        let refused = by_name(&[&metrics])["other"][0].subscribes[SubscribeOutcome::Refused as usize].get();
        assert_eq!(refused, 2);
    }

    #[test]
    fn reloads_cannot_make_labels_without_end() {
        let metrics = SessionMetrics::default();
        for round in 0..NAMESPACES_MAX {
            metrics.numbered(&namespaces(&[&format!("a{round}"), &format!("b{round}")]));
        }
        assert_eq!(by_name(&[&metrics]).len(), NAMESPACES_MAX);
    }
}
