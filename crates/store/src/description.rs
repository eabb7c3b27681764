//! Descriptions of channels, and searches in them.

use crate::refusal::StoreRefusal;

/// An application's description of a channel.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChannelDescription {
    /// The name of the channel.
    pub channel: String,
    /// The title that users see. Empty = none.
    pub title: String,
    /// A longer text about the channel. Empty = none.
    pub description: String,
    /// The kind of the channel's subject in the application's own words: a match, a player, a team … Empty = none.
    pub kind: String,
    /// Labels that the application assigned to the channel.
    pub tags: Vec<String>,
}

/// A search in the directory of channels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Search {
    /// The description of one channel.
    Channel(String),
    /// Channels that contain all these words, the best match first. Without words, all channels by name.
    Search {
        /// The words to search for.
        words: String,
        /// Only channels of this kind. Empty = any kind.
        kind: String,
        /// Only channels with this tag. Empty = with or without tags.
        tag: String,
        /// The maximum number of results.
        limit: usize,
        /// The number of results to skip.
        offset: usize,
    },
    /// Channels that have most in common with the given one, the most similar first.
    Similar {
        /// The channel to compare with.
        channel: String,
        /// The maximum number of results.
        limit: usize,
    },
}

/// A channel that a search returns.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchResult {
    /// The description of the channel.
    pub description: ChannelDescription,
    /// How well the channel matches the search, from 0 to 1.
    pub score: f64,
}

/// A callback for the results of a search. The error is [`StoreRefusal::NotFound`] if the channel of the search has no
/// description.
pub type OnSearched = Box<dyn FnOnce(Result<Vec<SearchResult>, StoreRefusal>) + Send + Sync>;
