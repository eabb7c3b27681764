#!/usr/bin/env python3
"""Runs the tests: `./x test` calls it, and `./x help` lists its arguments.

It continues after a failure and repeats failed tests once, alone. At the end it lists the failed, the flaky and the skipped tests.
Logs stay in target/test-logs: one for each suite, one for each program, and one for each failed test in Rust.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor

from runner import needs, suites
from runner.jobs import LOGS, ROOT, Runner
from runner.suites import Plan

# Minutes after which a run ends, whatever it has left to do. TOUCHLINE_TEST_BUDGET sets another number; --long has no budget.
BUDGET = 45
# Seconds between two lines about the running programs.
HEARTBEAT = 60
# Lines of the log of a failure that are printed.
EXCERPT = 30
SLOWEST = 20
PRINTING = threading.Lock()


def say(text):
    """Prints lines in one piece."""
    with PRINTING:
        print(text, flush=True)


def minutes(seconds):
    """A duration as `3:07`."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


class Run:
    """One run: its plan, the programs that have ended, and those that have not run."""

    def __init__(self, plan, runner):
        self.plan = plan
        self.runner = runner
        self.began = time.monotonic()
        self.done = []
        self.flaky = []
        self.not_run = []
        self.walls = {}
        self.is_built = True
        self.audio = threading.Semaphore(suites.AUDIO_WIDTH)

    def phases(self, phases):
        """Runs phases one after another, and their lanes side by side."""
        for phase in phases:
            lanes = [threading.Thread(target=self.safely, args=("a lane", self.lane, lane)) for lane in phase]
            for lane in lanes:
                lane.start()
            for lane in lanes:
                lane.join()

    def safely(self, name, function, *arguments):
        """Calls a function. A fault of this program fails the run."""
        try:
            function(*arguments)
        except Exception as fault:  # noqa: BLE001
            traceback.print_exc()
            self.not_run.append(f"{name}: {type(fault).__name__}: {fault}")

    def lane(self, lane):
        """Runs the suites of a lane one after another."""
        for suite in lane:
            if suite in self.plan.chosen:
                self.safely(suite, self.suite, suite)

    def suite(self, suite):
        """Runs the programs of a suite, several at a time."""
        if not self.is_built and suite in suites.NEED_BUILD:
            self.not_run.append(f"{suite}: there is no build")
            return
        jobs = suites.jobs(suite, self.plan)
        if not jobs:
            if self.plan.is_whole and suite in suites.TESTED:
                self.not_run.append(f"{suite}: it has no program")
            return
        began = time.monotonic()
        say(f"-- {suite} begins: {len(jobs)} programs" if len(jobs) > 1 else f"-- {suite} begins")
        with ThreadPoolExecutor(suites.WIDTHS.get(suite, 1)) as workers:
            done = [one for one in workers.map(self.job, jobs) if one]
        self.walls[suite] = time.monotonic() - began
        if suite == "build":
            self.is_built = bool(done) and all(one.is_good() for one in done)
            self.plan.programs = tuple(program for one in done for program in one.parser.programs)
        passed, failed = counts(done)
        say(f"-- {suite} ends after {minutes(self.walls[suite])} min: {passed} passed, {failed} failed")

    def job(self, job):
        """Runs a program, and prints its failures at once. Returns None if nothing may run any more."""
        with self.audio if "walkie" in job.tags else contextlib.nullcontext():
            if self.runner.reason_to_stop():
                self.not_run.append(f"{job.title()}: {self.runner.stopped}")
                return None
            done = self.runner.run(job)
        self.done.append(done)
        for name in problems(done):
            say(f"FAILED {name}  {done.log.relative_to(ROOT)}")
        return done

    def repeat(self):
        """Runs each failed test once more, alone. Tests that pass then are flaky and do not fail the run."""
        for done in [done for done in self.done if not done.is_good() and not done.faults and done.job.again]:
            names = [outcome.name for outcome in done.parser.failures()]
            words = done.job.again(names)
            if words is None or self.runner.reason_to_stop():
                continue
            say(f"-- once more, alone: {done.job.title()}: {', '.join(names)}")
            job = done.job
            job.words = words
            again = self.runner.run(job, label=".again")
            flaky = forgiven(done, again)
            self.flaky += [f"{job.title()}: {name}" for name in flaky]
            for name in flaky:
                say(f"flaky: {job.title()}: {name}")
        (LOGS / "flaky.txt").write_text("".join(f"{line}\n" for line in self.flaky))

    def heartbeat(self):
        """Prints every minute which suites run, since when, and which test ended last."""
        with self.runner.lock:
            active = list(self.runner.active.values())
        words = []
        for job, reader, began in active:
            words.append(f"{job.title()} {time.monotonic() - began:.0f} s, last: {reader.parser.last or '-'}"[:120])
        if words:
            say(f"-- {minutes(time.monotonic() - self.began)} min: {' | '.join(words)}")

    def summary(self):
        """Prints the summary, with `N passed, N failed` as its last line. Returns whether the run is good."""
        lines = ["", "   min  processor s  passed  failed"]
        for suite in sorted(self.walls, key=self.walls.get):
            own = [done for done in self.done if done.job.suite == suite]
            passed, failed = counts(own)
            seconds = sum(done.processor_seconds for done in own)
            lines.append(f"{minutes(self.walls[suite]):>6} {seconds:12.0f} {passed:7} {failed:7}  {suite}")
        tests = [(outcome.seconds, f"{done.job.title()}: {outcome.name}") for done in self.done for outcome in done.parser.outcomes]
        slowest = sorted(tests, reverse=True)[:SLOWEST]
        lines += ["", "the slowest tests", *(f"{seconds:8.1f} s  {name}" for seconds, name in slowest)] if slowest else []
        for done in self.done:
            if not done.is_good():
                lines += ["", *(f"FAILED {name}" for name in problems(done)), f"  {done.log.relative_to(ROOT)}", *excerpt(done.log)]
        if self.not_run:
            lines += ["", "not run:", *(f"  {line}" for line in self.not_run)]
        if self.runner.stopped:
            lines += ["", f"the run was ended after {minutes(time.monotonic() - self.began)} min: {self.runner.stopped}"]
        passed, failed = counts(self.done)
        if self.flaky:
            lines += ["", *(f"flaky: {line}" for line in self.flaky), f"flaky: {len(self.flaky)} (target/test-logs/flaky.txt)"]
        # A run that did not run everything is not good, even if nothing that it ran has failed.
        if not passed and not failed:
            lines += ["", f"no test has {self.plan.name} in its name" if self.plan.name else "no test ran"]
        if not failed and (self.not_run or self.runner.stopped or not passed):
            failed = 1
        say("\n".join([*lines, "", f"{passed} passed, {failed} failed"]))
        return failed == 0


