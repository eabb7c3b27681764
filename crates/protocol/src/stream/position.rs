//! Positions in a channel's log: an offset and the epoch that it belongs to.

use std::fmt;

use super::letters::{LENGTH, bits, letters};
use super::offset::Offset;
use super::run::RunId;

/// A position in a channel's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StreamPosition {
    /// The offset. 0 = before the first publication.
    pub offset: Offset,
    /// The epoch of the offset. Empty = the channel has no history.
    pub epoch: Epoch,
}

/// The epoch of a channel's history: eight letters. If the log backend may be restored to an earlier state, a dot
/// follows and then the eight letters of the run that assigned the offset.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct Epoch([u8; EPOCH_LENGTH]);

const EPOCH_LENGTH: usize = LENGTH + 1 + LENGTH;

impl Epoch {
    /// Creates an epoch of eight letters from the lowest 40 of 64 bits.
    pub fn from_bits(bits: u64) -> Self {
        let mut epoch = [0; EPOCH_LENGTH];
        epoch[..LENGTH].copy_from_slice(&letters(bits));
        Epoch(epoch)
    }

    /// The same epoch in another run.
    #[must_use]
    pub fn in_run(mut self, run: RunId) -> Self {
        self.0[LENGTH] = b'.';
        self.0[LENGTH + 1..].copy_from_slice(&letters(run.0));
        self
    }

    /// The text of the epoch as clients see it. Empty = the channel has no history.
    pub fn as_str(&self) -> &str {
        let length = match self.0 {
            [0, ..] => 0,
            epoch if epoch[LENGTH] == 0 => LENGTH,
            _ => EPOCH_LENGTH,
        };
        std::str::from_utf8(&self.0[..length]).unwrap_or_default()
    }

    /// The id of the epoch's run. 0 = it has no run.
    pub fn run_id(&self) -> RunId {
        RunId(bits(&self.0[LENGTH + 1..]))
    }

    /// Whether both epochs have the same eight letters of the channel, in any run.
    pub fn has_same_channel_part(&self, other: &Epoch) -> bool {
        self.0[..LENGTH] == other.0[..LENGTH]
    }

    /// Whether `other` is equal to this epoch, or has no run and is equal otherwise.
    pub fn can_be(&self, other: &Epoch) -> bool {
        self == other || other.0[LENGTH] == 0 && self.0[..LENGTH] == other.0[..LENGTH]
    }

    /// The run in an epoch's text. `None` = the text has no run, or belongs to another epoch of the channel.
    pub fn run_of<'t>(&self, text: &'t str) -> Option<&'t str> {
        let (channel, run) = text.split_once('.')?;
        (channel.as_bytes() == &self.0[..LENGTH]).then_some(run)
    }
}

impl fmt::Debug for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_is_eight_letters_and_perhaps_those_of_a_run() {
        assert_eq!(Epoch::default().as_str(), "");
        let low: u64 = (0..8).map(|index| (index as u64 * 4 + 1) << (index * 5)).sum();
        assert_eq!(Epoch::from_bits(low).as_str(), "bfjnrvzD");
        assert_eq!(Epoch::from_bits(low | 1 << 40), Epoch::from_bits(low), "the lowest 40 bits");
        let epoch = Epoch::from_bits(0).in_run(RunId(31 << 35));
        assert_eq!((epoch.as_str(), format!("{epoch:?}")), ("aaaaaaaa.aaaaaaaF", "aaaaaaaa.aaaaaaaF".into()));
        let of = |text| Epoch::from_bits(0).in_run(RunId(5)).run_of(text);
        assert_eq!(
            (of("aaaaaaaa.baaaaaaa"), of("baaaaaaa.baaaaaaa"), of("aaaaaaaa"), of("")),
            (Some("baaaaaaa"), None, None, None)
        );
    }

    #[test]
    fn an_epoch_tells_its_run_and_which_others_it_can_be() {
        let epoch = Epoch::from_bits(1);
        for run in [0, 1, 31 << 35, 0x12_3456_789a, (1 << 40) - 1] {
            assert_eq!(epoch.in_run(RunId(run)).run_id(), RunId(run));
        }
        assert_eq!(epoch.run_id(), RunId(0));
        let others = [
            epoch.in_run(RunId(4)),
            epoch,
            epoch.in_run(RunId(5)),
            Epoch::from_bits(2),
            Epoch::from_bits(2).in_run(RunId(4)),
        ];
        assert_eq!(others.map(|other| epoch.in_run(RunId(4)).can_be(&other)), [true, true, false, false, false]);
        assert_eq!(others.map(|other| epoch.can_be(&other)), [false, true, false, false, false]);
        assert_eq!(others.map(|other| epoch.has_same_channel_part(&other)), [true, true, true, false, false]);
    }
}
