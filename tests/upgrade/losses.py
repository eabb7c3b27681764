"""Judges an upgrade of three nodes and the downgrade: fails if something was lost, doubled or cut off. It prints times, and does not judge them.

`losses.py FILE`: FILE is what `touchline-lab deploy --from PROGRAM --json` has printed.
"""

import json
import sys

# One restart for the upgrade of each node, and one for its downgrade.
RESTARTS = 6


def judge(figures):
    """The lines of a table, and the figures that must be zero and are not."""
    lines, broken, scenario = [], [], ""
    for figure in figures:
        if figure["scenario"] != scenario:
            scenario = figure["scenario"]
            lines.append(f"\n{scenario}")
        lines.append(f"  {figure['name']:<66} {figure['median']:>12.3f} {figure['unit']}")
        if figure["must"] == 0 and any(figure["values"]):
            broken.append(f"{scenario}: {figure['name']}: {figure['values']}")
    restarts = len({figure["scenario"] for figure in figures})
    if restarts != RESTARTS:
        broken.append(f"{restarts} of {RESTARTS} restarts were measured")
    return lines, broken


def main(path):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    lines, broken = judge(json.loads(text) if text.strip() else [])
    print("\n".join([*lines, "", *broken]))
    print("0 passed, 1 failed" if broken else "1 passed, 0 failed")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
