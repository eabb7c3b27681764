#!/usr/bin/env python3
"""Runs the blocks of README.md, docs/start, docs/concepts and docs/guides as they stand, each page in a sandbox of its own.

The environment variable TOUCHLINE_BIN names the program (default: target/debug/touchline). Must run as root.
"""

import argparse
import os
import pathlib
import shutil
import sys
import threading
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

import page
from blocks import Failure, Run
from sandbox import ROOT, Sandbox

# What the pages need beside a plain Debian. `./x test docs` prepares the files.
COMMANDS = "curl jq openssl node go nginx nats-server psql promtool runuser nsenter dpkg-deb strip".split()
FILES = ["target/bin/grpcurl", "target/bin/nats", "target/bin/helm", "target/venv/bin/flask", "tests/docs/node_modules"]
# The folders whose pages run.
FOLDERS = ["docs/start", "docs/concepts", "docs/guides"]
PRINTING = threading.Lock()
# A comment of a page whose blocks need systemd.
SYSTEMD = "<!-- sandbox: systemd -->"


def missing(program: pathlib.Path) -> "list[str]":
    """What the pages need and this machine lacks."""
    path = f"{os.environ['PATH']}:/usr/sbin:/sbin"
    modules = os.environ.get("E2E_MODULES", str(ROOT / "tests/e2e/node_modules"))
    files = [str(program), modules, *(str(ROOT / file) for file in FILES)]
    lacking = [command for command in COMMANDS if not shutil.which(command, path=path)] + [file for file in files if not os.path.exists(file)]
    return lacking if os.geteuid() == 0 else ["root", *lacking]


def pages(names: "list[str]") -> "list[pathlib.Path]":
    """The pages that are named, or all."""
    if names:
        return [pathlib.Path(name).resolve() for name in names]
    return [ROOT / "README.md", *(path for folder in FOLDERS for path in sorted((ROOT / folder).glob("*.md")))]


def run_page(path: pathlib.Path, program: pathlib.Path) -> bool:
    """Runs a page, prints what came of it, and returns whether the page is good."""
    name, text, began = str(path.relative_to(ROOT)), path.read_text(), time.monotonic()
    try:
        steps = page.steps(text, name, ROOT)
    except page.PageError as error:
        return report(name, began, f"{error}")
    steps = [step for step in steps if step.action]
    blocks = sum(step.action != "setup" for step in steps)
    if not blocks:
        return report(name, began, "", 0)
    with Sandbox(program, systemd=SYSTEMD in text) as sandbox:
        run = Run(sandbox)
        try:
            for step in steps:
                run.do(step)
        except Failure as failure:
            return report(name, began, f"{step}\n{failure}\n{step.text}-- printed:\n{run.report()}")
        finally:
            run.stop()
    return report(name, began, "", blocks)


def report(name: str, began: float, failure: str, blocks: int = 0) -> bool:
    """Prints the line of a page, and what has failed."""
    seconds = time.monotonic() - began
    with PRINTING:
        if failure:
            print(f"FAILED {name} {seconds:.1f} s", *(f"    {line}" for line in failure.split("\n")), sep="\n", flush=True)
        else:
            print(f"ok {name} {blocks} blocks {seconds:.1f} s", flush=True)
    return not failure


def guarded(path: pathlib.Path, program: pathlib.Path) -> bool:
    """A fault of the test is a failure of the page."""
    try:
        return run_page(path, program)
    except Exception as fault:  # noqa: BLE001
        return report(path.name, time.monotonic(), f"{type(fault).__name__}: {fault}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", nargs="*", metavar="PAGE", help="pages to run (default: all)")
    parser.add_argument("--jobs", type=int, default=2, help="how many pages run side by side")
    parser.add_argument("--parse", action="store_true", help="only read the pages, and check their hints")
    arguments = parser.parse_args()
    tests = unittest.defaultTestLoader.discover(str(pathlib.Path(__file__).parent))
    result = unittest.TextTestRunner(stream=sys.stderr, verbosity=0).run(tests)
    passed, failed = result.testsRun - len(result.failures) - len(result.errors), len(result.failures) + len(result.errors)
    chosen = pages(arguments.pages)
    if arguments.parse:
        outcomes = [parses(path) for path in chosen]
    else:
        program = pathlib.Path(os.environ.get("TOUCHLINE_BIN", ROOT / "target/debug/touchline")).resolve()
        lacking = missing(program)
        if lacking:
            print(f"the test of pages needs: {', '.join(lacking)}", file=sys.stderr)
            return 2
        with ThreadPoolExecutor(arguments.jobs) as workers:
            outcomes = list(workers.map(lambda path: guarded(path, program), chosen))
    passed, failed = passed + outcomes.count(True), failed + outcomes.count(False)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


def parses(path: pathlib.Path) -> bool:
    """Reads a page only."""
    name = str(path.relative_to(ROOT))
    try:
        steps = page.steps(path.read_text(), name, ROOT)
    except page.PageError as error:
        return report(name, time.monotonic(), str(error))
    return report(name, time.monotonic(), "", sum(step.action not in ("", "setup") for step in steps))


if __name__ == "__main__":
    sys.exit(main())
