//! Which buckets a command is charged to: the settings in a form that is ready for charging.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use super::bucket::{BucketLevels, BucketSpec};
use super::command::LimitedCommand;
use super::settings::{
    BucketBlock, CommandLimitSettings, ErrorLimitSettings, EscalationSettings, FailedConnectSettings,
    SharedCommandLimitSettings,
};
use super::value::{RateBuckets, RateOverride, nanos};

/// A command that has to be charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandCharge<'a> {
    /// The kind of the command.
    pub command: LimitedCommand,
    /// The namespace of its channel, or its method; empty = it has none.
    pub detail: &'a str,
    /// The time of the command, nanoseconds of the host's clock.
    pub now_ns: u64,
    /// How long the command may wait for its tokens, nanoseconds.
    pub patience_ns: u64,
    /// Whether an earlier layer has no token for it, and accepts it nevertheless.
    pub is_over: bool,
}

/// What the rates decide about a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitVerdict {
    /// The command may be executed after this time, nanoseconds.
    Allowed(u64),
    /// The command exceeds a rate, and may be executed nevertheless: the rates are in trial mode, or it is never
    /// refused.
    Over,
    /// The command exceeds a rate and is refused.
    Refused,
}

/// The buckets for the commands of one layer.
#[derive(Debug)]
pub struct CommandRules {
    buckets: Vec<BucketSpec>,
    total: Range<usize>,
    commands: [CommandEntry; LimitedCommand::ALL.len()],
    is_dry_run: bool,
}

/// The buckets for one command.
#[derive(Debug, Default)]
struct CommandEntry {
    base: Range<usize>,
    /// The buckets that replace them, by namespace or method.
    overrides: BTreeMap<Box<str>, Range<usize>>,
}

impl CommandRules {
    /// The rules for a connection; `None` = they are switched off.
    pub fn of_client(settings: &CommandLimitSettings) -> Option<Self> {
        Self::of(settings, None)
    }

    /// The rules for a user or an address; `None` = they are switched off.
    pub fn of_shared(settings: &SharedCommandLimitSettings) -> Option<Self> {
        Self::of(&settings.commands, Some(&settings.connect))
    }

    /// The rules of a section. `connect`: the block of `connect`; `None` = this command has no rate in this layer.
    fn of(settings: &CommandLimitSettings, connect: Option<&BucketBlock>) -> Option<Self> {
        if !settings.enabled {
            return None;
        }
        let mut buckets = Vec::new();
        let mut add = |rates: &RateBuckets| {
            let first = buckets.len();
            buckets.extend(rates.0.iter().map(|bucket| BucketSpec::new(*bucket)));
            first..buckets.len()
        };
        let total = if settings.total.enabled { add(&settings.total.buckets) } else { 0..0 };
        let commands = LimitedCommand::ALL.map(|command| {
            let Some(block) = block_of(settings, connect, command) else { return CommandEntry::default() };
            let default = (settings.default.enabled, &settings.default.buckets);
            let (is_on, rates) =
                if block.enabled && !block.buckets.0.is_empty() { (true, block.buckets) } else { default };
            let base = if is_on { add(rates) } else { 0..0 };
            let counts = |item: &&RateOverride| item.enabled && !item.buckets.0.is_empty();
            let overrides = block.overrides.into_iter().flatten().filter(counts);
            let overrides = overrides.map(|item| (Box::from(item.name.as_str()), add(&item.buckets))).collect();
            CommandEntry { base, overrides }
        });
        Some(CommandRules { buckets, total, commands, is_dry_run: settings.dry_run })
    }

