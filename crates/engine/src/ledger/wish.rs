//! What the endpoints of durable events want to receive, as the nodes of a cluster describe it to each other. All nodes
//! share these rows, so every node sends every endpoint the same events, whatever its own configuration says.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::events::{EventKind, EventKinds};

/// What one node, or several that agree, want an endpoint to receive. Nodes that disagree have several wishes for one
/// endpoint; it receives what any of them wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointWish {
    /// The name of the endpoint.
    pub name: String,
    /// What the endpoint receives, and how.
    pub description: WishDescription,
}

/// What an endpoint receives, and how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WishDescription {
    /// The configuration's words for the kinds. Words that this version does not know are kept.
    pub types: BTreeSet<String>,
    /// The namespaces of the channels that it gets events about; `None` = all.
    pub namespaces: Option<BTreeSet<String>>,
    /// The number of lanes, at least one.
    pub lanes: u32,
    /// How long a key must be empty before that is reported, milliseconds.
    pub delay_ms: u64,
}

/// The values by which the endpoints and lanes of an event are found.
#[derive(Debug, Clone, Copy)]
pub struct EventRoute<'e> {
    /// The configuration's word for its kind; `None` = every lane of every endpoint gets it.
    pub word: Option<&'e str>,
    /// The namespace of its channel; `None` = it concerns no channel, or it is sent for all namespaces.
    pub namespace: Option<&'e str>,
    /// The place of its key, from which the lane follows ([`crate::events::place_of`]).
    pub place: u64,
}

/// All wishes that the node knows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WishList {
    /// The version of the list, which increases with each change.
    pub version: u64,
    /// The wishes, in no order.
    pub wishes: Vec<EndpointWish>,
}

impl WishDescription {
    /// The text that databases store: the same text for the same description.
    pub fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Reads a text of [`WishDescription::text`]; `None` = it is not valid.
    pub fn read(text: &str) -> Option<Self> {
        let read: Self = serde_json::from_str(text).ok()?;
        (read.lanes > 0).then_some(read)
    }

    fn wants(&self, word: &str, namespace: Option<&str>) -> bool {
        let is_of = |namespace: &str| self.namespaces.as_ref().is_none_or(|all| all.contains(namespace));
        self.types.contains(word) && namespace.is_none_or(is_of)
    }
}

impl WishList {
    /// Whether some endpoint gets such events. `namespace`: the namespace of the channel; `None` = no channel is
    /// concerned.
    pub fn is_told(&self, kind: EventKind, namespace: Option<&str>) -> bool {
        kind.word().is_none_or(|word| self.wishes.iter().any(|wish| wish.description.wants(word, namespace)))
    }

    /// All kinds that some endpoint gets.
    pub fn kinds(&self) -> EventKinds {
        let words = self.wishes.iter().flat_map(|wish| &wish.description.types);
        words.filter_map(|word| EventKind::from_word(word)).collect()
    }

    /// The endpoints and lanes of an event, by name. If nodes disagree about an endpoint, the largest number of lanes
    /// counts.
    pub fn lanes(&self, route: EventRoute<'_>) -> Vec<(&str, u32)> {
        let mut told = BTreeMap::<&str, (bool, u32)>::new();
        for EndpointWish { name, description } in &self.wishes {
            let (is_told, lanes) = told.entry(name).or_insert((false, 1));
            *is_told |= route.word.is_none_or(|word| description.wants(word, route.namespace));
            *lanes = description.lanes.max(*lanes);
        }
        let mut places = Vec::new();
        for (name, (_, lanes)) in told.into_iter().filter(|(_, (is_told, _))| *is_told) {
            let own = (route.place % u64::from(lanes)) as u32;
            let of_name = if route.word.is_none() { 0..lanes } else { own..own + 1 };
            places.extend(of_name.map(|lane| (name, lane)));
        }
        places
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(name: &str, types: &[&str], namespaces: Option<&[&str]>, lanes: u32) -> EndpointWish {
        let set = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let description = WishDescription { types: set(types), namespaces: namespaces.map(set), lanes, delay_ms: 5 };
        EndpointWish { name: name.to_owned(), description }
    }

    #[test]
    fn an_endpoint_is_told_what_any_node_wants() {
        let wishes = vec![
            wish("a", &["connected"], None, 2),
            wish("a", &["vacated"], Some(&["chat"]), 4),
            wish("b", &["vacated", "of_a_later_version"], None, 1),
        ];
        let list = WishList { version: 1, wishes };
        let route = |word, namespace| EventRoute { word, namespace, place: 7 };
        assert_eq!(list.lanes(route(Some("connected"), None)), [("a", 3)], "the most lanes of any");
        assert_eq!(list.lanes(route(Some("vacated"), Some("chat"))), [("a", 3), ("b", 0)]);
        assert_eq!(list.lanes(route(Some("vacated"), Some("news"))), [("b", 0)]);
        assert_eq!(list.lanes(route(None, None)).len(), 5, "what may be wrong is told in every lane");
        assert!(list.is_told(EventKind::Vacated, Some("news")) && !list.is_told(EventKind::UserOnline, None));
        assert!(list.is_told(EventKind::StateReset, None));
        assert_eq!(list.kinds(), [EventKind::Connected, EventKind::Vacated].into_iter().collect());
    }

    #[test]
    fn a_description_has_one_text_and_comes_back() {
        let description = wish("a", &["vacated", "connected"], Some(&["", "chat"]), 8).description;
        let text = r#"{"types":["connected","vacated"],"namespaces":["","chat"],"lanes":8,"delay_ms":5}"#;
        assert_eq!(description.text(), text, "it is the key of a row");
        assert_eq!(WishDescription::read(text), Some(description));
        let none = r#"{"types":["connected"],"namespaces":null,"lanes":0,"delay_ms":5}"#;
        assert_eq!((WishDescription::read(none), WishDescription::read("{}")), (None, None));
    }
}