def problems(done):
    """The failures of a program, each with its name."""
    title = done.job.title()
    return [f"{title} {fault}" for fault in done.faults] + [f"{title}: {outcome.name}" for outcome in done.parser.failures()]


def counts(done):
    """The passed and the failed tests of programs. A program that was cut short counts as one failure more."""
    failed = sum(len(one.parser.failures()) + len(one.faults) for one in done)
    return sum(one.parser.passed() for one in done if one.parser.outcomes or not one.faults), failed


def forgiven(done, again):
    """Takes the repetition of failed tests into account: returns the flaky ones, which have passed in it. The others stay failed."""
    if again.faults:
        return []
    failed = {outcome.name for outcome in again.parser.failures()}
    passed = {outcome.name for outcome in again.parser.outcomes} - failed
    flaky = [outcome.name for outcome in done.parser.failures() if outcome.name in passed]
    done.parser.outcomes = [outcome for outcome in done.parser.outcomes if outcome.is_passed or outcome.name not in flaky]
    done.parser.outcomes += [outcome for outcome in again.parser.outcomes if outcome.name in flaky]
    # A test that had passed and fails alone is a failure too.
    known = {outcome.name for outcome in done.parser.failures()}
    done.parser.outcomes += [outcome for outcome in again.parser.failures() if outcome.name not in known]
    return flaky


def excerpt(log):
    """The lines of a log that tell most: around its failures, or its end."""
    lines = log.read_text(errors="replace").splitlines()
    signs = ("not ok ", "FAILED", " panicked at ", "... failed", "error")
    first = next((at for at, line in enumerate(lines) if any(sign in line for sign in signs)), None)
    begin = max(0, len(lines) - EXCERPT) if first is None else max(0, first - 1)
    return [f"    {line[:300]}" for line in lines[begin:begin + EXCERPT]]


