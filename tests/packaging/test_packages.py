"""The packages as users get them: their content, and each step from the first installation to the purge.

`TOUCHLINE_PACKAGES` names the directory of packages to test (target/package). If only TOUCHLINE_BIN is set, as `./x test` sets it,
the tests first build packages from that binary.
"""

import hashlib
import json
import os
import pathlib
import re
import struct
import subprocess
import tarfile

import pytest

from installed import Machine
from waiting import PATIENCE, until

ROOT = pathlib.Path(__file__).resolve().parents[2]
VERSION = re.search(r'^version = "(.+)"$', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]
CONFIGURATION = "/etc/touchline/touchline.toml"
CREDENTIALS = "/etc/touchline/credentials"
STATE = "/var/lib/touchline"
SECRETS = ["client.token.hmac_secret_key", "http_api.key"]
PROGRAM_INTERPRETER = 3
HEALTHY = "curl --silent --fail http://127.0.0.1:9000/health"
# Runs a command as the unit runs the service.
SERVE = ["setpriv", "--reuid=touchline", "--regid=touchline", "--clear-groups", "--no-new-privs", "env", f"--chdir={STATE}",
         f"CREDENTIALS_DIRECTORY={CREDENTIALS}"]


def made_here() -> bool:
    return "TOUCHLINE_BIN" in os.environ and "TOUCHLINE_PACKAGES" not in os.environ


def build(script: str, *words: str) -> None:
    quick = {**os.environ, "DPKG_DEB_COMPRESSOR_TYPE": "gzip", "DPKG_DEB_COMPRESSOR_LEVEL": "1"}
    done = subprocess.run([ROOT / script, *words], capture_output=True, text=True, timeout=3 * PATIENCE, env=quick)
    assert done.returncode == 0, f"{script}: {done.stdout}{done.stderr}"


@pytest.fixture(scope="session")
def packages(tmp_path_factory) -> pathlib.Path:
    if not made_here():
        return pathlib.Path(os.environ.get("TOUCHLINE_PACKAGES", ROOT / "target/package"))
    out = tmp_path_factory.mktemp("packages")
    binary = out / "touchline"
    # A debug binary consists mostly of symbols.
    for suffix in ("", "-lab"):
        subprocess.run(["strip", "--strip-unneeded", "-o", f"{binary}{suffix}", os.environ["TOUCHLINE_BIN"] + suffix], check=True)
    build("packaging/build", "binaries", "deb", "--binary", str(binary), "--out", str(out / "package"))
    return out / "package"


def need(path: pathlib.Path) -> pathlib.Path:
    assert path.is_file(), f"{path} is not there: make it with ./x package"
    return path


@pytest.fixture(scope="session")
def tarball(packages) -> pathlib.Path:
    return need(packages / f"touchline-{VERSION}-x86_64-linux.tar.gz")


@pytest.fixture(scope="session")
def deb(packages) -> pathlib.Path:
    return need(packages / f"touchline_{VERSION}-1_amd64.deb")


@pytest.fixture(scope="session")
def unpacked(tarball, tmp_path_factory) -> pathlib.Path:
    directory = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(tarball) as tar:
        tar.extractall(directory, filter="data")
    return directory / f"touchline-{VERSION}-x86_64-linux"


@pytest.fixture(scope="session")
def newer(unpacked, tmp_path_factory) -> pathlib.Path:
    """The same package with a higher version."""
    out = tmp_path_factory.mktemp("newer")
    build("packaging/debian/build", str(unpacked / "touchline"), str(out), f"{VERSION}+newer")
    return out / f"touchline_{VERSION}+newer-1_amd64.deb"


@pytest.fixture
def machine():
    with Machine() as machine:
        yield machine


def test_the_sums_are_those_of_all_packages(packages, tarball):
    sums = {}
    for line in need(packages / "SHA256SUMS").read_text().splitlines():
        digest, name = line.split("  ")
        sums[name] = digest
    files = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in packages.iterdir() if path.is_file()}
    files.pop("SHA256SUMS")
    assert sums == files
    assert tarball.name in sums


