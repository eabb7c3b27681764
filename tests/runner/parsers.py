"""Reads the output of test runners line by line: which tests run, which have ended, how, and after how many seconds."""

import json
import re
from dataclasses import dataclass


@dataclass
class Outcome:
    """The end of one test. `output`: the captured output of a failed test, if the runner reports it apart."""

    name: str
    is_passed: bool
    seconds: float = 0.0
    output: str = ""


class Parser:
    """The common part of all parsers. `is_complete`: the runner has printed its summary, so it was not cut short."""

    # Exit codes of a runner that ran to its end.
    codes = (0, 1)
    # Whether a run without a test is good.
    may_be_empty = False

    def __init__(self):
        self.outcomes = []
        self.running = {}
        # The test that has ended last, or the last line of a step.
        self.last = ""
        self.is_complete = False
        # Passed tests that the runner counts without printing their names.
        self.more_passed = 0
        self.reported_failures = 0

    def line(self, line):
        """Reads one line without its end."""
        raise NotImplementedError

    def partial(self, text):
        """Reads the beginning of a line that has no end yet."""

    def end(self, name, is_passed, seconds=0.0, output=""):
        """Notes the end of a test."""
        self.running.pop(name, None)
        self.last = name
        self.outcomes.append(Outcome(name, is_passed, seconds, output))

    def readable(self, line):
        """The line as the log has it, or None if the log leaves it out."""
        return line

    def failures(self):
        """The failed tests, each once."""
        return list({outcome.name: outcome for outcome in self.outcomes if not outcome.is_passed}.values())

    def passed(self):
        """The number of passed tests."""
        failed = {outcome.name for outcome in self.failures()}
        return self.more_passed + sum(outcome.is_passed and outcome.name not in failed for outcome in self.outcomes)

    def faults(self, code):
        """Reasons besides failed tests why a run with this exit code is not good. None of them may be forgiven."""
        if code < 0 or code > 128:
            return [f"was ended by signal {-code if code < 0 else code - 128}"]
        faults = []
        if code not in self.codes:
            faults.append(f"ended with code {code}")
        elif not self.is_complete:
            faults.append("ended before its summary")
        elif code != 0 and not self.failures():
            faults.append(f"ended with code {code} without a failed test")
        if self.reported_failures > len(self.failures()):
            faults.append(f"reports {self.reported_failures} failures, of which {len(self.failures())} have names")
        if not self.outcomes and not faults and not self.may_be_empty:
            faults.append("ran no test")
        return faults


