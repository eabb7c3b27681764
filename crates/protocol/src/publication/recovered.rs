//! Publications that a subscriber missed, in the form that it gets.

use std::sync::Arc;

use bytes::Bytes;

use super::cache::{EncodingKey, PushKind};
use super::encoded::{Delta, Publication, object_of};
use super::transcode::publication_of_json;
use crate::encoding::Encoding;

/// Publications that a subscriber missed, oldest first.
#[derive(Debug, Clone, Copy, Default)]
pub struct Recovered<'a> {
    /// The missed publications, oldest first.
    pub publications: &'a [Arc<Publication>],
    /// True if the first publication is whole, and each later one is a delta to the one before.
    pub is_delta: bool,
}

impl<'a> Recovered<'a> {
    /// Whether there are no missed publications.
    pub fn is_empty(&self) -> bool {
        self.publications.is_empty()
    }

    /// Each publication with the form in which the subscriber gets it.
    pub(crate) fn iter(self) -> impl Iterator<Item = RecoveredPublication<'a>> {
        self.publications.iter().enumerate().map(move |(index, publication)| {
            let change = match index.checked_sub(1) {
                _ if !self.is_delta => Delta::None,
                None => Delta::Whole,
                Some(before) => Delta::From(&self.publications[before]),
            };
            RecoveredPublication { publication, change }
        })
    }
}

/// One missed publication with its form.
pub(crate) struct RecoveredPublication<'a> {
    publication: &'a Publication,
    change: Delta<'a>,
}

impl RecoveredPublication<'_> {
    pub(crate) fn write_json(&self, out: &mut Vec<u8>) {
        match PushKind::of(self.change) {
            PushKind::Plain => out.extend_from_slice(self.publication.json()),
            kind => {
                let push = self.publication.changed_push(self.change, kind, Encoding::Json);
                out.extend_from_slice(object_of(&push, self.publication.object));
            }
        }
    }

    pub(crate) fn protobuf(&self) -> Bytes {
        match PushKind::of(self.change) {
            PushKind::Plain => self.publication.protobuf(),
            kind => self.publication.shared.forms.get(EncodingKey::Object(kind.clone()), || {
                let push = self.publication.changed_push(self.change, kind, Encoding::Protobuf);
                publication_of_json(object_of(&push, self.publication.object), true).into()
            }),
        }
    }
}
