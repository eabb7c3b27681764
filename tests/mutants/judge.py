"""Judges a run of cargo-mutants over the pure crates: fails for each surviving mutant that accepted.txt does not have with a reason.

`judge.py RUN [whole]`: RUN is cargo-mutants' directory `mutants.out`. `whole` means that the run tried all mutants, not a shard of them.
Then it fails too for each accepted mutant that does not survive or does not exist any more.
"""

import json
import sys
from collections import Counter, defaultdict
from pathlib import Path

MARK = "/* ~ changed by cargo-mutants ~ */"
ACCEPTED = Path(__file__).parent / "accepted.txt"


def read_accepted(text):
    """The reason of each accepted mutant, and the number of mutants with that name. A line at the margin is a reason; its mutants follow."""
    reasons, counts, reason = {}, Counter(), None
    for line in text.splitlines():
        if line.startswith("#") or not line.strip():
            continue
        if not line.startswith(" "):
            reason = line.strip()
        elif reason and reasons.setdefault(line.strip(), reason) == reason:
            counts[line.strip()] += 1
        else:
            raise ValueError(f"no reason, or two of them: {line.strip()}")
    return reasons, counts


def name_of(mutant, diff):
    """The name of a mutant in accepted.txt: its file, the mutation, and the first changed line after the mutation (before it, if the
    mutation deletes the line). The name has no line number, because other code may move. A changed line makes a new name, so it must be
    judged again. A mutant that replaces a whole function is named by the function."""
    where, mutation = mutant["name"].split(": ", 1)
    name = f"{where.split(':')[0]}: {mutation}"
    if mutant["genre"] == "FnValue":
        return name
    lines = diff.split("@@\n", 1)[1].splitlines()
    after = next(line[1:] for line in lines if line.startswith("+")).replace(MARK, "")
    before = next(line[1:] for line in lines if line.startswith("-"))
    return f"{name}: {' '.join((after if after.strip() else before).split())}"


def judge(results, accepted, whole):
    """The report of a run, the number of expected results, and the number of unexpected ones. Each result is (package, mutant's name, summary)."""
    reasons, counts = accepted
    summaries, missed = defaultdict(Counter), defaultdict(Counter)
    for package, name, summary in results:
        summaries[package][summary] += 1
        if summary == "MissedMutant":
            missed[package][name] += 1
    told, passed, failed = [], 0, 0
    for package, by in sorted(summaries.items()):
        known = sorted((missed[package] & counts).elements())
        unknown = sorted((missed[package] - counts).elements())
        told.append(
            f"{package}: {sum(by.values())} tried, {by['CaughtMutant']} caught, {by['Timeout']} without an end, {by['Unviable']} that don't compile, "
            f"{len(known)} missed and accepted, {len(unknown)} missed and unknown"
        )
        told += [f"  accepted: {name}\n            {reasons[name]}" for name in known]
        told += [f"  UNKNOWN: {name}" for name in unknown]
        passed += by["CaughtMutant"] + by["Timeout"] + len(known)
        failed += len(unknown)
    if whole:
        stale = sorted((counts - sum(missed.values(), Counter())).elements())
        told += [f"accepted, but it does not survive, or is no longer there: {name}" for name in stale]
        failed += len(stale)
    return told, passed, failed


def main(run, whole=""):
    """Reads a run, prints its report, and returns whether it failed."""
    report = json.loads((run / "outcomes.json").read_text(encoding="utf-8"))
    if not report["end_time"]:
        raise SystemExit(f"{run} did not come to its end")
    results = []
    for outcome in report["outcomes"]:
        if outcome["scenario"] != "Baseline":
            mutant = outcome["scenario"]["Mutant"]
            name = name_of(mutant, (run / outcome["diff_path"]).read_text(encoding="utf-8"))
            results.append((mutant["package"], name, outcome["summary"]))
    told, passed, failed = judge(results, read_accepted(ACCEPTED.read_text(encoding="utf-8")), whole == "whole")
    print("\n".join([*told, f"{passed} passed, {failed} failed"]))
    return failed > 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:]))
