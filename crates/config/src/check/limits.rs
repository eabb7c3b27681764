//! Checks rate limits: valid rates of buckets, names of overrides, and sections that have no effect.

use std::collections::HashSet;
use std::time::Duration;

use touchline_engine::limit::{
    BucketBlock, ChannelCommandBlock, CommandLimitSettings, OnLimit, RateBuckets, RateLimitSettings, RateOverride,
    RpcBlock,
};

use crate::finding::Finding;
use crate::keys::NAMESPACES;
use crate::settings::Settings;

const SECTION: &str = "client.rate_limit";
/// Shortest and longest interval of a rate.
const INTERVALS: [Duration; 2] = [Duration::from_millis(1), Duration::from_hours(24)];
/// Maximum time for which a command may wait. The node does not read the connection meanwhile.
const WAIT_MAX: Duration = Duration::from_hours(1);
/// The time after which client SDKs give up a command.
const SDK_PATIENCE: Duration = Duration::from_secs(5);
/// Maximum rate of a bucket.
const RATE_MAX: u32 = 1_000_000;
/// Maximum number of buckets of one block. Each command checks all of them.
const BUCKETS_MAX: usize = 16;

/// Checks the rate limits.
pub(super) fn check(settings: &Settings, findings: &mut Vec<Finding>) {
    let limits = &settings.client.rate_limit;
    let namespaces = settings.channel.namespaces.iter().map(|namespace| namespace.name.as_str()).collect();
    let mut checker = LimitChecker { namespaces, findings };
    checker.section("client_command", &limits.client_command, None);
    checker.section("user_command", &limits.user_command.commands, Some(&limits.user_command.connect));
    checker.section("address_command", &limits.address_command.commands, Some(&limits.address_command.connect));
    checker.block("client_error.total", &limits.client_error.total);
    if limits.client_error.enabled && !limits.client_error.total.enabled {
        checker.warn("client_error.enabled: has no effect unless client_error.total is enabled");
    }
    let failed = &limits.failed_connect;
    checker.rates("failed_connect", failed.enabled, &failed.buckets);
    for (path, is_on, refused_for) in [
        ("failed_connect", failed.enabled, failed.refused_for),
        ("escalation", limits.escalation.enabled, limits.escalation.refused_for),
    ] {
        if is_on && refused_for.is_zero() {
            checker.warn(&format!("{path}.refused_for: zero, so nobody is refused"));
        }
    }
    escalation(limits, &mut checker);
    if limits.on_limit == OnLimit::Slow && (SDK_PATIENCE..=WAIT_MAX).contains(&limits.slow_wait_max) {
        checker.warn("slow_wait_max: expected less than 5s, after which SDKs give up a command");
    }
    if limits.on_limit == OnLimit::Slow && !(INTERVALS[0]..=WAIT_MAX).contains(&limits.slow_wait_max) {
        checker.error("slow_wait_max: expected 1ms to 1h");
    }
}

fn escalation(limits: &RateLimitSettings, checker: &mut LimitChecker<'_>) {
    let escalation = &limits.escalation;
    if escalation.enabled && !is_interval(escalation.interval) {
        checker.error("escalation.interval: expected 1ms to 24h");
    }
    if escalation.enabled && u64::from(escalation.refusals) > escalation.interval.as_secs().max(1) {
        checker.warn(
            "escalation.refusals: never reached, since all refusals of one second count as one: lengthen the interval",
        );
    }
    let sections = [&limits.client_command, &limits.user_command.commands, &limits.address_command.commands];
    if escalation.enabled && !sections.iter().any(|section| section.enabled && !section.dry_run) {
        checker.warn("escalation.enabled: has no effect, because no command is refused by a rate");
    }
}

fn is_interval(interval: Duration) -> bool {
    (INTERVALS[0]..=INTERVALS[1]).contains(&interval)
}

struct LimitChecker<'a> {
    namespaces: HashSet<&'a str>,
    findings: &'a mut Vec<Finding>,
}

