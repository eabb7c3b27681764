//! The stream of a namespace, as JetStream keeps it.

use std::collections::BTreeMap;

use bytes::Bytes;
use touchline_engine::request::Loaded;
use touchline_protocol::stream::{ChannelName, Epoch, Offset, RunId, Runs};

pub(crate) const SIZE: usize = 8;
/// How many publications of a channel the stream keeps. It is one more than the history, so that the position of a
/// client that missed a whole history is known.
pub(crate) const HELD: usize = SIZE + 1;
/// The contents of a JetStream stream: one sequence for all channels, with this many publications of each.
#[derive(Default)]
pub(crate) struct Stream {
    pub(crate) last: u64,
    /// The id of the present run; 0 = the first run.
    pub(crate) run: u64,
    /// Everything that was ever stored and is not lost, by channel: the truth.
    pub(crate) all: BTreeMap<ChannelName, Vec<(u64, Bytes)>>,
}

impl Stream {
    pub(crate) fn epoch(&self) -> Epoch {
        let epoch = Epoch::from_bits(7);
        if self.run == 0 { epoch } else { epoch.in_run(RunId(self.run)) }
    }

    /// Sets the stream back to its state of `many` publications ago.
    pub(crate) fn set_back(&mut self, many: u64) {
        self.last = self.last.saturating_sub(many);
        let last = self.last;
        self.all.values_mut().for_each(|all| all.retain(|(offset, _)| *offset <= last));
    }

    /// Reads a channel as JetStream returns it.
    pub(crate) fn load(&self, channel: &str, behind: u64, number: u64) -> Loaded {
        let (all, dropped) = (self.all.get(channel).map_or(&[][..], |all| held(all)), self.dropped());
        let last = all.last().map_or(0, |(offset, _)| *offset);
        let kept: Vec<_> = all.iter().filter(|(offset, _)| *offset > behind).cloned().collect();
        let top = match last {
            0 => self.last,
            last => last.max(behind).max(if kept.is_empty() { dropped } else { 0 }),
        };
        let is_aged = kept.is_empty();
        let floor = if kept.len() < HELD { dropped } else { kept[0].0 };
        Loaded {
            epoch: self.epoch(),
            behind: Offset(behind),
            number,
            kept: kept.into_iter().map(|(offset, payload)| (Offset(offset), payload)).collect(),
            top: Offset(top),
            floor: Offset(floor.min(top).max(behind)),
            is_aged,
            runs: Runs::default(),
        }
    }

    /// The publication at a sequence, if the stream still has it.
    pub(crate) fn held(&self, sequence: u64) -> Option<&Bytes> {
        self.all.values().flat_map(|all| held(all)).find(|(offset, _)| *offset == sequence).map(|(_, payload)| payload)
    }

    /// The sequence up to which nothing is kept. It is unknown which channels these publications belonged to.
    pub(crate) fn dropped(&self) -> u64 {
        self.all.values().filter_map(|all| held(all).first()).map(|(offset, _)| *offset).min().unwrap_or(self.last + 1)
            - 1
    }

    /// Whether the stream lacks the last publication that a node knows of it.
    pub(crate) fn lacks(&self, mark: &Option<Mark>) -> bool {
        let Some((sequence, payload)) = mark else { return false };
        self.last < *sequence || self.held(*sequence).zip(payload.as_ref()).is_some_and(|(held, known)| held != known)
    }

    /// Whether it is unknown if the stream has the last offset that a node knows.
    pub(crate) fn may_lack(&self, mark: &Option<Mark>) -> bool {
        mark.as_ref().is_some_and(|(sequence, payload)| payload.is_none() || self.held(*sequence).is_none())
    }

    /// The present offset of a publication, if it is not lost.
    pub(crate) fn offset_of(&self, channel: &str, data: u64) -> Option<u64> {
        let all = self.all.get(channel)?;
        all.iter().find(|(_, payload)| data_of(payload) == data).map(|(offset, _)| *offset)
    }

    /// The offsets of a channel after one offset and up to another.
    pub(crate) fn between(&self, channel: &str, behind: u64, to: u64) -> Vec<u64> {
        let all = self.all.get(channel).into_iter().flatten();
        all.map(|(offset, _)| *offset).filter(|offset| *offset > behind && *offset <= to).collect()
    }
}

/// A sequence, and the publication there if it is known.
pub(crate) type Mark = (u64, Option<Bytes>);

/// The publications that the stream still has, of all that were stored in a channel.
pub(crate) fn held(all: &[(u64, Bytes)]) -> &[(u64, Bytes)] {
    &all[all.len().saturating_sub(HELD)..]
}

/// The number that a publication carries as its data.
pub(crate) fn data_of(json: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(json);
    let (_, data) = text.split_once(r#""data":"#).expect("it has data");
    data[..data.find(|c: char| !c.is_ascii_digit()).unwrap_or(data.len())].parse().expect("a number")
}
