"""The suites: their programs, their order, the number of programs at a time, and the suites that a change can affect."""

import os
import pathlib
import re
import subprocess
import sys
from dataclasses import dataclass

from . import needs
from .jobs import ROOT, Job
from .parsers import Build, Go, Libtest, Lines, Pytest, Step, Tap

# Phases follow each other. The lanes of a phase run side by side, and the suites of a lane one after another. Suites that compute come
# first, then those that mostly wait, then those that measure and have the machine for themselves.
PHASES = (
    (("formatting", "house", "lints", "build", "examples", "static", "rust"), ("prepare",)),
    (("e2e", "packages", "pages"), ("server",), ("python", "go", "java", "browser")),
    (("attacks", "lab"),),
)
# The suites that --long adds after the repetition of failed tests.
LONG = ((("upgrade", "costs", "mutants"),),)
# How many programs of a suite run at a time (default: one).
WIDTHS = {"rust": 2, "e2e": 4, "browser": 3}
# Of the programs with audio in real time, fewer run at a time.
AUDIO_WIDTH = 2
# Suites of the command line, and the suites they consist of.
NAMES = {name: (name,) for name in "rust e2e browser python go java packages pages attacks".split()}
NAMES["rust"] = ("rust", "server", "attacks", "lab")
CHECKS = {"formatting", "house", "lints"}
ALL = {suite for phase in PHASES for lane in phase for suite in lane}
TESTED = ALL - CHECKS - {"build", "static", "prepare"}
NEED_BUILD = ALL - CHECKS - {"build", "prepare"}

# Rust programs that start processes or servers, with the number of threads that their waiting allows (None: one for each processor).
SERVER = {"it": 4, "behaviour": 6, "durability": None, "touchline_server": None, "touchline_lab": None, "commands": None, "checks": None,
          "serve": None, "operators": None, "limits": None, "ephemeral": None, "configuration": None, "facts": None, "refusals": None}
MEASURE = ("attacks", "lab")
# Programs whose failed tests are repeated: processes, ports and timeouts decide about them.
REPEATED = set(SERVER) - {"touchline_server", "touchline_lab"} | {"lab"}
# Tests that are never repeated, in any program: another run has another seed, and a bound of memory is a bound.
NEVER = re.compile(r"propert|fuzz|simulat|model|memory|seed", re.IGNORECASE)
QUICK_BUT = {"durability", "it", "behaviour", "attacks", "lab", "commands", "operators", "serve", "simulation", "cluster"}
# Programs with a test that takes longer than the default, in seconds, and a factor for --long.
LIMITS = {"e2e/consumers": 600, "server/store.behaviour": 600, "browser/console_browser": 420}
LONG_FACTOR = 24
# The references begin first, since they take seconds; then the slowest, so that a suite does not end with one of them.
FIRST = ("reference", "touchline_registry", "simulation", "codec", "server.it", "store.behaviour")
SLOW = ("consumers", "splits", "pages", "hooks", "reactions", "durable_events", "console_browser", "browser")

# Paths (regular expressions), and the targets of a change: suites, Rust programs (`rust:NAME`), and files in JavaScript (`e2e:NAME`).
# `crate`: the crate and all that depend on it. The first line that matches counts; a path that no line matches affects everything.
SDKS = "examples e2e browser python go java attacks"
AREAS = [(re.compile(pattern), targets.split()) for pattern, targets in (
    (r"(Cargo\.(toml|lock)|x|tests/run(ner/.*|\.py)|rust-toolchain\.toml|\.cargo/.*|clippy\.toml)$", "everything"),
    (r"crates/(cli|config)/src/", f"crate {SDKS} packages pages"),
    (r"crates/(lab|testkit)/", "crate"),
    (r"crates/\w+/(src|Cargo\.toml|build\.rs|examples)", f"crate {SDKS}"),
    (r"crates/\w+/tests/(?P<program>\w+)", "rust:{program}"),
    (r"tests/attacks/", "attacks"),
    (r"tests/(house|cost)/", "rust:reference"),
    (r"tests/e2e/(?P<file>\w+)\.test\.mjs$", "e2e:{file} browser:{file}"),
    (r"tests/e2e/", "e2e browser"),
    (r"tests/(?P<suite>python|go|java)/", "{suite}"),
    (r"tests/(mutants|upgrade)/|tests/run_test\.py$", "python"),
    (r"tests/docs/", "pages"),
    (r"tests/packaging/|packaging/(?!grafana|alerts)", "packages"),
    (r"packaging/", "e2e:monitoring rust:reference"),
    (r"console/", "browser e2e:docs rust:touchline_server rust:it"),
    (r"examples/(?P<name>match|walkie)/", "browser e2e:examples"),
    (r"(docs|examples|proto)/|README", "e2e python go java pages rust:reference rust:guide rust:touchline rust:touchline_config rust:it"),
    (r"[A-Z]+\.md$|LICENSE|\.gitignore|rustfmt\.toml", "rust:reference rust:touchline"),
)]