    /// Charges a command to all of its buckets, or to none: its own buckets first, then the total.
    ///
    /// If a command exceeds a rate of an earlier layer, it is charged only where a refusal matters. Rates in trial mode
    /// behave as if the earlier layer were not in trial mode. And an unsubscribe costs others nothing.
    pub fn charge(&self, levels: &mut BucketLevels, charge: &CommandCharge<'_>) -> LimitVerdict {
        let is_never_refused = charge.command == LimitedCommand::Unsubscribe;
        if charge.is_over && (self.is_dry_run || is_never_refused) {
            return LimitVerdict::Allowed(0);
        }
        let patience_ns = if is_never_refused { 0 } else { charge.patience_ns };
        let own = self.own(charge);
        let mut take = |range: &Range<usize>| {
            levels.take(&self.buckets[range.clone()], range.start as u32, charge.now_ns, patience_ns)
        };
        let own_wait_ns = take(own);
        let total_wait_ns = own_wait_ns.and_then(|_| take(&self.total));
        match (own_wait_ns, total_wait_ns) {
            (Some(own_ns), Some(total_ns)) if !self.is_dry_run || own_ns.max(total_ns) == 0 => {
                return LimitVerdict::Allowed(own_ns.max(total_ns));
            }
            (Some(_), None) => levels.give_back(&self.buckets[own.clone()], own.start as u32, charge.now_ns),
            _ => {}
        }
        if self.is_dry_run || is_never_refused { LimitVerdict::Over } else { LimitVerdict::Refused }
    }

    /// Returns the tokens of a command that was charged and is not executed. If the command is executed although it
    /// exceeds a rate of another layer, tokens are returned only if the rates are in trial mode.
    pub fn give_back(&self, levels: &mut BucketLevels, charge: &CommandCharge<'_>) {
        if charge.is_over && !self.is_dry_run {
            return;
        }
        for range in [self.own(charge), &self.total] {
            levels.give_back(&self.buckets[range.clone()], range.start as u32, charge.now_ns);
        }
    }

    /// Whether a command would be refused now. Nothing is charged.
    pub fn would_refuse(&self, levels: &BucketLevels, charge: &CommandCharge<'_>) -> bool {
        let is_empty = |range: &Range<usize>| {
            let specs = &self.buckets[range.clone()];
            levels.tokens(specs, range.start as u32, charge.now_ns, charge.patience_ns) == 0
        };
        !self.is_dry_run && (is_empty(self.own(charge)) || is_empty(&self.total))
    }

    /// The buckets for this command alone.
    fn own(&self, charge: &CommandCharge<'_>) -> &Range<usize> {
        let entry = &self.commands[charge.command as usize];
        entry.overrides.get(charge.detail).unwrap_or(&entry.base)
    }
}

/// The block of a command, whatever the type of the block.
struct BlockView<'a> {
    enabled: bool,
    buckets: &'a RateBuckets,
    overrides: [&'a [RateOverride]; 2],
}

impl<'a> BlockView<'a> {
    fn of(block: &'a BucketBlock) -> Self {
        BlockView { enabled: block.enabled, buckets: &block.buckets, overrides: [&[], &[]] }
    }
}

/// The block of a command; `None` = the command has no rate in this layer.
fn block_of<'a>(
    settings: &'a CommandLimitSettings,
    connect: Option<&'a BucketBlock>,
    command: LimitedCommand,
) -> Option<BlockView<'a>> {
    let block = match command {
        LimitedCommand::Connect => return connect.map(BlockView::of),
        LimitedCommand::Refresh => return Some(BlockView::of(&settings.refresh)),
        LimitedCommand::Rpc => {
            let block = &settings.rpc;
            let overrides = [&*block.method_overrides.0, &*block.method_override.0];
            return Some(BlockView { enabled: block.enabled, buckets: &block.buckets, overrides });
        }
        LimitedCommand::Subscribe => &settings.subscribe,
        LimitedCommand::Unsubscribe => &settings.unsubscribe,
        LimitedCommand::Publish => &settings.publish,
        LimitedCommand::History => &settings.history,
        LimitedCommand::Presence => &settings.presence,
        LimitedCommand::PresenceStats => &settings.presence_stats,
        LimitedCommand::SubRefresh => &settings.sub_refresh,
    };
    let overrides = [&*block.namespace_overrides.0, &[]];
    Some(BlockView { enabled: block.enabled, buckets: &block.buckets, overrides })
}

/// The buckets of one block: for the errors of a connection, or the failed connects of an address.
#[derive(Debug)]
pub struct BlockRules {
    buckets: Vec<BucketSpec>,
    is_dry_run: bool,
}

impl BlockRules {
    fn of(rates: &RateBuckets, is_dry_run: bool) -> Self {
        BlockRules { buckets: rates.0.iter().map(|bucket| BucketSpec::new(*bucket)).collect(), is_dry_run }
    }

