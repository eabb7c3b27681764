"""The judge of mutants must fail if a test is missing, or if an accepted reason is out of date."""

import json

import judge
import pytest

FILE = "crates/engine/src/wheel.rs"
LINE = "if due >= now { return; }"
ACCEPTED = f"""# a comment

Equivalent: what is due now is looked at again.
  {FILE}: replace > with >= in Wheel::turn: {LINE}
"""


@pytest.fixture(name="run")
def a_run(tmp_path, monkeypatch):
    """Judges these survivors (line, mutation, changed code) and one caught mutant, written as cargo-mutants writes them."""

    def run(*survivors, accepted=ACCEPTED, whole="", ended="now"):
        outcomes = [{"scenario": "Baseline", "summary": "Success", "diff_path": None}]
        for number, (line, mutation, code) in enumerate([(7, "replace Wheel::len -> usize with 0", "self.len"), *survivors]):
            genre = "FnValue" if "->" in mutation else "BinaryOperator"
            mutant = {"name": f"{FILE}:{line}:9: {mutation}", "package": "touchline-engine", "file": FILE, "genre": genre}
            summary = "MissedMutant" if number else "CaughtMutant"
            outcomes.append({"scenario": {"Mutant": mutant}, "summary": summary, "diff_path": f"{number}.diff"})
            diff = f"--- {FILE}\n+++ {mutation}\n@@ -1,3 +1,3 @@\n fn around() {{\n-        old\n+        {code}\n }}\n"
            (tmp_path / f"{number}.diff").write_text(diff)
        (tmp_path / "outcomes.json").write_text(json.dumps({"outcomes": outcomes, "end_time": ended}))
        (tmp_path / "accepted.txt").write_text(accepted)
        monkeypatch.setattr(judge, "ACCEPTED", tmp_path / "accepted.txt")
        return judge.main(tmp_path, whole)

    return run


def test_a_survivor_with_a_reason_passes_wherever_its_line_has_moved(run, capsys):
    assert not run((99, "replace > with >= in Wheel::turn", LINE), whole="whole")
    told = capsys.readouterr().out
    assert "2 tried, 1 caught, 0 without an end, 0 that don't compile, 1 missed and accepted, 0 missed and unknown" in told
    assert "what is due now is looked at again" in told
    assert told.endswith("2 passed, 0 failed\n")


@pytest.mark.parametrize(
    "survivor",
    [
        (99, "replace > with < in Wheel::turn", LINE),
        (99, "replace > with >= in Wheel::turn", "if last >= now { return; }"),
        (7, "replace Wheel::turn with ()", LINE),
    ],
)
def test_a_survivor_that_nobody_accepted_fails_the_run(run, capsys, survivor):
    assert run(survivor)
    told = capsys.readouterr().out
    assert f"UNKNOWN: {FILE}: {survivor[1]}" in told
    assert told.endswith("1 passed, 1 failed\n")


def test_a_mutant_is_called_by_what_it_makes_of_its_line():
    def name(genre, mutation, old, new):
        mutant = {"name": f"{FILE}:7:9: {mutation}", "genre": genre}
        return judge.name_of(mutant, f"--- {FILE}\n+++ {mutation}\n@@ -1,3 +1,3 @@\n fn around() {{\n-    {old}\n+    {new}\n }}\n")

    other = "replace > with >= in turn"
    assert name("BinaryOperator", other, "a > b && c > d", f"a >= {judge.MARK} b && c > d") == f"{FILE}: {other}: a >= b && c > d"
    assert name("BinaryOperator", other, "a > b && c > d", f"a > b && c >= {judge.MARK} d") == f"{FILE}: {other}: a > b && c >= d"
    assert name("MatchArm", "delete match arm 4 in turn", "4 => {", judge.MARK) == f"{FILE}: delete match arm 4 in turn: 4 => {{"
    assert name("FnValue", "replace turn with ()", "old", f"() {judge.MARK}") == f"{FILE}: replace turn with ()"


def test_one_line_accepts_one_mutant(run, capsys):
    twice = [(99, "replace > with >= in Wheel::turn", LINE)] * 2
    assert run(*twice)
    assert capsys.readouterr().out.endswith("2 passed, 1 failed\n")
    assert not run(*twice, accepted=ACCEPTED + ACCEPTED, whole="whole")


def test_what_was_accepted_and_is_caught_or_gone_fails_a_whole_run_and_no_part_of_one(run, capsys):
    assert not run()
    assert run(whole="whole")
    told = capsys.readouterr().out
    assert "no longer there" in told
    assert told.endswith("1 passed, 1 failed\n")


def test_nothing_is_accepted_without_one_reason(run):
    with pytest.raises(ValueError):
        run(accepted=f"  {FILE}: replace Wheel::turn with ()\n")
    with pytest.raises(ValueError):
        run(accepted=ACCEPTED + ACCEPTED.replace("Equivalent", "Harmless"))


def test_a_run_that_was_cut_short_is_no_run(run):
    with pytest.raises(SystemExit):
        run(ended=None)