impl LimitChecker<'_> {
    fn error(&mut self, text: &str) {
        self.findings.push(Finding::error(format!("{SECTION}.{text}"), None));
    }

    fn warn(&mut self, text: &str) {
        self.findings.push(Finding::warning(format!("{SECTION}.{text}"), None));
    }

    /// Checks the rates of the commands of one layer.
    fn section(&mut self, section: &str, commands: &CommandLimitSettings, connect: Option<&BucketBlock>) {
        let CommandLimitSettings { subscribe, unsubscribe, publish, history, presence, .. } = commands;
        let CommandLimitSettings { total, default, presence_stats, refresh, sub_refresh, rpc, .. } = commands;
        let blocks =
            [("total", Some(total)), ("default", Some(default)), ("refresh", Some(refresh)), ("connect", connect)];
        let mut switched_on = Vec::new();
        for (name, block) in blocks.into_iter().filter_map(|(name, block)| Some((name, block?))) {
            switched_on.extend(block.enabled.then_some(name));
            self.block(&format!("{section}.{name}"), block);
        }
        for (name, block) in [
            ("subscribe", subscribe),
            ("unsubscribe", unsubscribe),
            ("publish", publish),
            ("history", history),
            ("presence", presence),
            ("presence_stats", presence_stats),
            ("sub_refresh", sub_refresh),
        ] {
            let ChannelCommandBlock { enabled, buckets, namespace_overrides } = block;
            let path = format!("{section}.{name}");
            let has_overrides = namespace_overrides.0.iter().any(|item| item.enabled);
            switched_on.extend((*enabled || has_overrides).then_some(name));
            self.rates(&path, *enabled, buckets);
            self.overrides(&format!("{path}.namespace_overrides"), &namespace_overrides.0);
            for item in namespace_overrides.0.iter().filter(|item| !item.name.is_empty()) {
                if !self.namespaces.contains(item.name.as_str()) {
                    self.warn(&format!(
                        "{path}.namespace_overrides: no namespace in {NAMESPACES} has the name {:?}",
                        item.name
                    ));
                }
            }
        }
        let RpcBlock { enabled, buckets, method_overrides, method_override } = rpc;
        let has_overrides = method_overrides.0.iter().chain(&method_override.0).any(|item| item.enabled);
        switched_on.extend((*enabled || has_overrides).then_some("rpc"));
        self.switches(section, commands.enabled, &switched_on);
        self.rates(&format!("{section}.rpc"), *enabled, buckets);
        self.overrides(&format!("{section}.rpc.method_overrides"), &method_overrides.0);
        self.overrides(&format!("{section}.rpc.method_override"), &method_override.0);
        if !method_overrides.0.is_empty() && !method_override.0.is_empty() {
            self.error(&format!("{section}.rpc: has method_overrides and method_override, its older form: keep one"));
        }
    }

    /// Checks that the switch of a section agrees with the switches of its blocks.
    fn switches(&mut self, section: &str, is_on: bool, switched_on: &[&str]) {
        if is_on && switched_on.is_empty() {
            self.warn(&format!("{section}.enabled: has no effect without an enabled block"));
        }
        for block in switched_on.iter().filter(|_| !is_on) {
            self.warn(&format!("{section}.{block}.enabled: has no effect while {SECTION}.{section}.enabled is false"));
        }
    }

    fn block(&mut self, path: &str, block: &BucketBlock) {
        self.rates(path, block.enabled, &block.buckets);
    }

    fn rates(&mut self, path: &str, is_on: bool, buckets: &RateBuckets) {
        if is_on && buckets.0.is_empty() {
            self.warn(&format!("{path}.enabled: has no effect without buckets"));
        }
        self.buckets(path, buckets);
    }

    fn buckets(&mut self, path: &str, buckets: &RateBuckets) {
        if buckets.0.len() > BUCKETS_MAX {
            self.error(&format!("{path}.buckets: more than {BUCKETS_MAX}"));
        }
        for bucket in &buckets.0 {
            if !is_interval(bucket.interval) {
                self.error(&format!("{path}.buckets: an interval is not within 1ms to 24h"));
            }
            if !(1..=RATE_MAX).contains(&bucket.rate) {
                self.error(&format!("{path}.buckets: a rate is not within 1 to {RATE_MAX}"));
            }
        }
    }

    fn overrides(&mut self, path: &str, all: &[RateOverride]) {
        let mut names = HashSet::new();
        for item in all {
            if item.name.is_empty() {
                self.error(&format!("{path}: a name is empty"));
            } else if !names.insert(item.name.as_str()) {
                self.error(&format!("{path}: {:?} is listed twice", item.name));
            }
            if item.enabled && item.buckets.0.is_empty() {
                self.warn(&format!("{path}: {:?} has no buckets, so it replaces nothing", item.name));
            }
            self.buckets(path, &item.buckets);
        }
    }
}
