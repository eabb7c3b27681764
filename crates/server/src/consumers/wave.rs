//! The order in which publications without other commands between them are carried out. First come those that are
//! stored with their rows, then all others, channel by channel. A publication that would overtake another one of its
//! channel waits for the next wave. The code is pure.

use std::collections::{BTreeMap, BTreeSet};

use super::command::AskedCall;
use super::outcome::EntryOutcome;

/// A publication, with the index of its entry and its channel.
pub(super) type AskedPublication = (usize, String, AskedCall);
/// The publications of each channel, each with the index of its entry.
pub(super) type Chains = BTreeMap<String, Vec<(usize, AskedCall)>>;

/// Publications that are carried out together. `R`: a publication that is stored with the deletion of its row.
pub(super) struct Wave<R> {
    /// These are stored first.
    pub(super) rows: Vec<R>,
    /// These are carried out next.
    pub(super) chains: Chains,
    /// These wait until all of the others are done.
    pub(super) later: Vec<AskedPublication>,
    /// The outcomes that are known without carrying out the publication.
    pub(super) known: Vec<(usize, EntryOutcome)>,
}

impl<R> Wave<R> {
    /// Takes the publications that may be carried out now. `prepare` reads one. It returns a row that is stored with
    /// its deletion, None if the publication is carried out like any other, or the outcome.
    pub(super) fn of(
        publications: Vec<AskedPublication>,
        mut prepare: impl FnMut(&AskedPublication) -> Result<Option<R>, EntryOutcome>,
    ) -> Self {
        let mut wave = Wave { rows: Vec::new(), chains: Chains::new(), later: Vec::new(), known: Vec::new() };
        let mut held: BTreeSet<String> = BTreeSet::new();
        for publication in publications {
            if held.contains(&publication.1) {
                wave.later.push(publication);
                continue;
            }
            match prepare(&publication) {
                // Rows are stored first, so this row would overtake the publications in the chain.
                Ok(Some(_)) if wave.chains.contains_key(&publication.1) => {
                    held.insert(publication.1.clone());
                    wave.later.push(publication);
                }
                Ok(Some(row)) => wave.rows.push(row),
                Ok(None) => {
                    let (index, channel, call) = publication;
                    wave.chains.entry(channel).or_default().push((index, call));
                }
                Err(outcome) => {
                    let (index, channel, _) = publication;
                    if matches!(outcome, EntryOutcome::Retry(_)) {
                        held.insert(channel);
                    }
                    wave.known.push((index, outcome));
                }
            }
        }
        wave
    }
}

#[cfg(test)]
mod tests {
    use super::super::command::AskedCommand;
    use super::*;

    /// Sorts entries. Each is written as the channel and the answer of `prepare`: a row, another one, bad, or again.
    fn sorted(entries: &[&str]) -> [Vec<usize>; 4] {
        let publication = |(index, entry): (usize, &&str)| {
            let AskedCommand::Publish { call, .. } = AskedCommand::read("publish", "{}") else { panic!("it is one") };
            (index, entry[..1].to_owned(), call)
        };
        let wave = Wave::of(entries.iter().enumerate().map(publication).collect(), |(index, ..)| {
            match &entries[*index][1..] {
                "row" => Ok(Some(*index)),
                "other" => Ok(None),
                "bad" => Err(EntryOutcome::Failed(String::new())),
                _ => Err(EntryOutcome::Retry(String::new())),
            }
        });
        [
            wave.rows,
            wave.chains.into_values().flatten().map(|(index, _)| index).collect(),
            wave.later.iter().map(|(index, ..)| *index).collect(),
            wave.known.iter().map(|(index, _)| *index).collect(),
        ]
    }

    #[test]
    fn nothing_overtakes_another_one_of_its_channel() {
        let none = Vec::new;
        assert_eq!(sorted(&["arow", "arow", "aother", "brow"]), [vec![0, 1, 3], vec![2], none(), none()]);
        assert_eq!(sorted(&["aother", "aother", "arow", "aother", "brow"]), [vec![4], vec![0, 1], vec![2, 3], none()]);
        assert_eq!(sorted(&["aagain", "arow", "aother", "brow"]), [vec![3], none(), vec![1, 2], vec![0]]);
        assert_eq!(sorted(&["abad", "arow", "abad", "aother"]), [vec![1], vec![3], none(), vec![0, 2]]);
        assert_eq!(sorted(&["aother", "aagain", "aother"]), [none(), vec![0], vec![2], vec![1]]);
    }
}
