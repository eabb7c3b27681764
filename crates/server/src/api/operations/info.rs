//! `info`.

use touchline_protocol::Error;
use touchline_protocol::encode::ObjectWriter;

use super::Json;
use crate::node::Node;
use crate::runtime::mailbox::Inspection;
use crate::runtime::process;

/// Errors: only 100. Result: `nodes`; without a cluster this node alone. `process.cpu` is percent of one
/// processor since the node started, `process.rss` bytes; `metrics.items` are counts since the start,
/// `metrics.interval` the seconds of that.
pub(super) async fn info(node: &Node) -> Result<Json, Error> {
    let channels: u64 = node.inspect(|reply| Inspection::ActiveChannels { reply }).await.iter().sum();
    let subscriptions: u64 = node.shards.iter().map(|shard| shard.metrics.subscriptions.get()).sum();
    let up_s = node.clock.elapsed_us() as f64 / 1e6;
    let mut out = b"{\"nodes\":[".to_vec();
    let mut object = ObjectWriter::open(&mut out);
    object
        .text("uid", &node.id)
        .text("name", &node.settings.node.name)
        .text("version", crate::runtime::process::VERSION);
    for (name, value) in [
        ("num_clients", node.connections()),
        ("num_users", node.users.users()),
        ("num_subs", subscriptions),
        ("num_channels", channels),
        ("uptime", up_s as u64),
    ] {
        touchline_protocol::encode::number(object.key(name), value);
    }
    let metrics = object.key("metrics");
    metrics.extend_from_slice(format!("{{\"interval\":{up_s:.3},\"items\":").as_bytes());
    let mut items = ObjectWriter::open(metrics);
    for (name, value) in node.collector().values() {
        touchline_protocol::encode::number(items.key(name), value);
    }
    items.close();
    metrics.push(b'}');
    let percent = 100.0 * process::processor_s() / up_s.max(0.001);
    let process = format!("{{\"cpu\":{percent:.2},\"rss\":{}}}", process::resident());
    object.key("process").extend_from_slice(process.as_bytes());
    object.close();
    out.extend_from_slice(b"]}");
    Ok(out)
}
