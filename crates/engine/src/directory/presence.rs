//! Presence: the clients in a channel. The channel is a group and a subscriber's connection is a member of it. The
//! member's metadata is what other clients see of the subscriber.

use std::sync::Arc;

use touchline_protocol::encode::ObjectWriter;
use touchline_protocol::publication::EncodedPush;
use touchline_protocol::stream::ChannelName;
use touchline_protocol::{ClientInfo, encode};
use touchline_registry::{EntryChange, OwnerId, RegistryEvent};

use super::effect::DirectoryEffect;
use super::presence_entry::{ANNOUNCED, meta, parts};
use super::state::Directory;

/// The join or leave push for an event; `None` = the member is not announced, or it is another event.
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
    /// Adds a client to a channel's presence. If its info does not fit into a message to other nodes, presence shows
    /// only its user and its client id.
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
        // This scope's limits exceed every limit of channels, so the join is never refused.
        let _ = self.presence().join(owner, channel, &shown, now_ms);
    }

    /// Removes a client from a channel's presence.
    pub(super) fn exit(&mut self, owner: OwnerId, channel: &str) {
        // A client that is not in the channel has nothing to leave.
        let _ = self.presence().leave(owner, channel);
    }

    /// Writes `{"num_clients", "num_users"}`. Both numbers are exact; all anonymous clients count as one user.
    pub(super) fn presence_stats_of(&mut self, channel: &str) -> Vec<u8> {
        let (clients, users) = self.presence().member_counts(channel);
        let mut out = Vec::new();
        encode::presence_stats(&mut out, clients, users);
        out
    }
}
