"""The programs that the tests need besides Rust: lists the missing ones before it installs or compiles anything, and installs them."""

import os
import re
import shutil
import subprocess
import sys

from .jobs import ROOT, Job

# A command, a file or a module of Python, the Debian package with it, and the suites that use it.
NEEDS = [row.split() for row in """
cc build-essential house,rust,e2e,browser,python,go,java,packages,pages,attacks,quick
curl curl e2e,packages,pages
node nodejs house,e2e,browser,pages
npm npm e2e,browser,pages
python3 python3 python,packages,e2e,browser,pages
python:ensurepip python3-venv python,packages,browser,pages
git git browser
chromium chromium browser
nats-server nats-server rust,e2e,attacks,pages
ip iproute2 rust,e2e,packages,pages
adduser adduser packages,pages
systemd-analyze systemd packages,pages
openssl openssl rust,e2e,pages
prometheus prometheus e2e,pages
pg_ctlcluster postgresql rust,e2e,attacks,pages
nc netcat-openbsd e2e,pages
jq jq pages
nginx nginx e2e,browser,pages
/usr/lib/nginx/modules/ngx_stream_module.so libnginx-mod-stream e2e
go golang-go go,e2e,packages,pages
java default-jdk-headless java
mvn maven java
musl-gcc musl-tools full
valgrind valgrind long
""".strip().splitlines()]
# A name, the oldest version, its suites, the command, the package, the words that print the version, and where to get it.
VERSIONS = [
    ("Go", "1.24", "go,e2e,packages,pages", "golang-go", ["go", "version"],
     "Debian 13 has it, Debian 12 does not: see https://go.dev/dl, and put it first on the PATH"),
    ("Node.js", "20.14", "house,e2e,browser,pages", "nodejs", ["node", "--version"], "Debian 13 has it: https://nodejs.org otherwise"),
    ("Python", "3.9", "python,packages,pages", "python3", ["python3", "--version"], "Debian 11 and newer have it"),
    ("Java", "17", "java", "default-jdk-headless", ["java", "-version"], "Debian 12 and newer have it"),
]


def is_there(thing):
    """Whether a command, a file or a module of Python is there."""
    if thing.startswith("python:"):
        return subprocess.run(["python3", "-c", f"import {thing[7:]}"], stderr=subprocess.DEVNULL, check=False).returncode == 0
    return bool(shutil.which(thing)) or os.path.isfile(thing)


def number(text):
    """A version as numbers: `go version go1.24.4` gives (1, 24, 4)."""
    found = re.search(r"\d+(\.\d+)*", text)
    return tuple(int(part) for part in found.group().split(".")) if found else ()


def version_of(package, words):
    """The version of an installed command, or of the Debian package that would be installed; () if there is neither."""
    if shutil.which(words[0]):
        text = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False).stdout
    elif shutil.which("apt-cache"):
        policy = subprocess.run(["apt-cache", "policy", package], capture_output=True, text=True, check=False).stdout
        text = "".join(re.findall(r"Candidate: (?:\d+:)?(\S+)", policy))
    else:
        text = ""
    return number(text)


def lacks(suites, is_long):
    """Prints the missing programs for these suites. Returns the Debian packages to install, or None if the tests cannot run."""
    used = set(suites) | ({"long"} if is_long else set())
    missing = [package for thing, package, users in NEEDS if used & set(users.split(",")) and not is_there(thing)]
    is_short = False
    if not shutil.which("cargo"):
        print("the tests need Rust: install it from https://rustup.rs (rust-toolchain.toml names the version)", file=sys.stderr)
        is_short = True
    if missing:
        sudo = "" if os.geteuid() == 0 else "sudo "
        if not shutil.which("apt-get") or (sudo and not shutil.which("sudo")):
            print(f"the tests need these Debian packages, apt-get, and root or sudo: {' '.join(missing)}", file=sys.stderr)
            return None
        started = "(Debian starts nats-server, nginx, postgresql and prometheus; the tests do not use these)"
        print(f"-- will be installed with {sudo}apt-get: {' '.join(missing)} {started}", flush=True)
    for name, oldest, users, package, words, remedy in VERSIONS:
        if used & set(users.split(",")):
            found = version_of(package, words)
            # Java 8 calls itself 1.8, and Debian's package of Java 17 is 1.17.
            found = found[1:] if name == "Java" and found[:1] == (1,) else found
            if found < number(oldest):
                shown = ".".join(map(str, found)) or "none"
                print(f"the tests need {name} {oldest} or newer, but found {shown}: {remedy}", file=sys.stderr)
                is_short = True
    return None if is_short else missing


def install(packages):
    """Installs Debian packages. Returns whether that worked."""
    if not packages:
        return True
    sudo = [] if os.geteuid() == 0 else ["sudo"]
    words = [*sudo, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages]
    commands = ([*sudo, "apt-get", "update", "-qq"], words)
    done = [subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode for command in commands]
    lacking = [thing for thing, package, _ in NEEDS if package in packages and not is_there(thing)]
    if lacking:
        print(f"the tests need {', '.join(lacking)}, which Debian's packages should have", file=sys.stderr)
    return not any(done) and not lacking


def go_tool(name, address):
    """A job that builds a tool in Go."""
    return name, "e2e" if name not in ("grpcurl", "nats") else "pages", ["go", "install", address], {"GOBIN": str(ROOT / "target/bin")}


def preparations(suites):
    """The jobs that fetch the tools and libraries of the suites that Debian does not have."""
    npm = "npm ci --no-audit --no-fund --silent"
    pip = ["target/venv/bin/pip", "install", "--quiet", "--disable-pip-version-check"]
    venv = " ".join([f"[ -x {pip[0]} ] || python3 -m venv target/venv;", *pip, "--requirement tests/python/requirements.txt"])
    rows = [
        ("npm", "e2e,browser,pages", ["sh", "-ec", f"cd tests/e2e; {npm}"], {}),
        ("python", "python,packages,pages", ["sh", "-ec", venv], {}),
        ("maven", "java", ["mvn", "--quiet", "--batch-mode", "--file", "tests/java/pom.xml", "dependency:copy-dependencies",
                           f"-DoutputDirectory={ROOT / 'target/java'}"], {}),
        ("helm", "packages,pages", ["packaging/helm/package", "target/test-logs/prepare"], {}),
        ("npm-docs", "pages", ["sh", "-ec", f"cd tests/docs; {npm}"], {}),
        ("python-docs", "pages", [*pip, "--requirement", "tests/docs/requirements.txt"], {}),
        # Debian 12's NATS 2.9 loses acknowledged publications if three servers share a stream; docs/guides/cluster.md names this version.
        go_tool("nats-server", "github.com/nats-io/nats-server/v2@v2.10.27"),
        go_tool("h2spec", "github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible"),
        go_tool("pebble", "github.com/letsencrypt/pebble/v2/cmd/pebble@v2.10.0"),
        go_tool("pebble-challtestsrv", "github.com/letsencrypt/pebble/v2/cmd/pebble-challtestsrv@v2.10.0"),
        go_tool("grpcurl", "github.com/fullstorydev/grpcurl/cmd/grpcurl@v1.9.3"),
        go_tool("nats", "github.com/nats-io/natscli/nats@v0.1.6"),
    ]
    used = set(suites)
    built = {"nats-server", "h2spec", "pebble", "pebble-challtestsrv", "grpcurl", "nats"}
    return [Job("prepare", name, ["nice", *words], env=env, limit=1800) for name, users, words, env in rows
            if used & set(users.split(",")) and not (name in built and os.access(ROOT / "target/bin" / name, os.X_OK))]
