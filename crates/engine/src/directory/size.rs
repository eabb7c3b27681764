//! The size of messages to other nodes. The directory refuses what would not fit into such a message, no matter where
//! its receiver is now.

use touchline_protocol::Error;

use super::client_id::TEXT_LEN;
use super::state::Directory;

/// The bytes that an entry, or a message to a client, takes in addition when it is sent to another node: the sender,
/// stamps, numbers, one client id.
pub(super) const MESSAGE_OVERHEAD_BYTES: usize = 512;
/// The bytes of each further client id in such a message.
pub(super) const CLIENT: usize = 39;
/// The greatest number of clients in one message. Their ids take about 40 KB.
pub(super) const CLIENTS_MAX: usize = 1_024;
// In a list, a client id has two quotation marks and a comma.
const _: () = assert!(CLIENT == TEXT_LEN + 3);
// NATS allows 1 MB unless it is configured otherwise. The longest list leaves most of that for the message itself.
const _: () = assert!(CLIENTS_MAX * CLIENT + MESSAGE_OVERHEAD_BYTES <= 64 * 1_024);

impl<A> Directory<A> {
    /// Sets the greatest size of one message to another node, bytes. It may change whenever the link to the other nodes
    /// comes back. From then on, entries and messages that would not fit are refused (107).
    pub fn set_message_max(&mut self, bytes: usize) {
        self.message_max = bytes;
        self.scopes.iter_mut().for_each(|scope| scope.replica.set_message_max(bytes));
    }

    /// The names of scopes whose options allow larger entries than one message to another node can carry.
    pub fn oversized_scopes(&self) -> impl Iterator<Item = &str> {
        let options = self.scopes.iter().map(|scope| &scope.options).take(self.scopes.len() - 1);
        let is_oversized = |largest: usize| self.is_clustered && largest > self.message_max;
        options
            .filter(move |options| {
                is_oversized(
                    options
                        .name_max_length
                        .saturating_add(options.meta_max_size)
                        .saturating_add(MESSAGE_OVERHEAD_BYTES),
                )
            })
            .map(|options| &*options.name)
    }

    /// Checks whether this many bytes fit into one message.
    ///
    /// # Errors
    /// 107 if they do not.
    pub(super) fn fits(&self, bytes: usize) -> Result<(), Error> {
        if !self.is_clustered || bytes.saturating_add(MESSAGE_OVERHEAD_BYTES) <= self.message_max {
            Ok(())
        } else {
            Err(Error::BAD_REQUEST)
        }
    }

    /// How many clients of one node a message of this many bytes may be for.
    pub(super) fn clients_in_one(&self, bytes: usize) -> usize {
        let room = if self.is_clustered {
            self.message_max.saturating_sub(bytes + MESSAGE_OVERHEAD_BYTES) / CLIENT
        } else {
            usize::MAX
        };
        room.clamp(1, CLIENTS_MAX)
    }
}
