//! Listings of shared facts, in pages.

use touchline_protocol::fact::{Fact, FactKey};

use crate::refusal::StoreRefusal;

/// A request for a page of the facts that hold, ordered by kind and name.
#[derive(Debug, Clone)]
pub struct FactListing {
    /// Only facts of this kind. `None` = all kinds.
    pub kind: Option<Box<str>>,
    /// Only facts after this key. Both parts empty = from the first fact on.
    pub after: FactKey,
    /// The maximum number of facts in the page.
    pub limit: usize,
    /// The current time, Unix seconds. Facts that expired by then are omitted.
    pub now_s: u64,
}

impl FactListing {
    /// The key after which the page begins.
    pub fn start(&self) -> FactKey {
        match &self.kind {
            Some(kind) if *kind > self.after.kind => FactKey { kind: kind.clone(), name: Box::default() },
            _ => self.after.clone(),
        }
    }
}

/// A callback for a page of facts.
pub type OnFacts = Box<dyn FnOnce(Result<Vec<Fact>, StoreRefusal>) + Send + Sync>;