class Step(Parser):
    """A command without tests: it fails if its exit code is not 0."""

    def line(self, line):
        self.last = line.strip() or self.last

    def faults(self, code):
        return [f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"] if code else []


class Build(Step):
    """`cargo test --no-run --message-format=json-render-diagnostics`. `programs`: name, manifest and file of each test program."""

    def __init__(self):
        super().__init__()
        self.programs = []

    def line(self, line):
        if not line.startswith("{"):
            super().line(line)
            return
        message = json.loads(line)
        if message.get("executable") and message["profile"]["test"]:
            self.programs.append((message["target"]["name"], message["manifest_path"], message["executable"]))

    def readable(self, line):
        return None if line.startswith("{") else line


class Libtest(Parser):
    """Rust: lines of JSON (`--format json`), and the text of `cargo test --doc`."""

    codes = (0, 101)
    # A crate may have no unit tests, and a name of tests selects them in some programs only.
    may_be_empty = True
    TEXT = re.compile(r"test (.+?)(?: - should panic)? \.\.\. (ok|FAILED|ignored)")
    JSON = re.compile(r'\{ ?"type": ?"(?:test|suite)".*\}$')

    def line(self, line):
        event, text = self.json(line), self.TEXT.match(line)
        if event:
            self.event(event)
            return
        if text and text.group(2) != "ignored":
            self.end(text.group(1), text.group(2) == "ok")
        elif line.startswith("test result: "):
            self.is_complete = True

    def json(self, line):
        """The event at the end of a line, or None. A child of a test may have printed the beginning of the line."""
        found = self.JSON.search(line)
        try:
            return json.loads(found.group()) if found else None
        except ValueError:
            return None

    def event(self, event):
        """Reads an event of JSON."""
        kind, name = event["event"], event.get("name", "")
        if event["type"] == "suite":
            self.is_complete = kind in ("ok", "failed")
        elif kind == "started":
            self.running[name] = True
        elif kind in ("ok", "failed"):
            self.end(name, kind == "ok", event.get("exec_time", 0.0), event.get("stdout", "") + event.get("message", ""))
        elif kind == "ignored":
            self.running.pop(name, None)

    def readable(self, line):
        event = self.json(line)
        if not event:
            return line
        if event["type"] == "suite" and event["event"] != "started":
            return f"test result: {event['event']}. {event['passed']} passed; {event['failed']} failed; {event['ignored']} ignored"
        if event["event"] in ("ok", "failed"):
            output = f"\n{event['stdout']}" if event["event"] == "failed" and event.get("stdout") else ""
            return f"test {event['name']} ... {event['event']} {event.get('exec_time', 0.0):.3f} s{output}"
        return None


class Tap(Parser):
    """Node: TAP with nested tests, and the lines of begins.mjs. A cancelled test has failed. A suite counts only if it fails without a
    failed test in it."""

    RESULT = re.compile(r"( *)(not ok|ok) \d+ - (.*?)(?: # (SKIP|TODO).*)?$")
    BEGIN = re.compile(r"( *)# Subtest: (.*)$")

    def __init__(self):
        super().__init__()
        # Names of the tests around the next line, by depth; the result whose details follow; the indentation of these.
        self.names = []
        self.open = None
        self.details = None

    @staticmethod
    def plain(name):
        """A name without the escapes of TAP."""
        return re.sub(r"\\(.)", r"\1", name).strip()

    def line(self, line):
        if line.startswith("# begins: "):
            self.running[line[10:].strip()] = True
            return
        if self.details is not None:
            self.detail(line)
            return
        begin, result = self.BEGIN.match(line), self.RESULT.match(line)
        if begin:
            self.flush()
            del self.names[len(begin.group(1)) // 4:]
            self.names.append(self.plain(begin.group(2)))
        elif result:
            self.flush()
            depth = len(result.group(1)) // 4
            path = [*self.names[:depth], self.plain(result.group(3))]
            self.running.pop(path[-1], None)
            self.open = {"name": " > ".join(path), "ok": result.group(2) == "ok", "mark": result.group(4)}
        elif self.open and line.strip() == "---":
            self.details = line[:-3]
        elif line.startswith("# tests "):
            self.flush()
            self.is_complete = True
        elif re.match(r"# (fail|cancelled) \d+$", line):
            self.reported_failures += int(line.split()[-1])

    def detail(self, line):
        """Reads a line of the details of a result."""
        if line == f"{self.details}...":
            self.details = None
            self.flush()
            return
        word, _, value = line[len(self.details):].partition(": ")
        if line.startswith(self.details) and word in ("duration_ms", "type", "failureType"):
            self.open.setdefault(word, value.strip("'"))

    def flush(self):
        """Notes the result whose details are complete."""
        result, self.open = self.open, None
        if not result:
            return
        prefix = f"{result['name']} > "
        is_known = any(outcome.name.startswith(prefix) for outcome in self.failures())
        if result.get("type") == "suite" and (result["ok"] or is_known):
            return
        if result["mark"] == "SKIP" or result["mark"] == "TODO":
            return
        self.end(result["name"], result["ok"], float(result.get("duration_ms", 0)) / 1000)

    def faults(self, code):
        crashed = [outcome.name for outcome in self.failures() if outcome.name.endswith(".mjs")]
        return super().faults(code) + [f"crashed: {name}" for name in crashed]


class Pytest(Parser):
    """pytest with `-v --durations=0 -vv`: the name of a test is printed before it runs."""

    RESULT = re.compile(r"(\S+\.py::.+?) (PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)(?:\s|$)")
    SECONDS = re.compile(r"([\d.]+)s (?:call|setup|teardown) +(.+)$")
    SUMMARY = re.compile(r"=+ .*(passed|failed|error|skipped|no tests ran).* in [\d.]+s")

    def line(self, line):
        result, seconds = self.RESULT.match(line), self.SECONDS.match(line)
        if result:
            self.running = {}
            if result.group(2) not in ("SKIPPED", "XFAIL"):
                self.end(result.group(1), result.group(2) in ("PASSED", "XPASS"))
        elif seconds:
            for outcome in self.outcomes:
                if outcome.name == seconds.group(2):
                    outcome.seconds += float(seconds.group(1))
        elif self.SUMMARY.match(line):
            self.is_complete = True

    def partial(self, text):
        if ".py::" in text and not self.RESULT.match(text):
            self.running = {text.strip(): True}


class Go(Parser):
    """`go test -v`. A panic ends the program, and no test of it may be forgiven."""

    RESULT = re.compile(r" *--- (PASS|FAIL|SKIP): (\S+) \(([\d.]+)s\)")

    def __init__(self):
        super().__init__()
        self.panic = ""

    def line(self, line):
        result = self.RESULT.match(line)
        if line.startswith("=== RUN "):
            self.running[line.split()[-1]] = True
        elif result and result.group(1) != "SKIP":
            self.end(result.group(2), result.group(1) == "PASS", float(result.group(3)))
        elif result:
            self.running.pop(result.group(2), None)
        elif re.match(r"(ok|FAIL)\s+\S+\s", line):
            self.is_complete = True
        elif line.startswith("panic: ") or line.startswith("fatal error: "):
            self.panic = line

    def faults(self, code):
        faults = super().faults(code)
        running = f" in {', '.join(self.running)}" if self.running else ""
        return [f"{self.panic}{running}", *faults] if self.panic else faults


class Lines(Parser):
    """Programs that print `ok NAME` or `not ok NAME` (or `FAILED NAME`), and `N passed, N failed` at the end."""

    RESULT = re.compile(r"(ok|not ok|FAILED):? (.+?)(?: \d+ blocks)?(?: ([\d.]+) s)?$")

    def line(self, line):
        result, counts = self.RESULT.match(line), re.match(r"(\d+) passed, (\d+) failed$", line)
        if counts:
            self.is_complete = True
            self.more_passed = max(0, int(counts.group(1)) - sum(outcome.is_passed for outcome in self.outcomes))
            self.reported_failures = int(counts.group(2))
        elif result:
            self.end(result.group(2), result.group(1) == "ok", float(result.group(3) or 0))
