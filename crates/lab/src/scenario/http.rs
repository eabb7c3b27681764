//! Web servers: httperf's sweep and the closed loop of `ab`, on Touchline's HTTP server and on other servers.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::arguments::Options;
use crate::chart::Chart;
use crate::http_load::{HttpLoad, HttpOutcome, hammer, request, sweep};
use crate::process::Meter;
use crate::report::{Figure, Results};
use crate::rival::Rival;
use crate::web_arguments::{HttpOptions, NamedProgram};

const PATH: &str = "/?value=benchmarks";
/// A server that answers a smaller share of the requests is saturated.
const KEPT_UP: f64 = 0.95;
/// A load generator that uses more of its processor than this share may be the bottleneck itself.
const BUSY: f64 = 0.9;
/// Connections before the measurement, so that the server's code is loaded and, where needed, compiled.
const WARM_UP: u64 = 5_000;
const REST: Duration = Duration::from_millis(300);

/// A server and the requests to it.
struct AskedServer<'a> {
    name: &'a str,
    program: &'a NamedProgram,
    path: &'a str,
    /// The key and the body of a `POST`.
    post: Option<(&'a str, &'a str)>,
}

/// CPU time of a request at a rate or in a closed loop, microseconds, by the name of the measurement.
type Costs = BTreeMap<String, f64>;

/// One run: all servers, one after the other, each a fresh process.
pub(super) fn http(http: &HttpOptions, options: &Options, results: &mut Results) -> Result<()> {
    for (index, rival) in http.rivals.iter().enumerate() {
        let is_taken = http.rivals[..index].iter().any(|other| other.name == rival.name);
        if is_taken || rival.name.starts_with("touchline") {
            bail!("--rival {}=…: the name is taken", rival.name);
        }
        rival.find()?;
    }
    let own = NamedProgram { name: "touchline".to_owned(), words: vec![http.echo.display().to_string()] };
    let mut servers = vec![
        AskedServer { name: "touchline", program: &own, path: PATH, post: None },
        AskedServer { name: "touchline, GET /livez", program: &own, path: "/livez", post: None },
        AskedServer { name: "touchline, POST /api/info", program: &own, path: "/api/info", post: Some(("lab", "{}")) },
    ];
    servers.extend(http.rivals.iter().map(|rival| AskedServer {
        name: &rival.name,
        program: rival,
        path: PATH,
        post: None,
    }));
    let mut all = Vec::new();
    for asked in &servers {
        if !options.quiet {
            eprintln!("  {}", asked.name);
        }
        all.push((asked.name, measure(asked, http, results)?));
    }
    let Some(((_, own), others)) = all.split_first() else { return Ok(()) };
    for (name, costs) in others.iter().filter(|(name, _)| !name.starts_with("touchline")) {
        for (what, theirs) in costs {
            let Some(ours) = own.get(what) else { continue };
            let figure =
                Figure::new("http: CPU of a request, touchline / others", leaked(format!("{what} / {name}")), "×");
            results.compare(figure, "µs", &[(*ours, *theirs)]);
        }
    }
    Ok(())
}

/// Writes the chart of all runs.
///
/// # Errors
/// When the file can't be written.
pub(super) fn draw(http: &HttpOptions, results: &Results) -> Result<()> {
    let Some(file) = &http.chart else { return Ok(()) };
    let (x, y) = ("requests offered a second", "answers a second");
    let chart = Chart { title: "Answers by offered load", x, y, lines: results.lines() };
    std::fs::write(file, chart.svg()).with_context(|| format!("failed to write {}", file.display()))
}

fn measure(asked: &AskedServer<'_>, http: &HttpOptions, results: &mut Results) -> Result<Costs> {
    let mut server = Rival::start(&asked.program.words)?;
    let address = server.address()?;
    let load = |calls, more: &str| HttpLoad { address, request: request(address, asked.path, asked.post, more), calls };
    let warm = hammer(&load(http.calls, ""), http.at_once as usize, WARM_UP)?;
    if warm.errors > 0 {
        bail!("{} fails {} of {WARM_UP} requests for {}", asked.name, warm.errors, asked.path);
    }
    let scenario = leaked(format!("http: {}", asked.name));
    let mut costs = Costs::new();
    let mut best = 0.0f64;
    for rate in &http.rates {
        std::thread::sleep(REST);
        let connections = http.connections.max(*rate as usize * 2);
        let meter = Meter::start(server.pid())?;
        let outcome = sweep(&load(http.calls, ""), connections, f64::from(*rate))?;
        let cpu_us = meter.stop()? / outcome.replies.max(1) as f64;
        let offered = f64::from(rate * http.calls);
        let step = format!("{offered} offered a second");
        results.point(asked.name, rate * http.calls, outcome.replies_per_s());
        tell(scenario, &step, &outcome, cpu_us, results);
        let has_kept_up = outcome.errors == 0 && outcome.replies_per_s() >= KEPT_UP * offered;
        if outcome.errors == 0 {
            best = best.max(outcome.replies_per_s());
        }
        if !has_kept_up {
            break;
        }
        costs.insert(step, cpu_us);
    }
    results.add(Figure::new(scenario, "most answers a second of the sweep", "/s"), best);
    for (what, calls, more) in [
        ("closed loop, keep-alive", (http.requests / u64::from(http.at_once)).max(1) as u32, ""),
        ("closed loop, a connection each", 1, "Connection: close\r\n"),
    ] {
        std::thread::sleep(REST);
        let meter = Meter::start(server.pid())?;
        let outcome = hammer(&load(calls, more), http.at_once as usize, http.requests)?;
        if outcome.errors > 0 {
            bail!("{} fails {} of {} requests of the {what}", asked.name, outcome.errors, http.requests);
        }
        let cpu_us = meter.stop()? / outcome.replies.max(1) as f64;
        tell(scenario, what, &outcome, cpu_us, results);
        costs.insert(what.to_owned(), cpu_us);
    }
    Ok(costs)
}

fn tell(scenario: &'static str, step: &str, outcome: &HttpOutcome, cpu_us: f64, results: &mut Results) {
    let mut add = |what: &str, unit, value| {
        results.add(Figure::new(scenario, leaked(format!("{step}: {what}")), unit), value);
    };
    add("answers", "/s", outcome.replies_per_s());
    add("CPU of a request", "µs", cpu_us);
    add("half of them within", "ms", outcome.times.quantile_ms(0.5));
    add("99 % of them within", "ms", outcome.times.quantile_ms(0.99));
    if outcome.errors > 0 {
        add("failed", "", outcome.errors as f64);
    }
    if outcome.busy > BUSY {
        add("the load itself took of its processor", "×", outcome.busy);
    }
}

/// Figures have names that live as long as the program. There are some hundred.
fn leaked(text: String) -> &'static str {
    Box::leak(text.into_boxed_str())
}