def test_the_tarball_holds_what_a_machine_without_packages_needs(tarball, unpacked):
    with tarfile.open(tarball) as tar:
        members = {member.name.partition("/")[2]: member for member in tar}
    assert {name for name, member in members.items() if member.isfile()} == {
        "touchline", "touchline-lab", "LICENSE", "README.md", "CHANGELOG.md", "touchline.toml", "touchline.service",
        "completions/touchline.bash", "completions/touchline.fish", "completions/touchline.zsh",
    }
    assert {(member.uid, member.gid, member.uname, member.gname) for member in members.values()} == {(0, 0, "", "")}
    assert len({member.mtime for member in members.values()}) == 1
    assert members["touchline"].mode == members["touchline-lab"].mode == 0o755
    assert "/usr/local/bin/touchline" in (unpacked / "touchline.service").read_text()


def interpreter(binary: bytes) -> bool:
    """Whether an executable needs a loader of shared libraries."""
    headers, size, count = struct.unpack_from("<Q", binary, 32)[0], *struct.unpack_from("<HH", binary, 54)
    return any(struct.unpack_from("<I", binary, headers + size * at)[0] == PROGRAM_INTERPRETER for at in range(count))


def test_the_binary_is_static_and_says_what_it_is(unpacked):
    said = subprocess.run([unpacked / "touchline", "--version"], capture_output=True, text=True, check=True).stdout
    assert said.startswith(f"touchline {VERSION} (x86_64-unknown-linux-"), said
    also = subprocess.run([unpacked / "touchline", "version"], capture_output=True, text=True, check=True).stdout
    assert also == said
    # A package of the tests' binary uses that binary's libraries.
    if not made_here():
        assert said == f"touchline {VERSION} (x86_64-unknown-linux-musl, mimalloc)\n"
        assert not interpreter((unpacked / "touchline").read_bytes())


def test_the_bill_of_materials_names_what_is_linked(packages):
    if made_here():
        assert list(packages.glob("*.cdx.json")) == []
        return
    bill = json.loads(need(packages / f"touchline-{VERSION}.cdx.json").read_text())
    assert bill["bomFormat"] == "CycloneDX"
    names = {component["name"] for component in bill["components"]}
    assert {"tokio", "rustls", "mimalloc", "libsqlite3-sys"} <= names
    assert all(component.get("licenses") for component in bill["components"] if not component["name"].startswith("touchline"))


def test_the_same_binary_gives_the_same_bytes(unpacked, tmp_path):
    made = []
    for name in ("one", "two"):
        for script in ("packaging/tarball", "packaging/debian/build"):
            build(script, str(unpacked / "touchline"), str(tmp_path / name))
        made.append({path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (tmp_path / name).iterdir()})
    assert made[0] == made[1] and len(made[0]) == 2


def test_systemd_understands_the_units(machine, deb, unpacked):
    machine.run("dpkg", "--install", machine.put(deb))
    said = machine.try_to("systemd-analyze", "verify", "--man=no", "/lib/systemd/system/touchline.service")
    assert (said.returncode, said.stdout + said.stderr) == (0, "")
    security = machine.run("systemd-analyze", "security", "--offline=yes", "--no-pager", "/lib/systemd/system/touchline.service")
    exposure = float(re.search(r"Overall exposure level for touchline.service: ([0-9.]+)", security)[1])
    assert exposure <= 2.0, security
    machine.run("cp", "/usr/bin/touchline", "/usr/local/bin/touchline")
    machine.write("/etc/systemd/system/touchline.service", (unpacked / "touchline.service").read_text())
    said = machine.try_to("systemd-analyze", "verify", "--man=no", "/etc/systemd/system/touchline.service")
    assert (said.returncode, said.stdout + said.stderr) == (0, "")


