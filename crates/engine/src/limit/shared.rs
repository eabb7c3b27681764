//! The rate limits of a node as its sessions see them, and what the host keeps for all of them.

use std::sync::Arc;

use super::command::{LimitLayer, LimitOutcome, LimitedCommand};
use super::rules::{BlockRules, CommandCharge, CommandRules, EscalationRules, FailedConnectRules, LimitVerdict, nanos};
use super::settings::{OnLimit, RateLimitSettings};

/// A client address as a key of tables: of IPv6 a /64, an IPv4 address in its mapped form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressKey(pub u128);

/// What the rates of users and addresses need of the host: tables that all shards share, and metrics. Times are
/// nanoseconds of the host's clock.
pub trait SharedLimits {
    /// Charges a command to the buckets of a user, who is not anonymous.
    fn charge_user(&self, user: &str, charge: &CommandCharge<'_>) -> LimitVerdict;

    /// Charges a command to the buckets of an address.
    fn charge_address(&self, address: AddressKey, charge: &CommandCharge<'_>) -> LimitVerdict;

    /// Notes a failed connect of an address, which is refused for a while if it had too many.
    fn note_failed_connect(&self, address: AddressKey, now_ns: u64);

    /// Refuses new connections of a user until this time.
    fn refuse_user(&self, user: &str, until_ns: u64, now_ns: u64);

    /// Refuses new connections of an address until this time.
    fn refuse_address(&self, address: AddressKey, until_ns: u64, now_ns: u64);

    /// Whether new connections of a user are refused. Each that is, is counted.
    fn is_user_refused(&self, user: &str, now_ns: u64) -> bool;

    /// Whether new connections of an address are refused. Each that is, is counted.
    fn is_address_refused(&self, address: AddressKey, now_ns: u64) -> bool;

    /// Counts a command above a rate.
    fn count_command(&self, layer: LimitLayer, command: LimitedCommand, outcome: LimitOutcome);

    /// Counts an error of a client above its rate.
    fn count_error(&self, outcome: LimitOutcome);

    /// Counts a connection that was ended because its commands were refused again and again.
    fn count_escalation(&self);
}

/// The rate limits of a node.
pub struct RateLimits {
    pub(crate) client: Option<CommandRules>,
    pub(crate) errors: Option<BlockRules>,
    pub(crate) escalation: Option<EscalationRules>,
    /// How long a command may wait for its tokens, nanoseconds; 0 = it is refused at once.
    pub(crate) patience_ns: u64,
    pub(crate) has_users: bool,
    pub(crate) has_addresses: bool,
    pub(crate) has_failed_connects: bool,
    pub(crate) shared: Arc<dyn SharedLimits + Send + Sync>,
}

impl RateLimits {
    /// Whether any rate is switched on.
    pub fn are_on(settings: &RateLimitSettings) -> bool {
        settings.client_command.enabled
            || settings.user_command.commands.enabled
            || settings.address_command.commands.enabled
            || BlockRules::of_errors(&settings.client_error).is_some()
            || FailedConnectRules::of(&settings.failed_connect).is_some()
    }

    /// The limits of a node.
    pub fn new(settings: &RateLimitSettings, shared: Arc<dyn SharedLimits + Send + Sync>) -> Self {
        let patience_ns = if settings.on_limit == OnLimit::Slow { nanos(settings.slow_wait_max) } else { 0 };
        RateLimits {
            client: CommandRules::of_client(&settings.client_command),
            errors: BlockRules::of_errors(&settings.client_error),
            escalation: EscalationRules::of(&settings.escalation),
            patience_ns,
            has_users: settings.user_command.commands.enabled,
            has_addresses: settings.address_command.commands.enabled,
            has_failed_connects: settings.failed_connect.enabled,
            shared,
        }
    }

    /// Whether sessions must know the addresses of their clients.
    pub fn need_addresses(&self) -> bool {
        self.has_addresses || self.has_failed_connects || self.escalation.is_some()
    }
}
