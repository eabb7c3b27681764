//! Pages of shared facts.

use touchline_protocol::fact::{Fact, FactKey};

use crate::refusal::StoreRefusal;

/// Asks for a page of the facts that hold, by kind and name.
#[derive(Debug, Clone)]
pub struct FactListing {
    /// Only facts of this kind; none = of all.
    pub kind: Option<Box<str>>,
    /// Facts behind this key; both parts empty = from the first on.
    pub after: FactKey,
    /// Facts of the page.
    pub limit: usize,
    /// Unix seconds: what has ended by then is left out.
    pub now_s: u64,
}

impl FactListing {
    /// The key behind which the page begins.
    pub fn start(&self) -> FactKey {
        match &self.kind {
            Some(kind) if *kind > self.after.kind => FactKey { kind: kind.clone(), name: Box::default() },
            _ => self.after.clone(),
        }
    }
}

/// Takes a page of facts.
pub type OnFacts = Box<dyn FnOnce(Result<Vec<Fact>, StoreRefusal>) + Send + Sync>;