def test_what_is_installed_serves_and_keeps_its_secrets(machine, deb, tmp_path):
    machine.run("dpkg", "--install", machine.put(deb))
    assert machine.mode("/usr/bin/touchline") == machine.mode("/usr/bin/touchline-lab") == "755 root:root"
    assert "fanout" in machine.run("touchline-lab", "--help")
    assert machine.mode(CONFIGURATION) == "644 root:root"
    assert machine.mode(CREDENTIALS) == "750 root:touchline"
    assert machine.mode(STATE) == "700 touchline:touchline"
    account = machine.run("getent", "passwd", "touchline").strip().split(":")
    assert (int(account[2]) < 1000, account[5], account[6]) == (True, STATE, "/usr/sbin/nologin")
    secrets = [machine.read(f"{CREDENTIALS}/{name}") for name in SECRETS]
    assert len(set(secrets)) == 2
    for name, secret in zip(SECRETS, secrets):
        assert machine.mode(f"{CREDENTIALS}/{name}") == "640 root:touchline"
        assert re.fullmatch(r"[A-Za-z0-9_-]{43}", secret)
        assert machine.try_to("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "cat", f"{CREDENTIALS}/{name}").returncode != 0
        readable = machine.try_to("grep", "--recursive", "--files-with-matches", "--fixed-strings", secret, "/etc", "/var/log", "/var/lib/dpkg", "/usr/share/doc/touchline")
        assert readable.stdout.split() == [f"{CREDENTIALS}/{name}"]

    assert "ok: 0 errors, 0 warnings" in machine.run(*SERVE, "touchline", "check", CONFIGURATION)
    log = tmp_path / "log"
    with log.open("w") as output:
        server = machine.start(*SERVE, "touchline", "serve", "--config", CONFIGURATION, log=output)
    machine.wait(HEALTHY)
    body = json.dumps({"channel": "news:live", "data": {"headline": "Kick-off"}})
    publish = ["curl", "--silent", "--show-error", "--write-out", "%{http_code}", "--data", body, "http://127.0.0.1:9000/api/publish"]
    assert machine.run(*publish, "--header", "X-API-Key: wrong").endswith("401")
    assert machine.run(*publish, "--header", f"X-API-Key: {secrets[1]}").endswith("200")
    read = ["--data", '{"channel": "news:live", "limit": 1}', "--header", f"X-API-Key: {secrets[1]}", "http://127.0.0.1:9000/api/history"]
    assert "Kick-off" in machine.run("curl", "--silent", *read)
    assert "Kick-off" not in machine.run("curl", "--silent", *[word.replace(":9000", ":8000") for word in read]), "clients cannot reach the server API"
    # The tools read the same two files as the service.
    machine.run("env", f"CREDENTIALS_DIRECTORY={CREDENTIALS}", "touchline", "publish", "--config", CONFIGURATION, "news:live", '{"headline": "Goal"}')
    assert all(secret not in log.read_text() for secret in secrets)
    machine.run("pkill", "--full", "touchline serve")
    server.wait(PATIENCE)
    assert server.returncode == 0, log.read_text()


def test_an_upgrade_keeps_what_the_administrator_changed(machine, deb, newer):
    machine.run("dpkg", "--install", machine.put(deb))
    secrets = [machine.read(f"{CREDENTIALS}/{name}") for name in SECRETS]
    changed = machine.read(CONFIGURATION).replace("http://localhost:3000", "https://example.com")
    machine.write(CONFIGURATION, changed)
    machine.write(f"{STATE}/kept", "state")
    machine.run("chmod", "0700", CREDENTIALS)
    machine.run("rm", f"{CREDENTIALS}/http_api.key")
    machine.run("dpkg", "--install", machine.put(newer))
    assert machine.run("dpkg-query", "--show", "--showformat=${Version} ${db:Status-Status}", "touchline") == f"{VERSION}+newer-1 installed"
    assert machine.read(CONFIGURATION) == changed
    assert not machine.is_there(f"{CONFIGURATION}.dpkg-new") and not machine.is_there(f"{CONFIGURATION}.dpkg-dist")
    assert machine.mode(CREDENTIALS) == "700 root:touchline"
    assert machine.read(f"{CREDENTIALS}/{SECRETS[0]}") == secrets[0]
    assert not machine.is_there(f"{CREDENTIALS}/http_api.key"), "a secret that was removed is not made again"
    assert machine.read(f"{STATE}/kept") == "state"


def test_a_removal_keeps_the_data_and_a_purge_leaves_nothing(machine, deb):
    before = machine.changed()
    accounts = [machine.read(path) for path in ("/etc/passwd", "/etc/group")]
    machine.run("dpkg", "--install", machine.put(deb))
    machine.write(f"{STATE}/primary.db", "state")
    # The package is installed twice: a script must accept that its work is already done.
    machine.run("dpkg", "--install", machine.put(deb))
    machine.run("dpkg-reconfigure", "touchline")
    secret = machine.read(f"{CREDENTIALS}/http_api.key")
    machine.run("dpkg", "--remove", "touchline")
    assert not machine.is_there("/usr/bin/touchline") and not machine.is_there("/lib/systemd/system/touchline.service")
    assert machine.is_there(f"{STATE}/primary.db") and machine.is_there(CONFIGURATION)
    machine.run("dpkg", "--install", machine.put(deb))
    assert machine.read(f"{CREDENTIALS}/http_api.key") == secret
    machine.run("dpkg", "--remove", "touchline")
    machine.run("dpkg", "--purge", "touchline")
    assert machine.changed() == before
    assert [machine.read(path) for path in ("/etc/passwd", "/etc/group")] == accounts
    assert not any(machine.is_there(path) for path in ("/etc/touchline", STATE))


NOTES = """#!/bin/sh
echo "$*" >>/tmp/asked
case "$*" in
  --root=*) exec /usr/bin/systemctl "$@" ;;
  *is-enabled*) exec /usr/bin/systemctl --root=/ "$@" ;;
esac
"""


def test_systemd_is_told_at_each_step(machine, deb, newer):
    """A systemctl that notes its arguments replaces the one of a machine with systemd. It runs the commands that do not need systemd."""
    machine.run("mkdir", "-p", "/run/systemd/system")
    machine.write("/usr/local/sbin/systemctl", NOTES, 0o755)

    def asked() -> list[str]:
        lines = [re.sub(r"--system |--quiet ", "", line) for line in machine.read("/tmp/asked").splitlines()]
        machine.write("/tmp/asked", "")
        return [line for line in lines if not line.startswith(("--root", "is-"))]

    machine.run("dpkg", "--install", machine.put(deb))
    assert machine.is_there("/etc/systemd/system/multi-user.target.wants/touchline.service"), "it is enabled"
    assert asked() == ["daemon-reload", "start touchline.service"]
    machine.run("dpkg", "--install", machine.put(newer))
    assert asked() == ["daemon-reload", "restart touchline.service"]
    # A service that was disabled by hand stays disabled.
    machine.run("rm", "/etc/systemd/system/multi-user.target.wants/touchline.service")
    machine.run("dpkg", "--install", machine.put(newer))
    assert not machine.is_there("/etc/systemd/system/multi-user.target.wants/touchline.service")
    asked()
    machine.run("dpkg", "--remove", "touchline")
    assert asked() == ["stop touchline.service", "daemon-reload"]
    machine.run("dpkg", "--purge", "touchline")
    assert machine.try_to("find", "/etc/systemd", "/var/lib/systemd", "-name", "*touchline*").stdout == ""


def test_systemd_runs_the_unit(deb):
    with Machine(systemd=True) as machine:
        machine.run("dpkg", "--install", machine.put(deb))
        machine.wait(HEALTHY)
        key = machine.read(f"{CREDENTIALS}/http_api.key")
        publish = ["curl", "--silent", "--fail", "--data", '{"channel": "news:live", "data": {}}', "--header", f"X-API-Key: {key}", "http://127.0.0.1:9000/api/publish"]
        assert '"offset":1' in machine.run(*publish)
        # Parts that the sandbox could block: databases, and ports below 1024.
        configuration = machine.read(CONFIGURATION).replace("port = 8000", "port = 443") + "durable = true\n"
        machine.write(CONFIGURATION, configuration)
        machine.run("systemctl", "restart", "touchline")
        machine.wait(HEALTHY)
        assert '"offset":1' in machine.run(*publish)
        assert machine.mode(f"{STATE}/data/primary.db") == "600 touchline:touchline"
        machine.run("curl", "--silent", "http://127.0.0.1:443/")
        assert machine.run("systemctl", "show", "--property=NRestarts", "--value", "touchline") == "0\n"
        machine.write(CONFIGURATION, configuration + "join_leave = true\n")
        machine.run("systemctl", "reload", "touchline")
        status = ["systemctl", "show", "--property=StatusText", "--value", "touchline"]
        until(lambda: machine.run(*status) == "reload: generation 2, changed: channel.namespaces[news].join_leave\n")
        machine.write(CONFIGURATION, configuration + "nonsense = true\n")
        machine.try_to("systemctl", "reload", "touchline")
        until(lambda: machine.run(*status).startswith("reload failed: "))
        machine.write(CONFIGURATION, configuration)
        machine.run("systemctl", "reload", "touchline")
        machine.wait(HEALTHY)
        machine.run("systemctl", "stop", "touchline")
        assert machine.run("systemctl", "show", "--property=Result", "--value", "touchline") == "success\n"
        assert key not in machine.run("journalctl", "--no-pager")
        machine.run("dpkg", "--purge", "touchline")
        assert machine.try_to("systemctl", "cat", "touchline").returncode != 0
