//! What one message to another node may carry. Nothing is accepted that could not be told to the other nodes, wherever
//! its receiver is now.

use touchline_protocol::Error;

use super::Directory;
use super::ask::DirectoryRequest;

/// Bytes around an entry, or around a message to a client, on its way to another node: who sends it, stamps, numbers,
/// one client id.
pub(super) const AROUND: usize = 512;
/// Bytes of one more client id in such a message.
pub(super) const CLIENT: usize = 39;

impl<A> Directory<A> {
    /// Says how many bytes one message to another node may have. It may change whenever the link to the other nodes
    /// comes back. Entries and messages that would not fit are refused from then on (107).
    pub fn set_message_max(&mut self, bytes: usize) {
        self.message_max = bytes;
        self.scopes.iter_mut().for_each(|scope| scope.replica.set_message_max(bytes));
    }

    /// Names of scopes whose options allow larger entries than other nodes can be told of.
    pub fn oversized_scopes(&self) -> impl Iterator<Item = &str> {
        let options = self.scopes.iter().map(|scope| &scope.options).take(self.scopes.len() - 1);
        let is_oversized = |largest: usize| self.is_clustered && largest > self.message_max;
        options
            .filter(move |options| {
                is_oversized(options.name_max_length.saturating_add(options.meta_max_size).saturating_add(AROUND))
            })
            .map(|options| &*options.name)
    }

    /// Whether so many bytes fit into one message.
    ///
    /// # Errors
    /// 107 if they do not.
    pub(super) fn fits(&self, bytes: usize) -> Result<(), Error> {
        if !self.is_clustered || bytes.saturating_add(AROUND) <= self.message_max {
            Ok(())
        } else {
            Err(Error::BAD_REQUEST)
        }
    }

    /// Whether a reply can be told to the other nodes. Messages to clients are looked at when they are written, entries
    /// by their replica.
    pub(super) fn can_be_told(&self, ask: &DirectoryRequest) -> Result<(), Error> {
        if let DirectoryRequest::Reply { outcome: Ok(data) | Err(data), .. } = ask {
            self.fits(data.len())
        } else {
            Ok(())
        }
    }

    /// Clients of one node that one message of so many bytes may be for.
    pub(super) fn clients_in_one(&self, bytes: usize) -> usize {
        let room =
            if self.is_clustered { self.message_max.saturating_sub(bytes + AROUND) / CLIENT } else { usize::MAX };
        room.clamp(1, super::remote::CLIENTS_MAX)
    }
}
