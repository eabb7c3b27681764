//! The words of descriptions, and the similarity of channels by them: TF-IDF and cosine (Salton, Wong, Yang: A vector
//! space model for automatic indexing, 1975). The module is pure, so both databases give the same results.
//!
//! Hand-written: `tantivy` keeps a separate index, and here the words are in the database, where a transaction changes
//! them.

use std::collections::{BTreeMap, HashMap};

use rust_stemmers::{Algorithm, Stemmer};

use crate::description::ChannelDescription;

/// The weight of a word in each field.
const TITLE: u64 = 10;
const DESCRIPTION: u64 = 3;
const KIND: u64 = 1;
const TAG: u64 = 1;
/// The maximum length of a stem, bytes. A longer stem is cut.
const STEM_MAX: usize = 64;

/// English words that say nothing about a channel.
const STOP_WORDS: &[&str] = &[
    "a", "about", "above", "after", "again", "against", "all", "also", "am", "an", "and", "any", "are", "as", "at",
    "be", "because", "been", "before", "being", "below", "between", "both", "but", "by", "can", "could", "did", "do",
    "does", "doing", "down", "during", "each", "few", "for", "from", "further", "had", "has", "have", "having", "he",
    "her", "here", "hers", "him", "his", "how", "i", "if", "in", "into", "is", "it", "its", "just", "me", "more",
    "most", "my", "no", "nor", "not", "now", "of", "off", "on", "once", "only", "or", "other", "our", "ours", "out",
    "over", "own", "same", "she", "should", "so", "some", "such", "than", "that", "the", "their", "theirs", "them",
    "then", "there", "these", "they", "this", "those", "through", "to", "too", "under", "until", "up", "very", "was",
    "we", "were", "what", "when", "where", "which", "while", "who", "whom", "why", "will", "with", "would", "you",
    "your", "yours",
];

/// The stems of a text's words, in order. Words are runs of letters and digits. Case and stop words do not count.
pub(crate) fn stems(text: &str) -> Vec<String> {
    let english = Stemmer::create(Algorithm::English);
    let lower = text.to_lowercase();
    let words = lower.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty());
    let telling = words.filter(|word| STOP_WORDS.binary_search(word).is_err());
    telling.map(|word| cut(english.stem(word).into_owned())).collect()
}

fn cut(mut stem: String) -> String {
    let end = (0..=STEM_MAX.min(stem.len())).rev().find(|end| stem.is_char_boundary(*end));
    stem.truncate(end.unwrap_or_default());
    stem
}

/// The weight of each word of a channel. The empty word is in every channel with weight 0, so its count is the number
/// of channels.
pub(crate) fn weights(description: &ChannelDescription) -> BTreeMap<String, u64> {
    let ChannelDescription { channel, title, description, kind, tags } = description;
    // A channel without a title is known by its name.
    let title = if title.is_empty() { channel } else { title };
    let tags = tags.iter().map(|tag| (&**tag, TAG));
    let fields = [(&**title, TITLE), (&**description, DESCRIPTION), (&**kind, KIND)].into_iter().chain(tags);
    let mut weights = BTreeMap::from([(String::new(), 0)]);
    for (text, weight) in fields {
        for stem in stems(text) {
            *weights.entry(stem).or_default() += weight;
        }
    }
    weights
}

/// The number of channels that contain each word.
#[derive(Debug, Default)]
pub(crate) struct WordCounts(pub(crate) HashMap<String, u64>);

impl WordCounts {
    /// The value of a word: the rarer, the higher, ln(1 + N/n).
    fn worth(&self, term: &str) -> f64 {
        let all = self.0.get("").copied().unwrap_or_default() as f64;
        let with = self.0.get(term).copied().unwrap_or_default().max(1) as f64;
        (all / with).ln_1p()
    }

    fn vector<'a>(&'a self, weights: &'a [(String, u64)]) -> impl Iterator<Item = (&'a str, f64)> {
        weights.iter().map(|(term, weight)| (&**term, *weight as f64 * self.worth(term)))
    }
}

/// The words of a channel with their weights.
pub(crate) type Weights = Vec<(String, u64)>;

