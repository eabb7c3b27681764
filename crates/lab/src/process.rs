//! What a process has used, as the kernel accounts it.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};

/// Bytes of a page of memory.
const PAGE: u64 = 4_096;

/// Microseconds that all threads of a process have been on a processor.
///
/// # Errors
/// When there is no such process.
pub(crate) fn cpu_us(pid: u32) -> Result<f64> {
    let mut total_ns = 0u64;
    for thread in fs::read_dir(format!("/proc/{pid}/task")).with_context(|| format!("no process {pid}"))? {
        // A thread may end while its files are read.
        let Ok(text) = fs::read_to_string(thread?.path().join("schedstat")) else { continue };
        total_ns += text.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(total_ns as f64 / 1e3)
}

/// Bytes of a process in memory.
///
/// # Errors
/// When there is no such process.
pub(crate) fn resident_bytes(pid: u32) -> Result<f64> {
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).with_context(|| format!("no process {pid}"))?;
    let pages: u64 = text.split(' ').nth(1).and_then(|pages| pages.parse().ok()).context("statm is not as it was")?;
    Ok((pages * PAGE) as f64)
}

/// A process that the lab has started. It ends when this is dropped.
pub(crate) struct ChildProcess(pub(crate) Child);

impl ChildProcess {
    /// Starts a part of this program.
    ///
    /// # Errors
    /// When the system can't start a process.
    pub(crate) fn start(words: &[&str]) -> Result<Self> {
        let program = std::env::current_exe().context("this program has no path")?;
        let child = Command::new(program).args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        Ok(ChildProcess(child.with_context(|| format!("failed to start {words:?}"))?))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// CPU of a process over some work, microseconds.
pub(crate) struct Meter {
    pid: u32,
    before_us: f64,
}

impl Meter {
    pub(crate) fn start(pid: u32) -> Result<Self> {
        Ok(Meter { pid, before_us: cpu_us(pid)? })
    }

    pub(crate) fn stop(self) -> Result<f64> {
        Ok(cpu_us(self.pid)? - self.before_us)
    }
}

/// Unix time, microseconds: the one clock that all processes of the lab share.
pub(crate) fn now_us() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_micros() as u64
}