@dataclass
class Plan:
    """The tests to run. `chosen`: the suites, each with the names of its programs or None for all. `name`: a part of the names of tests."""

    chosen: dict
    name: str = ""
    revision: str = ""
    is_whole: bool = False
    is_quick: bool = False
    is_full: bool = False
    is_long: bool = False
    programs: tuple = ()

    def limit(self, title, default=300):
        """Seconds for a test of a program."""
        return LIMITS.get(title, default) * (LONG_FACTOR if self.is_long else 1)


def changed_paths(revision):
    """The paths that differ from a revision (default: where this branch left main), with changes that are not committed."""
    def git(*words):
        done = subprocess.run(["git", *words], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else None

    if not revision:
        head = git("rev-parse", "HEAD")
        bases = (git("merge-base", "HEAD", branch) for branch in ("origin/main", "main"))
        revision = next((base for base in bases if base and base != head), "HEAD~1")
    paths = git("diff", "--name-only", "--no-renames", revision)
    if paths is None:
        sys.exit(f"there is no commit {revision}")
    return sorted({*paths.split("\n"), *(git("ls-files", "--others", "--exclude-standard") or "").split("\n")} - {""})


def dependants(metadata, directory):
    """The packages that depend on the package in this directory, directly or not, and the package itself."""
    packages = [package for package in metadata["packages"] if package["source"] is None]
    found = {package["name"] for package in packages if pathlib.Path(package["manifest_path"]).parent == directory}
    while True:
        more = {package["name"] for package in packages if found & {other["name"] for other in package["dependencies"]}}
        if more <= found:
            return found
        found |= more


def affected(paths, metadata):
    """The suites that changes of these paths affect, as Plan.chosen has them. `metadata` is the output of `cargo metadata`."""
    chosen = {suite: None for suite in CHECKS}
    programs = {target["name"] for package in metadata["packages"] for target in package["targets"]}
    for path in paths:
        matches = ((pattern.match(path), targets) for pattern, targets in AREAS)
        found = next((row for row in matches if row[0]), None)
        if not found or found[1] == ["everything"]:
            return {suite: None for suite in ALL}
        for target in (target.format(**found[0].groupdict()) for target in found[1]):
            if target == "crate":
                packages = dependants(metadata, ROOT / "/".join(path.split("/")[:2]))
                names = {f"package:{package}" for package in packages}
                suites = ("rust", "server", *MEASURE)
            else:
                suite, _, name = target.partition(":")
                names = {name} if name else None
                if suite == "rust" and name not in programs:
                    # A file that several programs use.
                    return {suite: None for suite in ALL}
                suites = (home(name),) if suite == "rust" else (suite,)
            for suite in suites:
                old = chosen.get(suite, set())
                chosen[suite] = None if names is None or old is None else old | names
    return chosen


def home(program):
    """The suite of a Rust program."""
    return program if program in MEASURE else "server" if program in SERVER else "rust"


def required(chosen):
    """These suites and those that must run before them."""
    chosen = dict(chosen)
    if NEED_BUILD & set(chosen):
        chosen.update({"build": None, "prepare": None})
    if "packages" in chosen:
        chosen["static"] = None
    return chosen


def jobs(suite, plan):
    """The programs of a suite, without those that the plan leaves out."""
    found = TABLE[suite](plan)
    names = plan.chosen.get(suite)
    return [job for job in found if names is None or names & {*job.tags, job.name}]


def cargo(suite, name, words, parser=Step, limit=2400):
    """A job of cargo."""
    return Job(suite, name, ["cargo", *words], parser, limit=limit)


CLIPPY = "clippy --workspace --features touchline/otel --all-targets --locked -- -D warnings".split()
TESTS = "test --locked --workspace --features touchline/otel".split()


HOUSE = ("tests/e2e/house.test.mjs", "console/test/house.test.mjs", "examples/match/test/style.test.mjs")


def house(plan):
    """The rules that read texts only."""
    rules = [cargo("house", "rules", [*TESTS, "--test", "house"], Libtest)]
    return rules + [node("house", ROOT / path, plan) for path in HOUSE if not plan.is_quick]


def lints(plan):
    """Clippy; in a full run also the links of the code's pages, and the binary without gRPC and traces."""
    found = [cargo("lints", "clippy", CLIPPY)]
    if plan.is_full:
        links = cargo("lints", "links", "doc --workspace --no-deps --document-private-items --locked --quiet".split())
        links.env = {"RUSTDOCFLAGS": "-D rustdoc::broken_intra_doc_links"}
        found += [links, cargo("lints", "without-features", "check --locked --quiet -p touchline --no-default-features".split())]
    return found


def rust(suite, plan):
    """The Rust programs of a suite. They run without cargo, which holds a lock."""
    found = []
    # A name is that of programs, or else of tests in all programs.
    has_name = plan.name and "rust" in plan.chosen and any(plan.name in name for name, _, _ in plan.programs)
    for name, manifest, file in sorted(plan.programs):
        directory = pathlib.Path(manifest).parent
        own = home(name)
        is_left_out = name == "house" and "house" in plan.chosen or plan.is_quick and name in QUICK_BUT
        is_named = not has_name or plan.name in name
        if not is_named or is_left_out or (own != suite and not (plan.is_quick and own == "server")):
            continue
        threads = [f"--test-threads={SERVER[name]}"] if SERVER.get(name) else []
        words = [file, "-Z", "unstable-options", "--format=json", "--report-time", *threads]
        filters = [plan.name] if plan.name and not has_name else []
        title = f"{directory.name}.{name}"
        package = package_name(directory)
        job = Job(suite, title, [*words, *filters], Libtest, directory, {"RUSTC_BOOTSTRAP": "1"}, plan.limit(f"{suite}/{title}"))
        job.tags = frozenset({name, f"package:{package}"})
        if name in REPEATED:
            alone = [*words[:5], "--test-threads=1", "--exact"]
            job.again = lambda names, alone=alone: [*alone, *repeatable(names)] if repeatable(names) else None
        found.append(job)
    return in_order(found, FIRST)


def in_order(found, names):
    """The jobs with these names first."""
    return sorted(found, key=lambda job: next((at for at, name in enumerate(names) if job.name.endswith(name)), len(names)))


def repeatable(names):
    """The tests that may be repeated."""
    return [name for name in names if not NEVER.search(name)]


def package_name(directory):
    """The name of the package in a directory."""
    return re.search(r'^name = "(.+)"', (directory / "Cargo.toml").read_text(), re.MULTILINE).group(1)


def node(suite, path, plan):
    """One file of tests in JavaScript. A failed test may leave something behind that would keep its process running."""
    words = ["node", "--test", "--test-force-exit", "--test-concurrency=1"]
    for reporter in ("tap", "./tests/runner/begins.mjs"):
        words += [f"--test-reporter={reporter}", "--test-reporter-destination=stdout"]
    words.append(path.relative_to(ROOT))
    stem = path.name[:-len(".test.mjs")]
    directory = path.parent.parent.name
    name = stem if directory == "tests" else f"{directory}.{stem}"
    again = None if suite == "house" else lambda names: words
    return Job(suite, name, words, Tap, limit=plan.limit(f"{suite}/{name}"), again=again, tags=frozenset({stem, directory}))


def javascript(suite, plan):
    """The files of a suite in JavaScript, the slowest first."""
    e2e = sorted((ROOT / "tests/e2e").glob("*.test.mjs"))
    if suite == "e2e":
        files = [path for path in e2e if "browser" not in path.name]
    else:
        others = [*(ROOT / "console/test").glob("*.test.mjs"), *(ROOT / "examples").glob("*/test/*.test.mjs")]
        files = [path for path in e2e if "browser" in path.name]
        files += sorted(others)
    names = {path: str(path.relative_to(ROOT)) for path in files}
    found = [node(suite, path, plan) for path, name in names.items() if plan.name in name and name not in HOUSE]
    return in_order(found, SLOW)


def pytest(suite, name, paths, plan, sudo=()):
    """A run of pytest. It prints the stack of a test shortly before its limit."""
    words = [*sudo, ROOT / "target/venv/bin/python", "-B", "-m", "pytest", "-vv", "--durations=0", "--rootdir=.", "-p", "no:cacheprovider"]
    words += ["-o", f"faulthandler_timeout={plan.limit(suite) - 10}"]
    filters = ["-k", plan.name] if plan.name else []
    return Job(suite, name, [*words, *paths, *filters], Pytest, limit=plan.limit(suite), again=lambda names: [*words, *names])


def root(*variables):
    """The beginning of a command that must run as root."""
    return () if os.geteuid() == 0 else ("sudo", f"--preserve-env={','.join(variables)}", "env", f"PATH={os.environ['PATH']}")


def python(plan):
    """The Python SDK; and, apart from it, the judges of mutants and upgrades and the parts of this program."""
    own = [pytest("python", "own", ["tests/run_test.py", "tests/mutants", "tests/upgrade"], plan)] if not plan.name else []
    for job in own:
        job.again = None
    return [*own, pytest("python", "python", ["tests/python"], plan)]


def packages(plan):
    """Packages are installed as root, in a layer over this machine's files that is removed with the tests. The image needs a static binary,
    which only a full run makes: it is tested if TOUCHLINE_PACKAGES names the output of ./x package."""
    env = {"TOUCHLINE_PACKAGES": str(ROOT / "target/package")} if plan.is_full else {}
    has_image = {**os.environ, **env}.get("TOUCHLINE_PACKAGES")
    paths = ["tests/packaging", *([] if has_image else ["--ignore", "tests/packaging/test_image.py"])]
    run = pytest("packages", "packages", paths, plan, root("TOUCHLINE_BIN", "TOUCHLINE_PACKAGES"))
    run.env = env
    return [run]


def pages(plan):
    """The blocks of pages run as root, each page in a layer over this machine's files and a network of its own."""
    words = [*root("TOUCHLINE_BIN"), "python3", "-B", "tests/docs/run.py"]
    paths = [path for folder in ("start", "concepts", "guides") for path in sorted(ROOT.glob(f"docs/{folder}/*.md"))]
    files = ["README.md", *(str(path.relative_to(ROOT)) for path in paths)]
    chosen = [file for file in files if plan.name in file] if plan.name else []
    if plan.name and not chosen:
        return []
    limit = plan.limit("pages", 600)
    return [Job("pages", "pages", [*words, *chosen], Lines, limit=limit, again=lambda names: [*words, "--jobs", "1", *names])]


def go(plan):
    """The Go SDK."""
    words = ["go", "test", "-count=1", "-v"]

    def again(names):
        return [*words, "-run", f"^({'|'.join(sorted({re.escape(name.split('/')[0]) for name in names}))})$", "./..."]

    return [Job("go", "go", [*words, *(["-run", plan.name] if plan.name else []), "./..."], Go, ROOT / "tests/go", again=again)]


def java(_plan):
    """The Java SDK."""
    words = ["java", "-cp", "target/java/*", "tests/java/SdkTest.java"]
    return [Job("java", "java", words, Lines, again=lambda names: words)]


TABLE = {
    "formatting": lambda plan: [cargo("formatting", "formatting", ["fmt", "--all", "--check"])],
    "house": house,
    "lints": lints,
    "build": lambda plan: [cargo("build", "build", [*TESTS, "--no-run", "--message-format=json-render-diagnostics"], Build)],
    "examples": lambda plan: [cargo("examples", "examples", [*TESTS, "--doc"], Libtest)] if not plan.name and not plan.is_quick else [],
    "static": lambda plan: [Job("static", "static", ["./x", "package", "binaries", "deb", "image"], limit=3600)] if plan.is_full else [],
    "prepare": lambda plan: needs.preparations(users(plan)),
    **{suite: lambda plan, suite=suite: rust(suite, plan) for suite in ("rust", "server", *MEASURE)},
    **{suite: lambda plan, suite=suite: javascript(suite, plan) for suite in ("e2e", "browser")},
    "python": python, "go": go, "java": java, "packages": packages, "pages": pages,
    "upgrade": lambda plan: [Job("upgrade", "upgrade", ["./x", "upgrade"], limit=7200)],
    "costs": lambda plan: [Job("costs", "costs", ["./x", "cost"], limit=7200)],
    "mutants": lambda plan: [Job("mutants", "mutants", ["./x", "mutants", *shard()], limit=48 * 3600)],
}


def shard():
    """The part of all mutants that TOUCHLINE_MUTANTS names."""
    return ["--shard", os.environ["TOUCHLINE_MUTANTS"]] if os.environ.get("TOUCHLINE_MUTANTS") else []


def users(plan):
    """The suites as the table of needs has them."""
    if plan.is_quick:
        return ["quick"]
    found = {"rust" if suite in ("server", "lab") else suite for suite in plan.chosen}
    return sorted(found | ({"full"} if plan.is_full else set()))
