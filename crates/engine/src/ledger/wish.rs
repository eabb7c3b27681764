//! What the endpoints of durable events are told, as the nodes of a cluster describe them to each other: rows that all
//! share, so that every node tells every endpoint the same, whatever its own configuration says.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::events::{EventKind, EventKinds};

/// What one node, or several that agree, want an endpoint to be told. Nodes that do not agree make several wishes of
/// one endpoint; it is told what any of them wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointWish {
    /// The name of the endpoint.
    pub name: String,
    /// What it is told.
    pub description: WishDescription,
}

/// What an endpoint is told, and how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WishDescription {
    /// The words of the kinds, as in the configuration. Those that this version does not know are kept.
    pub types: BTreeSet<String>,
    /// Namespaces of the channels that it is told of; `None` = all.
    pub namespaces: Option<BTreeSet<String>>,
    /// Lanes, at least one.
    pub lanes: u32,
    /// How long nobody must have held a key before that is told, milliseconds.
    pub delay_ms: u64,
}

/// What is needed to find the endpoints and lanes of an event.
#[derive(Debug, Clone, Copy)]
pub struct EventRoute<'e> {
    /// The word of its kind; `None` = every lane of every endpoint is told.
    pub word: Option<&'e str>,
    /// The namespace of the channel that it is about; `None` = it is about none, or all are told.
    pub namespace: Option<&'e str>,
    /// The place of its key, which gives the lane ([`crate::events::place_of`]).
    pub place: u64,
}

/// All wishes that are known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WishList {
    /// It rises with each change of the list.
    pub version: u64,
    /// The wishes, in no order.
    pub wishes: Vec<EndpointWish>,
}

impl WishDescription {
    /// As it is kept in databases: the same text for the same description.
    pub fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// What a text of [`WishDescription::text`] says; `None` = it is none.
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
    /// Whether some endpoint is told of this. `namespace`: of the channel that it is about; `None` = it is about none.
    pub fn is_told(&self, kind: EventKind, namespace: Option<&str>) -> bool {
        kind.word().is_none_or(|word| self.wishes.iter().any(|wish| wish.description.wants(word, namespace)))
    }

    /// All kinds that some endpoint is told of.
    pub fn kinds(&self) -> EventKinds {
        let words = self.wishes.iter().flat_map(|wish| &wish.description.types);
        words.filter_map(|word| EventKind::from_word(word)).collect()
    }

    /// The endpoints and lanes of an event, by name. An endpoint whose nodes do not agree has the most lanes of any.
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
