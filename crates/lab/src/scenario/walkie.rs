//! A walkie-talkie: one client speaks, and a room listens. It measures the time from the speaker's send to each
//! listener's receipt, compared with the floor of the same sends.

use anyhow::{Result, bail};

use super::bare::{Floor, REST, timeout};
use crate::arguments::{Options, Walkie};
use crate::floor::{FloorCommand, FloorReport};
use crate::ledger::Times;
use crate::process::Meter;
use crate::report::{Figure, Results};
use crate::server_under_test::{ROOM, ServerUnderTest};
use crate::speaker::{FRAME_RATE, FRAME_SIZE, SPEECH, Speaker};
use crate::wire::Dialect;
use crate::worker::channel_name;
use crate::workers::{Delivered, Plan, Workers};

const SCENARIO: &str = "walkie-talkie";
const OPENED_AT_ONCE: usize = 200;

/// The measurements of a speaker and its listeners.
struct Speech {
    /// CPU of the sender, microseconds per delivered frame.
    us: f64,
    delivered: Delivered,
    /// The delays of the sent frames.
    delays: Times,
}

/// One run: the same frames to as many listeners, by the floor and by a server.
pub(super) fn walkie(walkie: &Walkie, options: &Options, results: &mut Results) -> Result<()> {
    if options.server.is_some() {
        bail!("only a server of the lab's own has the room: leave --server out");
    }
    let frames = walkie.seconds * FRAME_RATE;
    let options = Options { transport: SPEECH, ..options.clone() };
    let server = ServerUnderTest::start_talking(&options)?;
    let plan = server.plan(walkie.listeners, ROOM, 1, FRAME_SIZE, false);
    let floor = at_floor(&plan, frames)?;
    let mut workers = Workers::start(&plan)?;
    workers.open_all(OPENED_AT_ONCE)?;
    let speaker = Speaker::connect(server.address, &channel_name(ROOM, 0))?;
    let server = speak(speaker, &mut workers, server.pid, frames)?;
    report(&server, &floor, frames, results);
    Ok(())
}

fn at_floor(plan: &Plan, frames: u64) -> Result<Speech> {
    let mut floor = Floor::start()?;
    let plan = Plan { servers: vec![floor.address], dialect: Dialect::Plain, ..plan.clone() };
    let mut workers = Workers::start(&plan)?;
    floor.part.command(&FloorCommand::Relay { connections: plan.connections, transport: plan.transport })?;
    workers.open_all(OPENED_AT_ONCE)?;
    floor.wait("accept", |report| matches!(report, FloorReport::Accepted))?;
    let speaker = Speaker::connect_to_floor(floor.address, &channel_name(ROOM, 0))?;
    speak(speaker, &mut workers, floor.part.pid(), frames)
}

/// Lets the speaker send so many frames to subscribers that are open; `pid`: the process that writes to them.
fn speak(mut speaker: Speaker, workers: &mut Workers, pid: u32, frames: u64) -> Result<Speech> {
    std::thread::sleep(REST);
    workers.expect(frames as usize, timeout(frames as usize, FRAME_RATE as f64))?;
    let meter = Meter::start(pid)?;
    let delays = speaker.speak(frames)?;
    let delivered = workers.delivered()?;
    Ok(Speech { us: meter.stop()? / delivered.count.max(1) as f64, delivered, delays })
}

fn report(server: &Speech, floor: &Speech, frames: u64, results: &mut Results) {
    let figure = |name, unit| Figure::new(SCENARIO, name, unit);
    let p99 = |speech: &Speech| speech.delivered.times.quantile_ms(0.99);
    for (share, name, floor_name) in [
        (0.5, "the server's part of mouth to ear: p50", "floor: p50"),
        (0.9, "the server's part of mouth to ear: p90", "floor: p90"),
        (0.99, "the server's part of mouth to ear: p99", "floor: p99"),
        (0.999, "the server's part of mouth to ear: p99.9", "floor: p99.9"),
    ] {
        results.add(figure(name, "ms"), server.delivered.times.quantile_ms(share));
        results.add(figure(floor_name, "ms"), floor.delivered.times.quantile_ms(share));
    }
    results.add(figure("the server's part of mouth to ear: max", "ms"), server.delivered.times.max_ms());
    results.add(figure("floor: max", "ms"), floor.delivered.times.max_ms());
    results.add(figure("p99 / floor", "×"), p99(server) / p99(floor));
    results.add(figure("of it the speaker's own delay: p99", "ms"), server.delays.quantile_ms(0.99));
    results.add(figure("floor: of it the speaker's own delay: p99", "ms"), floor.delays.quantile_ms(0.99));
    results.add(figure("server CPU per delivered frame", "µs"), server.us);
    results.add(figure("floor: CPU per delivered frame", "µs"), floor.us);
    let wrongs = server.delivered.wrongs;
    results.add(figure("frames sent", ""), frames as f64);
    results.add(figure("frames received, by all listeners", ""), server.delivered.count as f64);
    results.add(figure("frames lost", ""), wrongs.lost as f64);
    results.add(figure("frames doubled or out of order", ""), wrongs.repeated as f64);
    let all = wrongs.total("server") + floor.delivered.wrongs.total("floor");
    results.add(Figure::exact(SCENARIO), all as f64);
}
