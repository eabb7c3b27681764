//! Presence: the clients in a channel. The channel is a group, a subscriber's connection is its member, and what other
//! clients see of it is the metadata.

use std::sync::Arc;

use touchline_protocol::encode::ObjectWriter;
use touchline_protocol::publication::EncodedPush;
use touchline_protocol::stream::ChannelName;
use touchline_protocol::{ClientInfo, encode};
use touchline_registry::{EntryChange, OwnerId, RegistryEvent};

use super::effect::DirectoryEffect;
use super::presence_entry::{ANNOUNCED, meta, parts};
use super::state::Directory;

/// A join or leave push; `None` = the member does not announce itself, or the event is another one.
pub(super) fn announce<A>(event: &RegistryEvent) -> Option<DirectoryEffect<A>> {
    let kind = match event.change {
        EntryChange::Joined => "join",
        EntryChange::Left => "leave",
        _ => return None,
    };
    let (flags, _, json) = parts(event.entry.meta());
    if flags & ANNOUNCED == 0 {
        return None;
    }
    let push = EncodedPush::encode(json.len(), |out| {
        let mut object = ObjectWriter::open(out);
        object.text("channel", event.entry.key());
        let mut body = ObjectWriter::open(object.key(kind));
        body.raw("info", Some(json));
        body.close();
        object.close();
    });
    Some(DirectoryEffect::Announce(event.entry.key().into(), Arc::new(push)))
}

impl<A> Directory<A> {
    /// Enters a client into a channel. If its info does not fit into a message to other nodes, presence shows its user
    /// and its client id only.
    pub(super) fn enter(
        &mut self,
        owner: OwnerId,
        channel: &ChannelName,
        (info, is_shown, is_announced): (&ClientInfo, bool, bool),
        now_ms: u64,
    ) {
        let mut shown = meta(info, is_shown, is_announced);
        if self.fits(channel.len() + shown.len()).is_err() {
            let bare =
                ClientInfo { user: info.user.clone(), client: info.client.clone(), conn_info: None, chan_info: None };
            shown = meta(&bare, is_shown, is_announced);
        }
        // The limits of this scope are above all that channels allow, so the join is not refused.
        let _ = self.presence().join(owner, channel, &shown, now_ms);
    }

    /// A client has left a channel.
    pub(super) fn exit(&mut self, owner: OwnerId, channel: &str) {
        // A client that is not in the channel has nothing to leave.
        let _ = self.presence().leave(owner, channel);
    }

    /// `{"num_clients", "num_users"}`: both exact; all anonymous clients are one user.
    pub(super) fn presence_stats_of(&mut self, channel: &str) -> Vec<u8> {
        let (clients, users) = self.presence().member_counts(channel);
        let mut out = Vec::new();
        encode::presence_stats(&mut out, clients, users);
        out
    }
}