    /// The rules for the errors of a connection; `None` = they are switched off.
    pub fn of_errors(settings: &ErrorLimitSettings) -> Option<Self> {
        let is_on = settings.enabled && settings.total.enabled;
        is_on.then(|| Self::of(&settings.total.buckets, settings.dry_run))
    }

    /// Charges one error or failed connect.
    pub fn charge(&self, levels: &mut BucketLevels, now_ns: u64) -> LimitVerdict {
        match levels.take(&self.buckets, 0, now_ns, 0) {
            Some(_) => LimitVerdict::Allowed(0),
            None if self.is_dry_run => LimitVerdict::Over,
            None => LimitVerdict::Refused,
        }
    }
}

/// The number of the first bucket for failed connects in an address's levels, after the buckets for its commands.
const FAILURES_FIRST: u32 = 1 << 30;
/// The number of the first bucket for refused commands in the levels of a user, an address or a connection.
const REFUSALS: u32 = 1 << 31;
const REFUSALS_SEEN: u32 = REFUSALS + 1;

/// The rules for failed connects.
#[derive(Debug)]
pub struct FailedConnectRules {
    buckets: Vec<BucketSpec>,
    /// How long an address above the rate is refused, nanoseconds.
    pub refused_for_ns: u64,
}

impl FailedConnectRules {
    /// The rules for these settings; `None` = they are switched off.
    pub fn of(settings: &FailedConnectSettings) -> Option<Self> {
        let buckets = settings.buckets.0.iter().map(|bucket| BucketSpec::new(*bucket)).collect();
        settings.enabled.then(|| FailedConnectRules { buckets, refused_for_ns: nanos(settings.refused_for) })
    }

    /// Charges a failed connect to its address. Returns whether it exceeds the rate.
    pub fn note_failure(&self, levels: &mut BucketLevels, now_ns: u64) -> bool {
        levels.take(&self.buckets, FAILURES_FIRST, now_ns, 0).is_none()
    }

    /// Whether an address may attempt one more connect while `under_way` of its connects are under way. If all of them
    /// fail, at most one of them exceeds the rate.
    pub fn may_try(&self, levels: &BucketLevels, under_way: u32, now_ns: u64) -> bool {
        levels.tokens(&self.buckets, FAILURES_FIRST, now_ns, 0) >= under_way.into()
    }
}

/// The time within which refusals count as one, nanoseconds. A client can react to a refusal only after it has received
/// it; the commands that it sent before that arrive in a burst.
pub const HEED_NS: u64 = 1_000_000_000;

/// What happens when commands are refused repeatedly.
#[derive(Debug, Clone, Copy)]
pub struct EscalationRules {
    refusals: BucketSpec,
    /// The bucket that lets one refusal in [`HEED_NS`] count.
    seen: BucketSpec,
    /// How long the user or the address is refused, nanoseconds.
    pub refused_for_ns: u64,
}

impl EscalationRules {
    /// The rules for these settings; `None` = they are switched off.
    pub fn of(settings: &EscalationSettings) -> Option<Self> {
        // The last of the refusals finds no token.
        let refusals =
            BucketSpec::with_burst(settings.interval, settings.refusals, settings.refusals.saturating_sub(1));
        let seen = BucketSpec::with_burst(Duration::from_nanos(HEED_NS), 1, 1);
        settings.enabled.then(|| EscalationRules { refusals, seen, refused_for_ns: nanos(settings.refused_for) })
    }

