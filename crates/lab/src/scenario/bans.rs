//! The cost of bans for clients that are not banned: the CPU time of a connect, compared with a server without bans.

use std::io::{Read as _, Write as _};
use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::{Value, json};

use crate::arguments::{BansOptions, Options};
use crate::process::{Meter, resident_bytes};
use crate::publisher::{PublishClient, answer};
use crate::report::{Figure, Results};
use crate::server_under_test::{PLAIN, ServerUnderTest};
use crate::workers::{Plan, Workers};

const SCENARIO: &str = "connect beside bans";
const SIZE: usize = 128;
/// Bans in one request.
const BATCH: usize = 10_000;
/// The time in which a server closes the connections that the clients have closed.
const REST: Duration = Duration::from_secs(2);

/// Opens connections whose tokens have `jti` and `iat`, in turns on a server without bans and on one with many.
pub(super) fn bans(bans: &BansOptions, options: &Options, results: &mut Results) -> Result<()> {
    if options.server.is_some() {
        bail!("two fresh servers are compared: leave --server out");
    }
    let servers = [ServerUnderTest::start(options)?, ServerUnderTest::start(options)?];
    let mut workers = Vec::new();
    for server in &servers {
        let plan = server.plan(bans.connections, PLAIN, 1, SIZE, true);
        workers.push(Workers::start(&Plan { has_token_ids: true, ..plan })?);
    }
    let empty = resident_bytes(servers[1].pid)?;
    ban(&servers[1].api, "block_user", "user", "blocked", bans.users)?;
    ban(&servers[1].api, "revoke_token", "uid", "revoked", bans.tokens)?;
    let each = (resident_bytes(servers[1].pid)? - empty) / (bans.users + bans.tokens).max(1) as f64;
    let (mut us, mut wrongs) = ([0.0; 2], 0);
    for round in 0..=bans.rounds {
        for (number, (server, workers)) in servers.iter().zip(&mut workers).enumerate() {
            let meter = Meter::start(server.pid)?;
            workers.open_all(200)?;
            let spent = meter.stop()?;
            // The first round warms the memory of both.
            if round > 0 {
                us[number] += spent / (bans.connections * bans.rounds) as f64;
            }
            wrongs += workers.close()?.total("server");
            std::thread::sleep(REST);
        }
    }
    results.add(Figure::new(SCENARIO, "server CPU per connection without bans", "µs"), us[0]);
    results.add(Figure::new(SCENARIO, "server CPU per connection with bans", "µs"), us[1]);
    results.add(Figure::new(SCENARIO, "with bans / without", "×").bound(1.03, 1.01), us[1] / us[0]);
    results.add(Figure::new(SCENARIO, "RSS per ban", "B"), each);
    results.add(Figure::exact(SCENARIO), wrongs as f64);
    Ok(())
}

/// Creates `count` bans of one kind.
fn ban(api: &PublishClient, operation: &str, field: &str, prefix: &str, count: usize) -> Result<()> {
    let mut socket = api.connect()?;
    let (mut begun, mut received) = (0, vec![0; 1 << 20]);
    while begun < count {
        let end = count.min(begun + BATCH);
        let commands = (begun..end).map(|number| json!({ operation: { field: format!("{prefix}-{number}") } }));
        let body = json!({ "commands": commands.collect::<Vec<Value>>() }).to_string();
        socket.write_all(&api.call("batch", &body))?;
        let mut length = 0;
        while answer(&received[..length])?.is_none() {
            match socket.read(&mut received[length..])? {
                0 => bail!("the server closed the connection, or its answer is too long"),
                more => length += more,
            }
        }
        begun = end;
    }
    Ok(())
}
