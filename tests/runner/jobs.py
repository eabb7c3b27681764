"""Runs one program of tests in a process group of its own: a log, a limit for each test, and no process left behind."""

import os
import pathlib
import re
import signal
import subprocess
import threading
import time
from dataclasses import dataclass, field

from .parsers import Step

ROOT = pathlib.Path(__file__).resolve().parents[2]
LOGS = ROOT / "target" / "test-logs"
# Seconds in which a test must end. A step such as the build is one test.
LIMIT = 300
# Seconds between SIGTERM and SIGKILL.
GRACE = 5
# All processes of a job have this variable, so that a process that has left the group is found too.
MARK = "RUN_OF_TESTS"


@dataclass
class Job:
    """A program to run. `again` makes the arguments that run only these failed tests, alone; without it nothing is repeated."""

    suite: str
    name: str
    words: list
    parser: type = Step
    cwd: pathlib.Path = ROOT
    env: dict = field(default_factory=dict)
    limit: float = LIMIT
    again: object = None
    tags: frozenset = frozenset()

    def title(self):
        """The name in reports: `e2e/splits`."""
        return self.suite if self.name == self.suite else f"{self.suite}/{self.name}"


@dataclass
class Done:
    """A job that has ended. `faults`: failures of the program itself, such as a crash. Such a job is not repeated."""

    job: Job
    parser: object
    log: pathlib.Path
    seconds: float
    processor_seconds: float
    faults: list

    def is_good(self):
        """Whether nothing has failed."""
        return not self.faults and not self.parser.failures()


def file_name(text):
    """A text as the name of a file."""
    return re.sub(r"[^\w.-]+", "-", text).strip("-")[:120] or "unnamed"


def marked(mark):
    """The processes of this user with this mark in their environment."""
    entry, found = f"{MARK}={mark}".encode(), []
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if entry in (path / "environ").read_bytes().split(b"\0") and int(path.name) != os.getpid():
                found.append(int(path.name))
        except OSError:
            pass
    return found


class Runner:
    """Starts jobs until something stops the run: the end of the budget, or a signal."""

    def __init__(self, deadline=None):
        self.deadline = deadline
        self.stopped = ""
        self.active = {}
        self.lock = threading.Lock()
        self.count = 0

    def reason_to_stop(self):
        """Why nothing may run any more, or an empty text."""
        if not self.stopped and self.deadline and time.monotonic() > self.deadline:
            self.stopped = "the budget has ended"
        return self.stopped

    def run(self, job, label=""):
        """Runs a job to its end. `label`: a part of the log's name for a repetition."""
        log = LOGS / job.suite / f"{file_name(job.name)}{label}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        parser, began = job.parser(), time.monotonic()
        with self.lock:
            self.count += 1
            mark = f"{os.getpid()}.{self.count}"
        with open(log, "wb") as output:
            try:
                process = subprocess.Popen([str(word) for word in job.words], cwd=job.cwd, stdin=subprocess.DEVNULL, stdout=output,
                                           stderr=subprocess.STDOUT, start_new_session=True, env={**os.environ, **job.env, MARK: mark})
            except OSError as error:
                return Done(job, parser, log, 0, 0, [f"did not start: {error}"])
        reader = Reader(log, parser)
        with self.lock:
            self.active[mark] = (job, reader, began)
        code, usage, killed = self.watch(process, job, reader)
        end_group(process.pid, mark)
        reader.read(is_last=True)
        with self.lock:
            del self.active[mark]
        faults = [killed] if killed else parser.faults(code)
        if faults and not killed and parser.running:
            faults[0] += f" while these ran: {', '.join(parser.running)}"
        done = Done(job, parser, log, time.monotonic() - began, usage.ru_utime + usage.ru_stime, faults)
        keep(done)
        return done

    def watch(self, process, job, reader):
        """Waits for the end of a process. Kills it if no test ends within the limit, or if the run stops."""
        killed, last = "", time.monotonic()
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                process.returncode = os.waitstatus_to_exitcode(status)
                return process.returncode, usage, killed
            if reader.read():
                last = time.monotonic()
            reason = self.reason_to_stop()
            if not killed and (reason or time.monotonic() - last > job.limit):
                running = f": {', '.join(reader.parser.running)}" if reader.parser.running else ""
                killed = f"was ended: {reason}{running}" if reason else f"was killed: no test ended within {job.limit:.0f} s{running}"
                signal_group(process.pid, signal.SIGTERM)
                last = time.monotonic()
            elif killed and time.monotonic() - last > GRACE:
                signal_group(process.pid, signal.SIGKILL)
            time.sleep(0.1)


class Reader:
    """Follows a log that a process writes."""

    def __init__(self, path, parser):
        self.file = open(path, "rb")  # noqa: SIM115
        self.parser = parser
        self.rest = b""

    def read(self, is_last=False):
        """Reads the new lines, and returns whether a test has ended."""
        before = len(self.parser.outcomes)
        *lines, self.rest = (self.rest + self.file.read()).split(b"\n")
        for line in lines + ([self.rest] if is_last else []):
            self.parser.line(clean(line))
        if is_last:
            self.file.close()
        elif self.rest:
            self.parser.partial(clean(self.rest))
        return len(self.parser.outcomes) > before


def clean(line):
    """A line without colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", line.decode(errors="replace")).rstrip("\r")


def signal_group(group, number):
    """Sends a signal to a process group, if it still exists."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        pass


def end_group(group, mark):
    """Kills the processes that a job has left behind, and waits for their end."""
    signal_group(group, signal.SIGKILL)
    until = time.monotonic() + GRACE
    while (left := marked(mark)) and time.monotonic() < until:
        for process in left:
            try:
                os.kill(process, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass
        time.sleep(0.01)


def keep(done):
    """Writes the readable log of a job, the output of each failed test in a file of its own, and the log of the suite."""
    lines = (done.parser.readable(clean(line)) for line in done.log.read_bytes().split(b"\n"))
    text = "\n".join(line for line in lines if line is not None)
    text += "".join(f"{done.job.title()} {fault}\n" for fault in done.faults)
    done.log.write_text(text)
    for outcome in done.parser.failures():
        if outcome.output:
            path = done.log.with_suffix("") / f"{file_name(outcome.name)}.log"
            path.parent.mkdir(exist_ok=True)
            path.write_text(outcome.output)
    with open(LOGS / f"{done.job.suite}.log", "a", encoding="utf-8") as log:
        log.write(f"== {done.log.relative_to(LOGS)}\n{text}\n")