def arguments(words):
    """The plan that the arguments of the command line ask for."""
    usage = "./x test [SUITE [NAME] | --quick | --changed [REV] | --full | --long] (see ./x help)"
    parser = argparse.ArgumentParser(prog="./x test", usage=usage)
    parser.add_argument("suite", nargs="?")
    parser.add_argument("name", nargs="?", default="")
    for word in ("quick", "full", "long"):
        parser.add_argument(f"--{word}", action="store_true")
    parser.add_argument("--changed", nargs="?", const="", metavar="REV")
    found = parser.parse_args(words)
    if found.suite and found.suite not in suites.NAMES:
        parser.error(f"there is no suite {found.suite}")
    if found.quick:
        return Plan({suite: None for suite in ("formatting", "house", "build", "rust")}, is_quick=True)
    is_full = found.full or found.long
    if found.suite:
        return Plan(suites.required({suite: None for suite in suites.NAMES[found.suite]}), name=found.name, is_full=is_full)
    if found.changed is not None:
        return Plan(None, revision=found.changed, is_full=is_full)
    return Plan({suite: None for suite in suites.ALL}, is_whole=True, is_full=is_full, is_long=found.long)


def choose(plan):
    """Completes the plan of --changed with the suites that the changes can affect."""
    paths = suites.changed_paths(plan.revision)
    words = ["cargo", "metadata", "--format-version", "1", "--locked", "--no-deps"]
    metadata = json.loads(subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout)
    plan.chosen = suites.required(suites.affected(paths, metadata))
    shown = (suite + (f" ({' '.join(sorted(names))})" if names else "") for suite, names in plan.chosen.items())
    say(f"-- {len(paths)} changed files affect: {', '.join(sorted(shown))}")


def environment(plan):
    """Sets the variables that the tests read."""
    defaults = {}
    os.environ["TOUCHLINE_BIN"] = str(ROOT / "target/debug/touchline")
    if os.environ.get("CI") == "true":
        # A fresh clone is compiled once, so incremental data is not written.
        defaults["CARGO_INCREMENTAL"] = "0"
    if plan.is_quick:
        os.environ.update(TOUCHLINE_SIM_SEEDS="300", TOUCHLINE_FUZZ_SECONDS="1", PROPTEST_CASES="32")
    if plan.is_full:
        os.environ["TOUCHLINE_FULL"] = "1"
    if plan.is_long:
        os.environ.update(TOUCHLINE_LONG="1", TOUCHLINE_ATTACKS_LONG="1")
        defaults.update(TOUCHLINE_CRASHES="200", TOUCHLINE_FUZZ_SECONDS="30")
    for name, value in defaults.items():
        os.environ.setdefault(name, value)


def commit():
    """The commit of this tree, or an empty text if something is not committed."""
    def git(*words):
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()

    return "" if not shutil.which("git") or git("status", "--porcelain") else git("rev-parse", "HEAD")


def clear_logs(plan):
    """Removes the logs of the last run. Only a whole run changes the note about the commit that has passed."""
    LOGS.mkdir(parents=True, exist_ok=True)
    for path in LOGS.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != "passed" or plan.is_whole:
            path.unlink()


def main(words):
    """Runs the tests that the arguments name, and returns the exit code."""
    os.chdir(ROOT)
    plan = arguments(words)
    if plan.chosen is None and shutil.which("cargo"):
        choose(plan)
    missing = needs.lacks(suites.users(plan) if plan.chosen else [], plan.is_long)
    if missing is None or not needs.install(missing):
        return 1
    environment(plan)
    clear_logs(plan)
    before = commit()
    # The servers under test must not have this variable: they name variables that are not keys.
    budget = float(os.environ.pop("TOUCHLINE_TEST_BUDGET", BUDGET)) * 60
    run = Run(plan, Runner(None if plan.is_long else time.monotonic() + budget))

    def stop(number, _frame):
        run.runner.stopped = run.runner.stopped or f"signal {signal.Signals(number).name}"

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, stop)

    def work():
        run.phases(suites.PHASES)
        run.repeat()
        if plan.is_long:
            plan.chosen.update({suite: None for phase in suites.LONG for lane in phase for suite in lane})
            run.phases(suites.LONG)

    worker = threading.Thread(target=run.safely, args=("the run", work))
    worker.start()
    beat = time.monotonic()
    while worker.is_alive():
        worker.join(0.5)
        if time.monotonic() - beat > HEARTBEAT:
            beat = time.monotonic()
            run.heartbeat()
    is_good = run.summary()
    if is_good and plan.is_whole and before and before == commit():
        (LOGS / "passed").write_text(f"{before}\n")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
