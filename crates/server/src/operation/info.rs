//! `info`.

use std::collections::HashSet;

use touchline_protocol::Error;
use touchline_protocol::encode::Object;

use super::Json;
use crate::inbox::Inspection;
use crate::node::Node;

/// Errors: none but 100. Result: `nodes`, this one alone as long as it has no cluster.
pub(super) async fn info(node: &Node) -> Result<Json, Error> {
    let censuses = node.inspect(|reply| Inspection::Users { reply }).await;
    let channels: u64 = censuses.iter().map(|census| census.channels).sum();
    let users: HashSet<&str> = censuses.iter().flat_map(|census| &census.users).map(|user| &**user).collect();
    let subscriptions: u64 = node.shards.iter().map(|shard| shard.metrics.subscriptions.get()).sum();
    let mut out = b"{\"nodes\":[".to_vec();
    let mut object = Object::open(&mut out);
    object.text("uid", &node.id).text("name", &node.settings.node.name).text("version", crate::VERSION);
    for (name, value) in [
        ("num_clients", node.connections()),
        ("num_users", users.len() as u64),
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
