//! Unsupported keys of Centrifugo that must not be ignored in some combinations. Ignoring them would allow more than
//! the configuration says, or let the nodes of one cluster serve separate channels.

use crate::finding::Finding;
use crate::load::interpret::left_out;
use crate::load::tree::{ConfigNode, ConfigValue};
use crate::settings::Settings;
use crate::unsupported::is_default_or_off;

/// Sections that say how several nodes share channels. A section with a switch (`true`) counts only if it is enabled.
const MEETING_PLACES: [(&str, bool); 5] =
    [("engine", false), ("broker", true), ("presence_manager", true), ("map_broker", true), ("controller", true)];
/// Lists of such sections for single namespaces.
const MEETING_LISTS: [&str; 3] = ["brokers", "presence_managers", "map_brokers"];

/// Refuses keys that would be unsafe to ignore with these settings.
pub(crate) fn check(written: &ConfigNode, settings: &Settings, findings: &mut Vec<Finding>) {
    if !settings.cluster.is_on() {
        split(written, findings);
    }
}

/// Refuses sections by which nodes would share channels: without a cluster each node would have its own.
fn split(written: &ConfigNode, findings: &mut Vec<Finding>) {
    for (section, has_switch) in MEETING_PLACES {
        let Some(node) = written.get(section) else { continue };
        let ConfigValue::Table(_) = node.value else {
            // Before Centrifugo 6 the engine was named by the key itself.
            if !is_default_or_off(node) {
                refuse(section, node, findings);
            }
            continue;
        };
        let is_off = has_switch && node.get("enabled").is_none_or(is_default_or_off);
        let kind = node.get("type");
        let is_memory = kind.map_or(
            !has_switch,
            |kind| matches!(&kind.value, ConfigValue::Text(kind) if kind == "memory" || kind.is_empty()),
        );
        if !is_off && !is_memory {
            refuse(section, kind.unwrap_or(node), findings);
        }
    }
    for list in MEETING_LISTS {
        if let Some(node) = written.get(list).filter(|node| !is_default_or_off(node)) {
            refuse(list, node, findings);
        }
    }
}

/// Refuses a section. The error replaces the warning that the section is not supported.
fn refuse(section: &str, node: &ConfigNode, findings: &mut Vec<Finding>) {
    let warning = left_out(section);
    let is_of = |finding: &Finding| {
        finding.text.strip_prefix(&warning).is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', ';']))
    };
    findings.retain(|finding| !is_of(finding));
    findings.push(Finding::error(format!("{section}: {APART}"), Some(&node.location)));
}

const APART: &str = "not supported, and without it each node would serve its own channels, separate from the others. \
    Nodes share channels through NATS: set cluster.engine = \"nats\" and cluster.nats_url. On a single node, remove it";
