//! One subscription of a session, and the reply that reports it to the client.

use std::sync::Arc;

use bytes::Bytes;
use touchline_protocol::ClientInfo;
use touchline_protocol::filter::Filter;
use touchline_protocol::message::SubscribeResult;
use touchline_protocol::publication::Recovered;

use super::hook_state::RetryPlan;
use crate::caps::Capability;
use crate::hub::{LocalChannel, Membership};
use crate::request::Subscribed;

/// One subscription of a session.
#[derive(Debug)]
pub(super) struct Subscription {
    pub(super) channel: LocalChannel,
    /// The membership in the hub; `None` = the home's response is under way.
    pub(super) membership: Option<Membership>,
    pub(super) serial: u32,
    /// When the subscription expires, Unix seconds; 0 = never.
    pub(super) expire_at_s: u32,
    pub(super) is_server_side: bool,
    pub(super) is_positioned: bool,
    pub(super) is_recoverable: bool,
    pub(super) wants_membership_events: bool,
    /// Whether the client gets publications as deltas to the previous one.
    pub(super) is_delta: bool,
    /// What other clients see of it, after the home's response; `None` = presence, join and leave do not show it.
    pub(super) entry: Option<Box<PresenceEntry>>,
    pub(super) rejects_unrecovered: bool,
    /// Whether the backend is asked when it expires, instead of the client.
    pub(super) is_refreshed_by_hook: bool,
    /// The namespace's options, or a capability of the connection, permit it: no token, backend or operation does.
    pub(super) is_by_options: bool,
    /// What the subscription has only because of a capability of the connection or its own `allow`: its existence, its
    /// position, its join and leave events.
    pub(super) by_grant: Capability,
    /// The offset from which the client recovers; `None` = it does not recover.
    pub(super) recover_offset: Option<u64>,
    pub(super) extra: Option<Box<Extra>>,
}

/// How a subscription appears in presence, join and leave.
#[derive(Debug)]
pub(super) struct PresenceEntry {
    pub(super) info: Arc<ClientInfo>,
    pub(super) is_shown: bool,
    pub(super) is_announced: bool,
    pub(super) is_in: bool,
}

/// Fields that few subscriptions have.
#[derive(Debug, Default)]
pub(super) struct Extra {
    pub(super) chan_info: Option<Bytes>,
    pub(super) data: Option<Bytes>,
    pub(super) filter: Option<Arc<Filter>>,
    /// What the client may do in the channel in addition to what its namespace allows.
    pub(super) allow: Capability,
    /// When the backend is asked about the subscription again.
    pub(super) refresh: RetryPlan,
    /// When the subscription began, Unix milliseconds; 0 = the time is not noted.
    pub(super) began_ms: u64,
}

impl Subscription {
    pub(super) fn result<'a>(&'a self, subscribed: &'a Subscribed, now_s: u64) -> SubscribeResult<'a> {
        let recovered = subscribed.recovered.as_ref().and_then(Option::as_ref);
        // A recovered client continues from the offset that it sent: the missed publications bring it to the top.
        let offset = if recovered.is_some_and(|missed| !missed.is_empty()) {
            self.recover_offset.unwrap_or(subscribed.position.offset.0)
        } else {
            subscribed.position.offset.0
        };
        SubscribeResult {
            ttl_s: self.ttl_s(now_s),
            recoverable: self.is_recoverable,
            positioned: self.is_positioned,
            epoch: if self.is_positioned { subscribed.position.epoch.as_str() } else { "" },
            offset: if self.is_positioned { offset } else { 0 },
            recovered: recovered.is_some(),
            was_recovering: subscribed.recovered.is_some(),
            delta: self.is_delta,
            data: self.data(),
            missed: Recovered { publications: recovered.map_or(&[], Vec::as_slice), is_delta: self.is_delta },
        }
    }

    /// Sets what the client may do in the channel in addition to what its namespace allows.
    pub(super) fn set_allow(&mut self, allow: Capability) {
        if self.extra.is_some() || allow != Capability::default() {
            self.extra.get_or_insert_default().allow = allow;
        }
    }

    /// Notes that from now on a token or the server API permits it, and not a capability of the connection.
    pub(super) fn permit_anew(&mut self) {
        self.by_grant = self.by_grant.without(Capability::SUBSCRIBE);
        self.is_by_options = false;
    }

    /// The client's filter of publications; `None` = it gets all publications.
    pub(super) fn filter(&self) -> Option<&Arc<Filter>> {
        self.extra.as_ref().and_then(|extra| extra.filter.as_ref())
    }

    /// Removes from a home's response the missed publications that do not match the filter.
    pub(super) fn filtered(&self, mut subscribed: Subscribed) -> Subscribed {
        if let (Some(filter), Some(Some(missed))) = (self.filter(), &mut subscribed.recovered) {
            missed.retain(|publication| filter.fits(&publication.tags()));
        }
        subscribed
    }

    /// The data for the client from the token or the server API, JSON.
    pub(super) fn data(&self) -> Option<&[u8]> {
        self.extra.as_ref().and_then(|extra| extra.data.as_deref())
    }

    /// The number of seconds until the client must send a new token; `None` = never.
    pub(super) fn ttl_s(&self, now_s: u64) -> Option<u64> {
        (self.expire_at_s > 0 && !self.is_refreshed_by_hook)
            .then(|| u64::from(self.expire_at_s).saturating_sub(now_s).max(1))
    }
}
