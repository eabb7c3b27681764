//! Open connections by client program, as clients name it when they connect; for metrics.

use std::collections::BTreeMap;

use touchline_lock::Lock;

/// How many programs one shard counts separately; further ones count as `other`.
const PROGRAMS_MAX: usize = 64;
/// How many characters of a name or a version a label shows.
const NAME_MAX: usize = 32;
/// The number of a client that has not named its program.
pub(crate) const UNKNOWN: u8 = 0;

/// The name and the version of a program.
pub(crate) type ProgramLabel = (Box<str>, Box<str>);

/// Open connections by program. One thread at a time counts, and any thread reads.
#[derive(Debug, Default)]
pub(crate) struct Programs(Lock<Vec<(ProgramLabel, u64)>>);

impl Programs {
    /// Counts a client that has named its program. Returns the number of the program.
    pub(crate) fn enter(&self, name: &str, version: &str) -> u8 {
        let mut programs = self.0.lock();
        let label = (label_text(name), label_text(version));
        let index = match programs.iter().position(|(known, _)| *known == label) {
            Some(index) => index,
            None if programs.len() < PROGRAMS_MAX => {
                programs.push((label, 0));
                programs.len() - 1
            }
            // A program without connections gives its place to another one.
            None => match programs[..PROGRAMS_MAX].iter().position(|(_, open)| *open == 0) {
                Some(index) => {
                    programs[index].0 = label;
                    index
                }
                None => {
                    if programs.len() == PROGRAMS_MAX {
                        programs.push((("other".into(), "".into()), 0));
                    }
                    PROGRAMS_MAX
                }
            },
        };
        programs[index].1 += 1;
        index as u8 + 1
    }

    /// Subtracts a client that has disconnected. `number`: from [`Programs::enter`], or [`UNKNOWN`].
    pub(crate) fn leave(&self, number: u8) {
        let mut programs = self.0.lock();
        if let Some((_, open)) = usize::from(number).checked_sub(1).and_then(|index| programs.get_mut(index)) {
            *open = open.saturating_sub(1);
        }
    }

    /// The name and version of a program; None = the client has not named it.
    pub(crate) fn label(&self, number: u8) -> Option<ProgramLabel> {
        let programs = self.0.lock();
        programs.get(usize::from(number).checked_sub(1)?).map(|(label, _)| label.clone())
    }

    /// The numbers of the programs whose name and version `fits` accepts.
    pub(crate) fn numbers(&self, fits: impl Fn(&str, &str) -> bool) -> Vec<u8> {
        let programs = self.0.lock();
        (1..).zip(programs.iter()).filter(|(_, ((name, version), _))| fits(name, version)).map(|(n, _)| n).collect()
    }

    /// Adds the open connections of this shard to `counts`.
    pub(crate) fn add_to(&self, counts: &mut BTreeMap<ProgramLabel, u64>) {
        for (label, open) in self.0.lock().iter() {
            *counts.entry(label.clone()).or_default() += open;
        }
    }
}

/// The characters of a client's text that a label may contain.
fn label_text(word: &str) -> Box<str> {
    word.chars()
        .filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | ' ' | '/'))
        .take(NAME_MAX)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(programs: &Programs) -> BTreeMap<ProgramLabel, u64> {
        let mut counts = BTreeMap::new();
        programs.add_to(&mut counts);
        counts
    }

    #[test]
    fn programs_are_counted_while_they_are_there() {
        let programs = Programs::default();
        let (js, again, go) = (programs.enter("js", "5.8"), programs.enter("js", "5.8"), programs.enter("go", ""));
        assert_eq!((js, again), (1, 1));
        programs.leave(go);
        programs.leave(js);
        programs.leave(UNKNOWN);
        assert_eq!(
            counts(&programs),
            BTreeMap::from([(("js".into(), "5.8".into()), 1), (("go".into(), "".into()), 0)])
        );
    }

    #[test]
    fn clients_cannot_make_labels_without_end() {
        let programs = Programs::default();
        for n in 0..1_000 {
            programs.enter(&format!("{n}\"\n{}", "x".repeat(100)), "1");
        }
        let counts = counts(&programs);
        assert_eq!(counts.len(), PROGRAMS_MAX + 1);
        assert_eq!(counts[&("other".into(), "".into())], 1_000 - PROGRAMS_MAX as u64);
        assert!(counts.keys().all(|(name, _)| name.len() <= NAME_MAX && !name.contains('"')));
        programs.leave(7);
        let number = programs.enter("late", "2");
        assert_eq!(number, 7, "the place of a program that has gone");
        assert_eq!(programs.label(number), Some(("late".into(), "2".into())));
    }
}