    /// Counts a refused command of a user, an address or a connection, unless another was counted within [`HEED_NS`].
    /// Returns whether there were too many.
    pub fn note_refusal(&self, levels: &mut BucketLevels, now_ns: u64) -> bool {
        levels.take(&[self.seen], REFUSALS_SEEN, now_ns, 0).is_some()
            && levels.take(&[self.refusals], REFUSALS, now_ns, 0).is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::super::value::RateBucket;
    use super::*;

    fn rates(rate: u32) -> RateBuckets {
        RateBuckets(vec![RateBucket { interval: Duration::from_secs(3_600), rate }])
    }

    fn block(rate: u32) -> BucketBlock {
        BucketBlock { enabled: true, buckets: rates(rate) }
    }

    const CHARGE: CommandCharge<'static> =
        CommandCharge { command: LimitedCommand::Rpc, detail: "", now_ns: 1, patience_ns: 0, is_over: false };

    fn on() -> CommandLimitSettings {
        CommandLimitSettings { enabled: true, ..CommandLimitSettings::default() }
    }

    /// How many of a command are allowed at once.
    fn allowed(rules: &CommandRules, levels: &mut BucketLevels, command: LimitedCommand, detail: &str) -> usize {
        let charge = CommandCharge { command, detail, ..CHARGE };
        (0..1_000).take_while(|_| rules.charge(levels, &charge) == LimitVerdict::Allowed(0)).count()
    }

    #[test]
    fn a_command_has_its_own_block_or_the_default_each_for_itself() {
        let mut settings = CommandLimitSettings { default: block(3), ..on() };
        settings.publish.enabled = true;
        settings.publish.buckets = rates(2);
        settings.history.enabled = true;
        settings.presence.buckets = rates(1);
        let rules = CommandRules::of_client(&settings).expect("they are on");
        let mut levels = BucketLevels::default();
        let mut allowed = |command| allowed(&rules, &mut levels, command, "");
        assert_eq!(allowed(LimitedCommand::Publish), 2);
        assert_eq!(allowed(LimitedCommand::History), 3, "a block without buckets is none");
        assert_eq!(allowed(LimitedCommand::Presence), 3, "a block that is off is none");
        assert_eq!(allowed(LimitedCommand::Rpc), 3);
        assert_eq!(allowed(LimitedCommand::Connect), 1_000, "a connection connects once");
        assert!(CommandRules::of_client(&CommandLimitSettings { enabled: false, ..settings }).is_none());
    }

    #[test]
    fn an_override_replaces_the_block() {
        let mut settings = CommandLimitSettings { default: block(3), ..on() };
        let item = |name: &str, enabled, buckets| RateOverride { name: name.into(), enabled, buckets };
        settings.subscribe.namespace_overrides.0 = vec![
            item("chat", true, rates(9)),
            item("off", false, rates(9)),
            item("none", true, RateBuckets::default()),
        ];
        settings.rpc.method_override.0 = vec![item("price", true, rates(1))];
        let rules = CommandRules::of_client(&settings).expect("they are on");
        let mut levels = BucketLevels::default();
        let mut allowed = |command, detail| allowed(&rules, &mut levels, command, detail);
        assert_eq!(allowed(LimitedCommand::Subscribe, "chat"), 9);
        assert_eq!(allowed(LimitedCommand::Subscribe, "off"), 3);
        assert_eq!(allowed(LimitedCommand::Subscribe, "none"), 0, "the block is used up");
        assert_eq!(allowed(LimitedCommand::Publish, "chat"), 3, "of another command it says nothing");
        assert_eq!((allowed(LimitedCommand::Rpc, "price"), allowed(LimitedCommand::Rpc, "x")), (1, 3));
    }

    #[test]
    fn the_total_is_charged_after_the_commands_own_check() {
        let mut settings = CommandLimitSettings { total: block(5), ..on() };
        settings.publish.enabled = true;
        settings.publish.buckets = rates(1);
        let rules = CommandRules::of_client(&settings).expect("they are on");
        let mut levels = BucketLevels::default();
        assert_eq!(allowed(&rules, &mut levels, LimitedCommand::Publish, ""), 1);
        for _ in 0..10 {
            assert_eq!(allowed(&rules, &mut levels, LimitedCommand::Publish, ""), 0, "these cost nothing of the total");
        }
        assert_eq!(allowed(&rules, &mut levels, LimitedCommand::History, ""), 4);
    }

    #[test]
    fn an_unsubscribe_is_charged_and_is_never_refused_and_never_waits() {
        let rules = CommandRules::of_client(&CommandLimitSettings { total: block(3), default: block(1), ..on() });
        let (rules, mut levels) = (rules.expect("they are on"), BucketLevels::default());
        let charge = CommandCharge { command: LimitedCommand::Unsubscribe, patience_ns: u64::MAX, ..CHARGE };
        assert_eq!(rules.charge(&mut levels, &charge), LimitVerdict::Allowed(0));
        for _ in 0..9 {
            assert_eq!(rules.charge(&mut levels, &charge), LimitVerdict::Over);
        }
        assert_eq!(allowed(&rules, &mut levels, LimitedCommand::History, ""), 1, "above its rate it costs nothing");
        let mut levels = BucketLevels::default();
        let over = CommandCharge { is_over: true, ..charge };
        assert_eq!([(); 5].map(|()| rules.charge(&mut levels, &over)), [LimitVerdict::Allowed(0); 5]);
        assert_eq!(levels, BucketLevels::default(), "above the rate of a layer before it costs nothing either");
    }

    #[test]
    fn a_command_costs_all_of_its_buckets_or_none_and_a_look_costs_nothing() {
        let rules = CommandRules::of_client(&CommandLimitSettings { total: block(2), default: block(9), ..on() });
        let (rules, mut levels) = (rules.expect("they are on"), BucketLevels::default());
        for _ in 0..2 {
            assert!(!rules.would_refuse(&levels, &CHARGE));
            assert_eq!(rules.charge(&mut levels, &CHARGE), LimitVerdict::Allowed(0));
        }
        let before = levels.clone();
        assert!(rules.would_refuse(&levels, &CHARGE));
        assert_eq!(rules.charge(&mut levels, &CHARGE), LimitVerdict::Refused);
        assert_eq!(levels, before);
        rules.give_back(&mut levels, &CHARGE);
        assert_eq!(allowed(&rules, &mut levels, LimitedCommand::Rpc, ""), 1, "one was given back");
    }

    #[test]
    fn attempts_under_way_count_as_failures() {
        let settings = FailedConnectSettings { enabled: true, buckets: rates(3), ..FailedConnectSettings::default() };
        let (rules, mut levels) = (FailedConnectRules::of(&settings).expect("they are on"), BucketLevels::default());
        let most = |levels: &BucketLevels| (0..99).take_while(|under_way| rules.may_try(levels, *under_way, 1)).count();
        assert_eq!(most(&levels), 4);
        assert!(!rules.note_failure(&mut levels, 1));
        assert_eq!(most(&levels), 3);
        assert!(!rules.note_failure(&mut levels, 1) && !rules.note_failure(&mut levels, 1));
        assert_eq!(most(&levels), 1);
        assert!(rules.note_failure(&mut levels, 1));
    }

    #[test]
    fn on_trial_commands_are_charged_and_none_is_refused_or_waits() {
        let settings = CommandLimitSettings { dry_run: true, default: block(2), ..on() };
        let (rules, mut levels) = (CommandRules::of_client(&settings).expect("they are on"), BucketLevels::default());
        for patience_ns in [0, u64::MAX] {
            let charge = CommandCharge { patience_ns, ..CHARGE };
            let verdicts = [(); 3].map(|()| rules.charge(&mut levels, &charge));
            assert_eq!(verdicts[2], LimitVerdict::Over);
        }
        let before = levels.clone();
        assert_eq!(rules.charge(&mut levels, &CommandCharge { is_over: true, ..CHARGE }), LimitVerdict::Allowed(0));
        assert_eq!(levels, before, "a layer before would have refused it");
    }

    #[test]
    fn the_last_of_the_refusals_is_one_too_many() {
        for refusals in 1..5 {
            let settings = EscalationSettings { enabled: true, refusals, ..EscalationSettings::default() };
            let rules = EscalationRules::of(&settings).expect("they are on");
            let mut levels = BucketLevels::default();
            let notes = (0..u64::from(refusals)).map(|n| rules.note_refusal(&mut levels, n * HEED_NS));
            let notes = notes.collect::<Vec<_>>();
            assert_eq!(notes.iter().position(|is_last| *is_last), Some(refusals as usize - 1), "{notes:?}");
        }
    }

    #[test]
    fn refusals_that_a_client_cannot_have_seen_count_as_one() {
        let settings = EscalationSettings { enabled: true, refusals: 2, ..EscalationSettings::default() };
        let (rules, mut levels) = (EscalationRules::of(&settings).expect("they are on"), BucketLevels::default());
        assert!((0..1_000).all(|n| !rules.note_refusal(&mut levels, n * HEED_NS / 1_000)), "they are one burst");
        assert!(rules.note_refusal(&mut levels, HEED_NS));
    }
}
