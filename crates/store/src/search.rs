//! The directory of channels: descriptions, and searches in them.

use crate::StoreRefusal;
use crate::tfidf::Weights;

/// An application's description of a channel.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChannelDescription {
    /// The channel.
    pub channel: String,
    /// The title that users see; empty = none.
    pub title: String,
    /// A longer text about the channel; empty = none.
    pub description: String,
    /// The kind of its subject, as the application names it: a match, a player, a team …; empty = none.
    pub kind: String,
    /// Labels that the application gives the channel.
    pub tags: Vec<String>,
}

/// A search in the directory of channels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Search {
    /// The description of one channel.
    Channel(String),
    /// Channels that have all these words, the best first; without words all channels, by name.
    Search {
        /// The words.
        words: String,
        /// Of this kind only; empty = of any.
        kind: String,
        /// With this tag only; empty = with any or none.
        tag: String,
        /// Number of results, at most.
        limit: usize,
        /// Number of results that are skipped.
        offset: usize,
    },
    /// Channels that have most in common with one, the most similar first.
    Similar {
        /// The channel.
        channel: String,
        /// Number of results, at most.
        limit: usize,
    },
}

/// A channel that a search returns.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchResult {
    /// The channel's description.
    pub description: ChannelDescription,
    /// How well the channel matches the search: 0 … 1.
    pub score: f64,
}

/// Takes the results of a search; [`StoreRefusal::NotFound`] if the channel of the search has no description.
pub type OnSearched = Box<dyn FnOnce(Result<Vec<SearchResult>, StoreRefusal>) + Send + Sync>;

/// Channels that are compared for one search, at most. Those that share the rarest words come first.
pub(crate) const COMPARED_MAX: usize = 10_000;

/// The words by which similar channels are searched: from the rarest on, as long as not too many channels have them.
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
pub(crate) fn in_order(ranked: Vec<(String, f64)>, mut descriptions: Vec<ChannelDescription>) -> Vec<SearchResult> {
    let mut results = Vec::with_capacity(ranked.len());
    for (channel, score) in ranked {
        if let Some(index) = descriptions.iter().position(|description| description.channel == channel) {
            results.push(SearchResult { description: descriptions.swap_remove(index), score });
        }
    }
    results
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_are_searched_by_rare_words() {
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
