"""The parts of tests/run.py: it must notice each failure, forgive only a test that has passed alone, and leave no process behind."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import time

import pytest
import run
from runner import jobs, needs, parsers, suites


def read(parser, text):
    """Feeds a parser with a text."""
    for line in textwrap.dedent(text).strip("\n").split("\n"):
        parser.line(line)
    return parser


def names(parser):
    return [outcome.name for outcome in parser.failures()]


def event(kind, name, **more):
    return json.dumps({"type": "test", "event": kind, "name": name, **more}).replace("{", "{ ", 1)


LIBTEST_END = '{ "type": "suite", "event": "failed", "passed": 1, "failed": 1, "ignored": 0 }'


def test_libtest_reports_a_failure_with_its_output():
    events = [event("started", "a"), "output of a child" + event("ok", "a", exec_time=1.5), event("failed", "b", stdout="panicked")]
    parser = read(parsers.Libtest(), "\n".join([*events, LIBTEST_END]))
    assert (parser.passed(), names(parser), parser.faults(101)) == (1, ["b"], [])
    assert [outcome.seconds for outcome in parser.outcomes] == [1.5, 0.0]
    assert parser.failures()[0].output == "panicked"


def test_libtest_text_of_documented_examples_is_read():
    parser = read(parsers.Libtest(), "test a.rs - A (line 3) ... ok\ntest b.rs - B (line 4) ... FAILED\ntest result: FAILED. 1 passed")
    assert (parser.passed(), names(parser), parser.faults(101)) == (1, ["b.rs - B (line 4)"], [])


@pytest.mark.parametrize("code", [-6, -9, 134, 0, 101, 1])
def test_a_rust_program_that_crashes_or_is_killed_has_a_fault(code):
    parser = read(parsers.Libtest(), event("started", "a") + "\n" + event("failed", "b") + "\n" + event("started", "c"))
    assert parser.faults(code)
    assert list(parser.running) == ["a", "c"]


TAP = """
    TAP version 13
    # begins: group
    # begins: one
    # begins: two # three
    # Subtest: group
        # Subtest: one
        ok 1 - one
          ---
          duration_ms: 1500
          ...
        # Subtest: two \\# three
        not ok 2 - two \\# three
          ---
          duration_ms: 2
          failureType: 'testCodeFailure'
          error: |-
            not ok 9 - text of an error
          ...
        1..2
    not ok 1 - group
      ---
      type: 'suite'
      failureType: 'subtestsFailed'
      ...
    ok 2 - later # SKIP
    """


def test_tap_counts_tests_and_not_their_groups():
    parser = read(parsers.Tap(), TAP + "1..2\n    # tests 3\n    # pass 1\n    # fail 1\n    # cancelled 0")
    assert (parser.passed(), names(parser), parser.faults(1)) == (1, ["group > two # three"], [])
    assert parser.outcomes[0].seconds == 1.5


def test_tap_that_ends_early_has_a_fault():
    assert read(parsers.Tap(), TAP).faults(1) == ["ended before its summary"]
    assert not read(parsers.Tap(), TAP).running
    assert list(read(parsers.Tap(), "# begins: group\n# begins: one").running) == ["group", "one"]
    assert read(parsers.Tap(), TAP).faults(-9) == ["was ended by signal 9"]


def test_tests_that_a_failed_hook_cancels_have_failed():
    parser = read(parsers.Tap(), """
        # Subtest: group
            # Subtest: one
            not ok 1 - one
              ---
              failureType: 'cancelledByParent'
              ...
        not ok 1 - group
          ---
          type: 'suite'
          failureType: 'hookFailed'
          ...
        # tests 1
        # fail 0
        # cancelled 1
        """)
    assert (parser.passed(), names(parser), parser.faults(1)) == (0, ["group > one"], [])


def test_a_file_that_crashes_has_a_fault_and_an_empty_group_that_fails_is_a_failure():
    end = "\n# tests 1\n# fail 1\n# cancelled 0"
    crashed = read(parsers.Tap(), "not ok 1 - tests/e2e/a.test.mjs\n  ---\n  exitCode: 7\n  ..." + end)
    assert crashed.faults(1) == ["crashed: tests/e2e/a.test.mjs"]
    group = read(parsers.Tap(), "not ok 1 - group\n  ---\n  type: 'suite'\n  failureType: 'hookFailed'\n  ..." + end)
    assert (names(group), group.faults(1)) == (["group"], [])


def test_pytest_names_the_running_and_the_failed_tests_with_their_seconds():
    parser = parsers.Pytest()
    parser.partial("tests/a.py::test_one[x y] ")
    assert list(parser.running) == ["tests/a.py::test_one[x y]"]
    read(parser, """
        tests/a.py::test_one[x y] PASSED          [ 50%]
        tests/a.py::test_two FAILED               [100%]
        0.50s call     tests/a.py::test_one[x y]
        0.25s setup    tests/a.py::test_one[x y]
        ========= 1 failed, 1 passed in 2.00s =========
        """)
    assert (parser.passed(), names(parser), parser.faults(1)) == (1, ["tests/a.py::test_two"], [])
    assert parser.outcomes[0].seconds == 0.75
    assert parser.faults(2) == ["ended with code 2"]


def test_go_counts_results_and_a_panic_is_a_fault():
    text = "=== RUN   TestA\n--- PASS: TestA (0.50s)\n=== RUN   TestB\n    --- FAIL: TestB/sub (0.00s)\n--- FAIL: TestB (0.10s)\n"
    parser = read(parsers.Go(), text + "FAIL\ttouchline/go\t1.0s")
    assert (parser.passed(), names(parser), parser.faults(1)) == (1, ["TestB/sub", "TestB"], [])
    parser = read(parsers.Go(), "=== RUN   TestA\npanic: boom\nFAIL\ttouchline/go\t1.0s")
    assert parser.faults(2)[0] == "panic: boom in TestA"


def test_lines_count_tests_without_a_name():
    parser = read(parsers.Lines(), "ok README.md 12 blocks 3.4 s\nFAILED docs/a.md 2.1 s\n5 passed, 1 failed")
    assert (parser.passed(), names(parser), parser.faults(1)) == (5, ["docs/a.md"], [])
    assert read(parsers.Lines(), "ok a\n1 passed, 1 failed").faults(1)


def test_a_run_without_a_test_has_a_fault():
    assert read(parsers.Lines(), "0 passed, 0 failed").faults(0) == ["ran no test"]


def test_computing_comes_first_and_measuring_comes_alone():
    order = [suite for phase in suites.PHASES for lane in phase for suite in lane]
    expected = ["formatting", "house", "lints", "build", "rust", "e2e", "attacks", "lab"]
    assert sorted(expected, key=order.index) == expected
    assert suites.PHASES[-1] == (("attacks", "lab"),)
    assert set(order) <= set(suites.TABLE)


@pytest.mark.parametrize("text, version", [
    ("go version go1.24.4 linux/amd64", (1, 24, 4)), ("v20.14.0", (20, 14, 0)), ('openjdk version "17.0.15"', (17, 0, 15)), ("none", ()),
])
def test_a_version_is_read(text, version):
    assert needs.number(text) == version


METADATA = {"packages": [
    {"name": f"touchline-{name}", "source": None, "manifest_path": f"{jobs.ROOT}/crates/{name}/Cargo.toml",
     "dependencies": [{"name": f"touchline-{other}"} for other in others],
     "targets": [{"name": name} for name in "homes reference guide touchline touchline_config touchline_server it".split()]}
    for name, others in [("engine", ["protocol"]), ("protocol", []), ("server", ["engine"]), ("lab", [])]]}


@pytest.mark.parametrize("path, suite, programs", [
    ("crates/engine/src/wheel.rs", "rust", {"package:touchline-engine", "package:touchline-server"}),
    ("crates/engine/src/wheel.rs", "e2e", None),
    ("crates/lab/src/lib.rs", "lab", {"package:touchline-lab"}),
    ("crates/engine/tests/homes/main.rs", "rust", {"homes"}),
    ("tests/e2e/hooks.test.mjs", "e2e", {"hooks"}),
    ("tests/e2e/server.mjs", "browser", None),
    ("tests/go/client_test.go", "go", None),
    ("packaging/helm/package", "packages", None),
    ("packaging/alerts/touchline.rules.yaml", "e2e", {"monitoring"}),
    ("docs/guides/bans.md", "pages", None),
    ("docs/guides/bans.md", "server", {"it"}),
    ("examples/match/fan.js", "browser", None),
])
def test_a_change_runs_the_suites_that_it_can_affect(path, suite, programs):
    chosen = suites.affected([path], METADATA)
    assert chosen[suite] == programs
    assert suites.CHECKS <= set(chosen)


@pytest.mark.parametrize("path", [
    "Cargo.lock", "x", "tests/run.py", "tests/runner/jobs.py", "crates/cluster/tests/nats/mod.rs", "some/new/file",
])
def test_a_change_of_everything_or_of_something_unknown_runs_everything(path):
    assert set(suites.affected(["docs/a.md", path], METADATA)) == suites.ALL


def test_a_file_that_is_named_does_not_narrow_a_suite_that_is_affected_as_a_whole():
    for paths in (["tests/e2e/hooks.test.mjs", "tests/e2e/server.mjs"], ["tests/e2e/server.mjs", "tests/e2e/hooks.test.mjs"]):
        assert suites.affected(paths, METADATA)["e2e"] is None


@pytest.fixture(name="runner")
def a_runner(tmp_path, monkeypatch):
    """Runs programs whose logs are in a directory of the test."""
    monkeypatch.setattr(jobs, "LOGS", tmp_path)
    monkeypatch.setattr(jobs, "GRACE", 1)
    return jobs.Runner()


def shell(script, parser=parsers.Lines, limit=60):
    return jobs.Job("suite", "program", ["sh", "-c", script], parser, limit=limit)


def test_a_program_that_hangs_is_killed_with_its_children_and_its_test_is_named(runner):
    script = f"setsid sleep 4711 & echo '{event('started', 'a')}'; trap '' TERM; sleep 4712; sleep 4713"
    done = runner.run(shell(script, parsers.Libtest, limit=1))
    assert done.faults == ["was killed: no test ended within 1 s: a"]
    assert not jobs.marked(f"{os.getpid()}.1")


def test_the_output_of_a_failed_test_has_a_file_of_its_own(runner, tmp_path):
    done = runner.run(shell(f"echo '{event('failed', 'm::a', stdout='why')}'; echo '{LIBTEST_END}'; exit 101", parsers.Libtest))
    assert (done.faults, names(done.parser)) == ([], ["m::a"])
    assert (tmp_path / "suite/program/m-a.log").read_text() == "why"
    assert "test m::a ... failed" in (tmp_path / "suite.log").read_text()


@pytest.mark.parametrize("second, flaky, failed", [
    ("ok a; 1 passed, 0 failed", ["a"], []),
    ("not ok a; 0 passed, 1 failed", [], ["a"]),
    ("ok a", [], ["a"]),
    ("ok b; 1 passed, 0 failed", [], ["a"]),
    ("ok a; not ok b; 1 passed, 1 failed", ["a"], ["b"]),
])
def test_only_a_test_that_passes_alone_is_flaky(runner, second, flaky, failed):
    def lines(text):
        code = "1" if "not ok" in text else "0"
        return "".join(f"echo '{line.strip()}';" for line in text.split(";")) + f"exit {code}"

    done = runner.run(shell(lines("not ok a; ok b; 1 passed, 1 failed")))
    assert run.forgiven(done, runner.run(shell(lines(second)), ".again")) == flaky
    assert names(done.parser) == failed


def test_a_fault_of_the_program_itself_fails_the_run(monkeypatch, capsys):
    monkeypatch.setattr(suites, "PHASES", ((("go",), ("java",)),))
    monkeypatch.setitem(suites.TABLE, "go", lambda plan: [1 / 0])
    monkeypatch.setitem(suites.TABLE, "java", lambda plan: [])
    own = run.Run(suites.Plan({"go": None, "java": None}), jobs.Runner())
    own.phases(suites.PHASES)
    assert not own.summary()
    assert capsys.readouterr().out.endswith("go: ZeroDivisionError: division by zero\n\nno test ran\n\n0 passed, 1 failed\n")


def test_a_signal_ends_a_run_and_its_processes(tmp_path):
    """A run in a process of its own, with one suite that does not end."""
    script = textwrap.dedent(f"""
        import pathlib, sys
        sys.path.insert(0, {str(pathlib.Path(run.__file__).parent)!r})
        import run
        from runner import jobs, needs, suites
        run.LOGS = jobs.LOGS = pathlib.Path({str(tmp_path)!r})
        run.ROOT = jobs.ROOT = run.LOGS
        needs.lacks = lambda *_: []
        suites.PHASES = ((("go", "java"),),)
        suites.TABLE["go"] = lambda plan: [jobs.Job("go", "go", ["sh", "-c", "setsid sleep 4714 & sleep 4715; true"])]
        suites.required = lambda chosen: {{"go": None, "java": None}}
        sys.exit(run.main(["go"]))
        """)
    process = subprocess.Popen([sys.executable, "-B", "-c", script], stdout=subprocess.PIPE, text=True)
    for _ in range(600):
        if len(jobs.marked(f"{process.pid}.1")) == 3:
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "go was ended: signal SIGTERM" in output and "java: signal SIGTERM" in output
    assert output.endswith("\n0 passed, 1 failed\n")
    assert not jobs.marked(f"{process.pid}.1")