/// The channels in the order of the cosine between them and the query, the most similar first. Equally similar channels
/// are ordered by name.
pub(crate) fn rank(
    query: &Weights,
    channels: impl IntoIterator<Item = (String, Weights)>,
    counts: &WordCounts,
) -> Vec<(String, f64)> {
    let query: HashMap<&str, f64> = counts.vector(query).collect();
    let length = |of: &mut dyn Iterator<Item = f64>| of.map(|x| x * x).sum::<f64>().sqrt();
    let of_query = length(&mut query.values().copied());
    let score = |weights: &Weights| {
        let common: f64 = counts.vector(weights).filter_map(|(term, worth)| Some(worth * query.get(term)?)).sum();
        let of_both = of_query * length(&mut counts.vector(weights).map(|(_, worth)| worth));
        if of_both > 0.0 { common / of_both } else { 0.0 }
    };
    let mut ranked: Vec<(String, f64)> = channels.into_iter().map(|(name, weights)| (name, score(&weights))).collect();
    ranked.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    ranked
}

/// The words of channels and the counts of these words, from rows of channel, term, weight and count. The rows of one
/// channel must be adjacent.
pub(crate) fn gather(
    rows: impl IntoIterator<Item = (String, String, u64, u64)>,
) -> (Vec<(String, Weights)>, WordCounts) {
    let (mut channels, mut counts) = (Vec::<(String, Weights)>::new(), WordCounts::default());
    for (channel, term, weight, count) in rows {
        if channels.last().is_none_or(|(last, _)| *last != channel) {
            channels.push((channel, Vec::new()));
        }
        if let Some((_, weights)) = channels.last_mut() {
            weights.push((term.clone(), weight));
        }
        counts.0.insert(term, count);
    }
    (channels, counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stop_words_can_be_looked_up() {
        assert!(STOP_WORDS.is_sorted());
    }

    #[test]
    fn words_come_down_to_their_stems() {
        assert_eq!(
            stems("The Matches: matching, matched — in Zürich 2026!"),
            ["match", "match", "match", "zürich", "2026"]
        );
        assert_eq!(stems("of the and"), [""; 0]);
        assert_eq!(stems(&"ü".repeat(100)), ["ü".repeat(32)]);
    }

    #[test]
    fn a_word_counts_by_its_field() {
        let description = ChannelDescription {
            channel: "match:1".into(),
            title: "Rovers".into(),
            description: "The rovers play rovers".into(),
            kind: "match".into(),
            tags: vec!["rovers".into(), "cup".into()],
        };
        let weights = weights(&description);
        let expected = [("", 0), ("cup", 1), ("match", 1), ("play", 3), ("rover", 17)];
        assert_eq!(weights, expected.map(|(term, weight)| (term.to_owned(), weight)).into());
    }

    #[test]
    fn the_most_similar_comes_first_and_the_same_words_score_one() {
        let of = |words: &[(&str, u64)]| {
            words.iter().map(|(word, weight)| ((*word).to_owned(), *weight)).collect::<Weights>()
        };
        let counts = WordCounts([("", 3), ("a", 2), ("b", 1), ("c", 2)].map(|(word, n)| (word.to_owned(), n)).into());
        let channels = [("z", of(&[("a", 1), ("b", 1)])), ("y", of(&[("a", 1), ("c", 1)])), ("x", of(&[("c", 5)]))];
        let channels = channels.map(|(name, weights)| (name.to_owned(), weights));
        let ranked = rank(&of(&[("a", 1), ("b", 1)]), channels, &counts);
        assert_eq!(ranked.iter().map(|(name, _)| &**name).collect::<Vec<_>>(), ["z", "y", "x"]);
        assert!((ranked[0].1 - 1.0).abs() < 1e-12 && ranked[2].1 == 0.0);
        // Calculated by hand: ln(1 + 3/2)² / (√(ln(1 + 3/2)² + ln(1 + 3)²) · √2 · ln(1 + 3/2)).
        let (a, b) = (2.5f64.ln(), 4f64.ln());
        assert!((ranked[1].1 - a * a / ((a * a + b * b).sqrt() * 2f64.sqrt() * a)).abs() < 1e-12);
    }
}
