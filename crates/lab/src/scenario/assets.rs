//! The demo's pages and assets: the cost of a whole, a compressed and an already known file, compared with the shortest
//! answer of the same port.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use anyhow::{Context as _, Result, bail};

use crate::arguments::Options;
use crate::http_load::{HttpLoad, hammer, request};
use crate::process::Meter;
use crate::report::{Figure, Results};
use crate::server_under_test::ServerUnderTest;
use crate::web_arguments::AssetsOptions;
use crate::wire;

const SCENARIO: &str = "assets";
const GZIP: &str = "Accept-Encoding: gzip\r\n";
/// The requested asset, as the page names it. It is large enough to be compressed.
const ASSET: &str = "style.css";
const WARM_UP: u64 = 5_000;

/// One run, on one server.
pub(super) fn assets(assets: &AssetsOptions, options: &Options, results: &mut Results) -> Result<()> {
    if options.server.is_some() {
        bail!("only a server of the lab's own has the pages: leave --server out");
    }
    let server = ServerUnderTest::start_with_pages(options)?;
    let address = server.address;
    let page = answer(address, "/", "", "200")?;
    let path = asset_of(&page).context("the page names no asset with a hash")?;
    let compressed = answer(address, &path, GZIP, "200")?;
    let tag = header(&compressed, "etag").context("the asset has no tag")?;
    let known = format!("{GZIP}If-None-Match: {tag}\r\n");
    answer(address, &path, &known, "304")?;
    for (text, is_compressed) in
        [(&answer(address, "/", GZIP, "200")?, true), (&compressed, true), (&answer(address, &path, "", "200")?, false)]
    {
        if header(text, "content-encoding").is_some() != is_compressed {
            bail!("an answer is not as it should be: {}", text.lines().take(12).collect::<Vec<_>>().join("; "));
        }
    }
    let cost = |path: &str, more: &str| {
        let calls = (assets.requests / u64::from(assets.at_once)).max(1) as u32;
        let load = HttpLoad { address, request: request(address, path, None, more), calls };
        hammer(&HttpLoad { calls: 100, ..load.clone() }, assets.at_once as usize, WARM_UP)?;
        let meter = Meter::start(server.pid)?;
        let outcome = hammer(&load, assets.at_once as usize, assets.requests)?;
        let cpu_us = meter.stop()?;
        if outcome.errors > 0 {
            bail!("{} of the requests for {path} failed", outcome.errors);
        }
        Ok(cpu_us / outcome.replies as f64)
    };
    for (name, path, more) in [
        ("the page, compressed", "/", GZIP),
        ("an asset, compressed", &path, GZIP),
        ("an asset, whole", &path, ""),
        ("an asset that is known (304)", &path, &known),
    ] {
        let floor = cost("/livez", "")?;
        results.compare(Figure::new(SCENARIO, name, "× GET /livez"), "µs", &[(cost(path, more)?, floor)]);
    }
    Ok(())
}

/// The head and the body of an answer with this status, as text.
fn answer(address: SocketAddr, path: &str, more: &str, status: &str) -> Result<String> {
    let mut socket = TcpStream::connect(address)?;
    socket.write_all(&request(address, path, None, &format!("{more}Connection: close\r\n")))?;
    let mut bytes = Vec::new();
    socket.read_to_end(&mut bytes)?;
    if wire::find(&bytes, format!("HTTP/1.1 {status} ").as_bytes()) != Some(0) {
        bail!("{path} was refused: {}", String::from_utf8_lossy(&bytes));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn header(answer: &str, name: &str) -> Option<String> {
    let lines = answer.lines().take_while(|line| !line.is_empty());
    lines
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.eq_ignore_ascii_case(name))
        .map(|(_, value)| value.trim().to_owned())
}

/// The path by which a page names the asset.
fn asset_of(page: &str) -> Option<String> {
    let path = page.split('"').find(|text| text.starts_with('/') && text.ends_with(ASSET))?;
    (path.matches('/').count() == 3).then(|| path.to_owned())
}
