//! Search logic that both databases share: which channels are compared, and the order of the results.

use crate::description::{ChannelDescription, SearchResult};
use crate::tfidf::Weights;

/// The maximum number of channels that are compared in one search. Channels that share the rarest words come first.
pub(crate) const COMPARED_MAX: usize = 10_000;

/// The words for a search of similar channels: from the rarest on, as long as not too many channels contain them.
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

/// Sorts descriptions by their ranks.
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
