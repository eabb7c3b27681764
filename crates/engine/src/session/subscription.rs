//! One subscription of a session, and the reply that tells the client about it.

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
    /// `None` while the home's reply is under way.
    pub(super) membership: Option<Membership>,
    pub(super) serial: u32,
    /// Unix seconds; 0 = never.
    pub(super) expire_at_s: u32,
    pub(super) is_server_side: bool,
    pub(super) is_positioned: bool,
    pub(super) is_recoverable: bool,
    pub(super) wants_membership_events: bool,
    /// Publications come as deltas to the previous one.
    pub(super) is_delta: bool,
    /// What other clients see of it, from the home's reply on; `None` = presence, join and leave do not show it.
    pub(super) entry: Option<Box<PresenceEntry>>,
    pub(super) rejects_unrecovered: bool,
    /// The backend is asked when it expires, instead of the client.
    pub(super) is_refreshed_by_hook: bool,
    /// The options of its namespace, or a capability of the connection, permit it: no token, backend or operation does.
    pub(super) is_by_options: bool,
    /// What it has only because a capability of the connection, or its own `allow`, grants it: that it is there, its
    /// position, its events of joining and leaving.
    pub(super) by_grant: Capability,
    /// The offset from which the client recovers; `None` = it does not recover.
    pub(super) recover_offset: Option<u64>,
    pub(super) extra: Option<Box<Extra>>,
}

/// How a subscription shows in presence, join and leave.
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
    /// What the client may do in the channel besides what its namespace allows.
    pub(super) allow: Capability,
    /// Its refresh by the backend.
    pub(super) refresh: RetryPlan,
    /// When it began, Unix milliseconds; 0 = that is not noted.
    pub(super) began_ms: u64,
}

impl Subscription {
    pub(super) fn result<'a>(&'a self, subscribed: &'a Subscribed, now_s: u64) -> SubscribeResult<'a> {
        let recovered = subscribed.recovered.as_ref().and_then(Option::as_ref);
        // A recovered client continues from the offset that it sent: the publications take it to the top.
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

    /// Sets what the client may do in the channel besides what its namespace allows.
    pub(super) fn set_allow(&mut self, allow: Capability) {
        if self.extra.is_some() || allow != Capability::default() {
            self.extra.get_or_insert_default().allow = allow;
        }
    }

    /// Something else than a capability of the connection permits it from now on: a token, or the server API.
    pub(super) fn permit_anew(&mut self) {
        self.by_grant = self.by_grant.without(Capability::SUBSCRIBE);
        self.is_by_options = false;
    }

    /// The client's filter of publications; `None` = it gets all.
    pub(super) fn filter(&self) -> Option<&Arc<Filter>> {
        self.extra.as_ref().and_then(|extra| extra.filter.as_ref())
    }

    /// A home's reply without the missed publications that do not match the filter.
    pub(super) fn filtered(&self, mut subscribed: Subscribed) -> Subscribed {
        if let (Some(filter), Some(Some(missed))) = (self.filter(), &mut subscribed.recovered) {
            missed.retain(|publication| filter.fits(&publication.tags()));
        }
        subscribed
    }

    /// JSON for the client, from the token or the server API.
    pub(super) fn data(&self) -> Option<&[u8]> {
        self.extra.as_ref().and_then(|extra| extra.data.as_deref())
    }

    /// Seconds until the client must send a new token; `None` = never.
    pub(super) fn ttl_s(&self, now_s: u64) -> Option<u64> {
        (self.expire_at_s > 0 && !self.is_refreshed_by_hook)
            .then(|| u64::from(self.expire_at_s).saturating_sub(now_s).max(1))
    }
}
