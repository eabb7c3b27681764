//! Descriptions of channels, and searches in them.

use crate::refusal::StoreRefusal;

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
