//! A process that waits for the end of the lab for any reason. Then it ends processes of the lab that still run and
//! removes files that are left. It is not in the lab's process group, so a signal from a terminal does not reach it.

use std::io::{BufRead as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use crate::stat::started_at;

/// The file of a PostgreSQL of the lab whose first line is the number of its process, below the directory of the run.
pub(crate) const POSTMASTER: &str = "postgres/postmaster.pid";
/// Between the end of processes and the removal of their files.
const END_TIME: Duration = Duration::from_millis(200);

/// The standard input of the guard; it ends with the lab. `None` = there is no guard yet.
static GUARD: Mutex<Option<ChildStdin>> = Mutex::new(None);

/// The orders to the guard, one JSON line each.
#[derive(Serialize, Deserialize)]
enum GuardOrder {
    /// End this process, if it is still the process that was started at that time.
    End { pid: u32, started: u64 },
    /// End the process whose number is the first line of this file.
    EndNamedBy(PathBuf),
    /// Remove this file, or this directory with all that it holds.
    Remove(PathBuf),
}

/// A process ends with the lab.
pub(crate) fn end_with_lab(pid: u32) {
    if let Some(started) = started_at(pid) {
        tell(&GuardOrder::End { pid, started });
    }
}

/// The process whose number is the first line of a file ends with the lab, and before the file is removed.
pub(crate) fn end_named_by(path: PathBuf) {
    tell(&GuardOrder::EndNamedBy(path));
}

/// A file or a directory goes with the lab.
pub(crate) fn remove_with_lab(path: &Path) {
    tell(&GuardOrder::Remove(path.to_owned()));
}

/// Sends an order to the guard. Without a guard the lab still measures, but its processes survive if it is killed.
fn tell(order: &GuardOrder) {
    let mut guard = GUARD.lock().unwrap_or_else(PoisonError::into_inner);
    if guard.is_none() {
        *guard = start().unwrap_or_default();
    }
    if let (Some(guard), Ok(mut line)) = (guard.as_mut(), serde_json::to_vec(order)) {
        line.push(b'\n');
        let _ = guard.write_all(&line);
    }
}

fn start() -> std::io::Result<Option<ChildStdin>> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("guard").process_group(0);
    let mut guard = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    Ok(guard.stdin.take())
}

/// The guard process: waits until the lab has ended, and then executes its orders, processes first.
///
/// # Errors
/// Never, but a part of the lab can fail.
pub(crate) fn run() -> Result<()> {
    let lines = std::io::stdin().lock().lines().map_while(Result::ok);
    let orders: Vec<GuardOrder> = lines.filter_map(|line| serde_json::from_str(&line).ok()).collect();
    for order in &orders {
        match order {
            GuardOrder::End { pid, started } if started_at(*pid) == Some(*started) => end(*pid),
            GuardOrder::EndNamedBy(path) => {
                let text = std::fs::read_to_string(path).unwrap_or_default();
                text.lines().next().and_then(|line| line.trim().parse().ok()).into_iter().for_each(end);
            }
            GuardOrder::End { .. } | GuardOrder::Remove(_) => {}
        }
    }
    // A process that has just ended may still write.
    std::thread::sleep(END_TIME);
    for order in &orders {
        if let GuardOrder::Remove(path) = order {
            let _ = std::fs::remove_file(path);
            let _ = std::fs::remove_dir_all(path);
        }
    }
    Ok(())
}

fn end(pid: u32) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, Signal::KILL);
    }
}
