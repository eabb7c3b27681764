//! The rate limits of a node as its sessions see them, and what the host stores for all sessions.

use std::sync::Arc;

use super::command::{LimitLayer, LimitOutcome, LimitedCommand};
use super::rules::{BlockRules, CommandCharge, CommandRules, EscalationRules, FailedConnectRules, LimitVerdict};
use super::settings::RateLimitSettings;

/// A client address as a key of tables: a /64 for IPv6, the mapped form for IPv4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressKey(pub u128);

/// The user or address whose connections share buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharer<'a> {
    /// A user that is not anonymous, whose connections share buckets.
    User(&'a str),
    /// A client address, whose connections share buckets.
    Address(AddressKey),
}

/// What the rates of users and addresses require of the host: tables that all shards share, and metrics. Times are
/// nanoseconds of the host's clock.
pub trait SharedLimits {
    /// Charges a command to a user or an address.
    fn charge(&self, sharer: Sharer<'_>, charge: &CommandCharge<'_>) -> LimitVerdict;

    /// Returns the tokens of a command that was charged and is not executed.
    fn give_back(&self, sharer: Sharer<'_>, charge: &CommandCharge<'_>);

    /// Notes that a rate refused a command. Returns whether there were too many refusals; if so, the user or address is
    /// refused for a while.
    fn note_refusal(&self, sharer: Sharer<'_>, now_ns: u64) -> bool;

    /// Whether new connections are refused. Each refused connection is counted.
    fn is_refused(&self, sharer: Sharer<'_>, now_ns: u64) -> bool;

    /// Begins an attempt of an address to connect that a backend decides about. Returns false, and begins none, if the
    /// address would have too many failed connects in case all attempts under way fail.
    fn begin_attempt(&self, address: AddressKey, now_ns: u64) -> bool;

    /// Notes that an attempt is over.
    fn end_attempt(&self, address: AddressKey, now_ns: u64);

    /// Notes a failed connect of an address. If there are too many, the address is refused for a while.
    fn note_failed_connect(&self, address: AddressKey, now_ns: u64);

    /// Counts a command that exceeds a rate.
    fn count_command(&self, layer: LimitLayer, command: LimitedCommand, outcome: LimitOutcome);

    /// Counts an error of a client that exceeds its rate.
    fn count_error(&self, outcome: LimitOutcome);

    /// Counts an anonymous connection that was ended because its commands were refused repeatedly.
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

    /// The rate limits of a node with these settings.
    pub fn new(settings: &RateLimitSettings, shared: Arc<dyn SharedLimits + Send + Sync>) -> Self {
        RateLimits {
            client: CommandRules::of_client(&settings.client_command),
            errors: BlockRules::of_errors(&settings.client_error),
            escalation: EscalationRules::of(&settings.escalation),
            patience_ns: settings.patience_ns(),
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
