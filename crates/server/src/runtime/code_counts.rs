//! Counters by code: of errors, disconnects and ends of subscriptions.

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;

use super::meters::Counter;

/// How many codes of each range are counted one by one.
const RANGE_SIZE: u32 = 20;
/// The number of counters: four ranges, and one counter of all other codes.
const COUNTERS: usize = 4 * RANGE_SIZE as usize + 1;

/// Which kind of code is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CodeKind {
    /// Errors: 100–119 and 4000–4019.
    Errors,
    /// Ends of connections by the server: 1000–1019, 3000–3019, 3500–3519 and 4000–4019.
    Disconnects,
    /// Ends of subscriptions: 0, 2000–2019 and 2500–2519.
    Unsubscribes,
}

impl CodeKind {
    /// The first codes of the ranges that are counted one by one.
    fn first(self) -> &'static [u32] {
        match self {
            CodeKind::Errors => &[100, 4_000],
            CodeKind::Disconnects => &[1_000, 3_000, 3_500, 4_000],
            CodeKind::Unsubscribes => &[0, 2_000, 2_500],
        }
    }

    fn place(self, code: u32) -> usize {
        let within = |(range, first): (usize, &u32)| {
            let offset = code.checked_sub(*first).filter(|offset| *offset < RANGE_SIZE)?;
            Some(range * RANGE_SIZE as usize + offset as usize)
        };
        self.first().iter().enumerate().find_map(within).unwrap_or(COUNTERS - 1)
    }

    /// The label of the counter at this place.
    fn label(self, place: usize) -> String {
        match self.first().get(place / RANGE_SIZE as usize) {
            Some(first) if place < COUNTERS - 1 => (first + place as u32 % RANGE_SIZE).to_string(),
            _ => "other".to_owned(),
        }
    }
}

/// Counters by code. All codes outside the ranges of their kind are counted together.
#[derive(Debug)]
pub(super) struct CodeCounts {
    kind: CodeKind,
    counters: [Counter; COUNTERS],
}

impl CodeCounts {
    /// Makes counters that are all 0.
    pub(super) fn of(kind: CodeKind) -> Self {
        CodeCounts { kind, counters: std::array::from_fn(|_| Counter::default()) }
    }

    /// Counts one code. Only one thread at a time may call this.
    pub(super) fn count(&self, code: u32) {
        self.counters[self.kind.place(code)].add(1);
    }

    /// How often a code was counted.
    pub(super) fn get(&self, code: u32) -> u64 {
        self.counters[self.kind.place(code)].get()
    }

    /// Counts one code. Any thread may call this.
    pub(super) fn count_shared(&self, code: u32) {
        self.counters[self.kind.place(code)].add_shared(1);
    }
}

/// Encodes the sums of counters by code that are above 0. `labelled`: groups of counters, each with its value of the
/// label `method`; None = there is no such label. `known`: codes that are shown from the start, so that a rate includes
/// their first count.
pub(super) fn encode_codes<'c>(
    encoder: &mut DescriptorEncoder<'_>,
    (name, help): (&str, &str),
    labelled: impl Iterator<Item = (Option<&'static str>, Vec<&'c CodeCounts>)>,
    known: &[u32],
) -> std::fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (method, all) in labelled {
        let Some(kind) = all.first().map(|counts| counts.kind) else { continue };
        for place in 0..COUNTERS {
            let sum: u64 = all.iter().map(|counts| counts.counters[place].get()).sum();
            if sum == 0 && !known.iter().any(|code| kind.place(*code) == place) {
                continue;
            }
            let code = kind.label(place);
            let sum = ConstCounter::new(sum);
            match method {
                Some(method) => sum.encode(family.encode_family(&[("method", method), ("code", &code)])?)?,
                None => sum.encode(family.encode_family(&[("code", &code)])?)?,
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_counted_where_they_stand() {
        for (kind, codes) in [
            (CodeKind::Errors, [100, 119, 4_000, 4_019]),
            (CodeKind::Disconnects, [1_002, 3_012, 3_500, 4_019]),
            (CodeKind::Unsubscribes, [0, 2_000, 2_500, 2_501]),
        ] {
            for code in codes {
                assert_eq!(kind.label(kind.place(code)), code.to_string());
            }
            for code in [99, 120, 1_999, 2_999, 5_000, u32::MAX] {
                assert_eq!(kind.label(kind.place(code)), "other", "{code}");
            }
        }
        let counts = CodeCounts::of(CodeKind::Errors);
        counts.count(103);
        counts.count_shared(7);
        assert_eq!(counts.counters.iter().map(Counter::get).sum::<u64>(), 2);
    }
}
