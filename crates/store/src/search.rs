//! What is known of channels, and what can be asked of it.

use crate::StoreRefusal;
use crate::tfidf::Weights;

/// What an application says of a channel.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Description {
    /// The channel.
    pub channel: String,
    /// What people call it.
    pub title: String,
    /// What it is about.
    pub description: String,
    /// Its kind: a match, a player, a team …
    pub kind: String,
    /// Words that an application gives it.
    pub tags: Vec<String>,
}

/// A question to the directory of channels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Search {
    /// What is said of one channel.
    Channel(String),
    /// Channels that have all these words, the best first; without words all channels, by name.
    Search {
        /// The words.
        words: String,
        /// Of this kind only; empty = of any.
        kind: String,
        /// With this tag only; empty = with any or none.
        tag: String,
        /// At most so many.
        limit: usize,
        /// Behind so many.
        offset: usize,
    },
    /// Channels that have most in common with one, the likest first.
    Similar {
        /// The channel.
        channel: String,
        /// At most so many.
        limit: usize,
    },
}

/// A channel that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchResult {
    /// What is said of it.
    pub description: Description,
    /// How well it fits what was asked for: 0 … 1.
    pub score: f64,
}

/// Takes what was found; [`StoreRefusal::Unknown`] if nothing is said of the channel that was asked about.
pub type OnSearched = Box<dyn FnOnce(Result<Vec<SearchResult>, StoreRefusal>) + Send + Sync>;

/// Channels that are compared for one question, at most. Those that share the rarest words come first.
pub(crate) const COMPARED_MAX: usize = 10_000;

/// The words by which channels like one are looked for: from the rarest on, as long as not too many channels have them.
pub(crate) fn rarest(weights: &Weights, count: impl Fn(&str) -> u64) -> Vec<&str> {
    let mut terms: Vec<(u64, &str)> =
        weights.iter().filter(|(term, _)| !term.is_empty()).map(|(term, _)| (count(term), &**term)).collect();
    terms.sort_unstable();
    let mut room = COMPARED_MAX as u64;
    let mut fits = |n: u64, is_first: bool| {
        let fits = is_first || n <= room;
        room = room.saturating_sub(n);
        fits
    };
    let chosen = terms.into_iter().enumerate().take_while(|(index, (n, _))| fits(*n, *index == 0));
    chosen.map(|(_, (_, term))| term).collect()
}

/// Descriptions in the order of their ranks.
pub(crate) fn in_order(ranked: Vec<(String, f64)>, mut descriptions: Vec<Description>) -> Vec<SearchResult> {
    let mut found = Vec::with_capacity(ranked.len());
    for (channel, score) in ranked {
        if let Some(index) = descriptions.iter().position(|description| description.channel == channel) {
            found.push(SearchResult { description: descriptions.swap_remove(index), score });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_are_looked_for_by_rare_words() {
        let weights: Weights = ["", "cup", "final", "match", "rover"].map(|word| (word.to_owned(), 1)).into();
        let count = |word: &str| match word {
            "rover" => 3,
            "cup" => 9_000,
            "final" => 900,
            _ => 1_000_000,
        };
        assert_eq!(rarest(&weights, count), ["rover", "final", "cup"]);
        assert_eq!(rarest(&weights, |_| 1_000_000), ["cup"], "the first one in any case");
    }
}
