//! The resource usage of a process, as the kernel accounts it, and processes that the lab starts.

use std::fs;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::guard;
use crate::stat::stat_field;

/// Bytes of a page of memory.
const PAGE: u64 = 4_096;
/// Between two looks whether all processes run.
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// Time between two checks whether a process has ended after a signal.
const END_INTERVAL: Duration = Duration::from_millis(10);

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

/// The processes that should run, with their descriptions.
static RUNNING: Mutex<Vec<(u32, String)>> = Mutex::new(Vec::new());

/// Whether all processes run that the lab has started and not ended.
///
/// # Errors
/// Which one does not, and how it has ended.
pub(crate) fn ensure_all_run() -> Result<()> {
    let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    for (pid, what) in running.iter() {
        if stat_field(*pid, 3).is_some_and(|state| state != "Z") {
            continue;
        }
        let status = stat_field(*pid, 52).and_then(|text| text.parse::<i32>().ok()).unwrap_or_default();
        match status & 0x7f {
            0 => bail!("{what} (process {pid}) has ended with exit code {}", status >> 8),
            signal => bail!("{what} (process {pid}) was ended by signal {signal}"),
        }
    }
    Ok(())
}

/// Waits, as long as all processes run.
///
/// # Errors
/// See [`ensure_all_run`].
pub(crate) fn rest(time: Duration) -> Result<()> {
    let until = Instant::now() + time;
    loop {
        ensure_all_run()?;
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        std::thread::sleep(left.min(LOOK_INTERVAL));
    }
}

/// A process that the lab has started. It ends when this is dropped, and with the lab.
pub(crate) struct ChildProcess(pub(crate) Child);

impl ChildProcess {
    /// Starts a part of this program.
    ///
    /// # Errors
    /// When the system can't start a process.
    pub(crate) fn start(part: &str) -> Result<Self> {
        let program = std::env::current_exe().context("this program has no path")?;
        let child = Command::new(program).arg(part).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let child = child.with_context(|| format!("failed to start {part}"))?;
        Ok(ChildProcess::of(child, &format!("the part {part}")))
    }

    /// A started process. `what` describes it for messages.
    pub(crate) fn of(child: Child, what: &str) -> Self {
        guard::end_with_lab(child.id());
        RUNNING.lock().unwrap_or_else(PoisonError::into_inner).push((child.id(), what.to_owned()));
        ChildProcess(child)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Sends SIGTERM to the process. From now on its end is not a failure.
    ///
    /// # Errors
    /// When the system can't signal it.
    pub(crate) fn terminate(&self) -> Result<()> {
        self.forget();
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw).context("a process has a number")?;
        Ok(kill_process(pid, Signal::TERM)?)
    }

    /// Waits for the end of a process after SIGTERM.
    ///
    /// # Errors
    /// When it still runs after `patience`.
    pub(crate) fn wait_for_end(&mut self, patience: Duration) -> Result<ExitStatus> {
        let until = Instant::now() + patience;
        loop {
            if let Some(status) = self.0.try_wait()? {
                return Ok(status);
            }
            if Instant::now() > until {
                bail!("process {} was told to end, and still runs after {patience:?}", self.pid());
            }
            std::thread::sleep(END_INTERVAL);
        }
    }

    fn forget(&self) {
        RUNNING.lock().unwrap_or_else(PoisonError::into_inner).retain(|(pid, _)| *pid != self.pid());
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        self.forget();
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

/// Unix time, microseconds. It is the common clock of all processes of the lab.
pub(crate) fn now_us() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_micros() as u64
}
