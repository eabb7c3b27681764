//! Which events a subscriber gets, and in which form.

use std::sync::Arc;

use touchline_protocol::filter::Filter;

/// Which events a subscriber gets, and in which form.
#[derive(Debug, Clone, Default)]
pub struct DeliveryOptions {
    /// Whether the subscriber gets join and leave events.
    pub membership_events: bool,
    /// `Some` = publications come as deltas to the previous one; true if the subscriber has the previous one.
    pub delta: Option<bool>,
    /// Only publications whose tags match are delivered; `None` = all are.
    pub filter: Option<Arc<Filter>>,
}

/// The form in which a subscriber gets a publication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryForm {
    /// The publication itself.
    Plain,
    /// The whole publication as text, which is the base of later deltas.
    Whole,
    /// A delta to the previous publication.
    Delta,
}
