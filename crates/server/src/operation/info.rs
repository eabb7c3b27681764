//! `info`.

use touchline_protocol::Error;
use touchline_protocol::encode::Object;

use super::Json;
use crate::inbox::Inspection;
use crate::node::Node;

/// Errors: none but 100. Result: `nodes`, this one alone as long as it has no cluster.
pub(super) async fn info(node: &Node) -> Result<Json, Error> {
    let channels: u64 = node.inspect(|reply| Inspection::ActiveChannels { reply }).await.iter().sum();
    let subscriptions: u64 = node.shards.iter().map(|shard| shard.metrics.subscriptions.get()).sum();
    let mut out = b"{\"nodes\":[".to_vec();
    let mut object = Object::open(&mut out);
    object.text("uid", &node.id).text("name", &node.settings.node.name).text("version", crate::VERSION);
    for (name, value) in [
        ("num_clients", node.connections()),
        ("num_users", node.people.users()),
        ("num_subs", subscriptions),
        ("num_channels", channels),
        ("uptime", node.clock.elapsed_us() / 1_000_000),
    ] {
        touchline_protocol::encode::number(object.key(name), value);
    }
    object.close();
    out.extend_from_slice(b"]}");
    Ok(out)
}
