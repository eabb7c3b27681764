"""The compose file: its content, its secrets, and that the servers accept their configurations."""

import os
import pathlib
import re
import shutil
import stat
import subprocess

import pytest
import yaml
from waiting import PATIENCE, free_port, until

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCE = ROOT / "packaging/compose"
BINARY = pathlib.Path(os.environ.get("TOUCHLINE_BIN", ROOT / "target/debug/touchline"))
NATS = ROOT / "target/bin/nats-server"
VERSION = re.search(r'^version = "(.+)"$', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]
COMPOSE = yaml.safe_load((SOURCE / "compose.yaml").read_text())
SERVICES = COMPOSE["services"]
NODES = {name: service for name, service in SERVICES.items() if name.startswith("touchline")}


@pytest.fixture(scope="module")
def directory(tmp_path_factory) -> pathlib.Path:
    """A copy of the folder, with secrets in it."""
    copy = tmp_path_factory.mktemp("compose") / "compose"
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("secrets", ".env"))
    subprocess.run([copy / "make-secrets"], check=True)
    return copy


def mounted(directory: pathlib.Path, service: dict, into: pathlib.Path) -> pathlib.Path:
    """The secrets of a service, as files in a directory with the names that they have in the container."""
    into.mkdir()
    for secret in service["secrets"]:
        name, target = (secret, secret) if isinstance(secret, str) else (secret["source"], secret["target"])
        file = into / pathlib.PurePosixPath(target).name
        shutil.copy(directory / COMPOSE["secrets"][name]["file"], file)
        file.chmod(0o440)
    return into


def test_secrets_are_for_their_owner_and_group(directory):
    assert stat.S_IMODE((directory / "secrets").stat().st_mode) == 0o700
    files = {path.name: path for path in (directory / "secrets").iterdir()}
    assert {f"./secrets/{name}" for name in files} == {secret["file"] for secret in COMPOSE["secrets"].values()}
    assert {stat.S_IMODE(path.stat().st_mode) for path in files.values()} == {0o640}
    groups = {str(path.stat().st_gid) for path in files.values()}
    assert (directory / ".env").read_text() == f"SECRETS_GROUP={groups.pop()}\n" and not groups
    secrets = [files[name].read_text() for name in ("token_secret", "api_key", "nats_password", "postgres_password")]
    assert len(set(secrets)) == 4 and all(re.fullmatch("[0-9a-f]{64}", secret) for secret in secrets)


def test_secrets_stay_when_they_are_made_again(directory):
    before = {path.name: path.read_text() for path in (directory / "secrets").iterdir()}
    subprocess.run([directory / "make-secrets"], check=True)
    assert {path.name: path.read_text() for path in (directory / "secrets").iterdir()} == before


def test_git_does_not_see_the_secrets():
    for name in ("secrets/api_key", ".env"):
        assert subprocess.run(["git", "check-ignore", "--quiet", SOURCE / name], cwd=ROOT).returncode == 0


def test_no_secret_is_in_the_file():
    assert not [name for service in SERVICES.values() for name in service.get("environment", {})
                if re.search("PASSWORD|SECRET|KEY|TOKEN", name) and not name.endswith("_FILE")]


def test_the_image_is_that_of_the_version():
    assert {node["image"] for node in NODES.values()} == {f"touchline:{VERSION}"}


def test_the_nodes_have_no_rights_and_time_to_drain():
    assert len(NODES) == 2
    for node in NODES.values():
        assert node["read_only"] is True and node["cap_drop"] == ["ALL"]
        assert node["security_opt"] == ["no-new-privileges:true"]
        assert int(node["stop_grace_period"].removesuffix("s")) >= 40
        assert "user" not in node and "privileged" not in node


def test_every_service_is_healthy_before_the_next_begins():
    assert all("healthcheck" in service for service in SERVICES.values())
    for node in NODES.values():
        assert node["depends_on"] == {name: {"condition": "service_healthy"} for name in ("nats", "postgres")}


def test_only_clients_come_from_other_machines():
    ports = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert sorted(ports) == ["127.0.0.1:9000:9000", "127.0.0.1:9001:9000", "8000:8000", "8001:8000"]


def test_the_node_takes_its_configuration(directory, tmp_path):
    if not BINARY.is_file():
        pytest.fail(f"{BINARY} is missing: cargo build, or name another by TOUCHLINE_BIN", pytrace=False)
    for name, node in NODES.items():
        environment = {"PATH": os.environ["PATH"], "CREDENTIALS_DIRECTORY": str(mounted(directory, node, tmp_path / name))}
        ended = subprocess.run([BINARY, "check", directory / "touchline.toml"], env=environment, capture_output=True, text=True)
        said = ended.stdout + ended.stderr
        assert ended.returncode == 0 and "0 errors, 0 warnings" in said, said


@pytest.fixture(scope="module")
def nats_server() -> pathlib.Path:
    """The version that compose.yaml names."""
    if not NATS.is_file():
        [version] = re.findall(r"^nats:(.+)-alpine$", SERVICES["nats"]["image"])
        command = ["go", "install", f"github.com/nats-io/nats-server/v2@v{version}"]
        subprocess.run(command, env={**os.environ, "GOBIN": str(NATS.parent)}, check=True)
    return NATS


def test_nats_takes_its_configuration_and_lets_the_node_in(directory, nats_server, tmp_path):
    """The files are as in the containers; ports and directories belong to the test."""
    config = tmp_path / "nats"
    mounted(directory, SERVICES["nats"], config)
    text = (directory / "nats.conf").read_text()
    assert '"/data"' in text and SERVICES["nats"]["volumes"] == ["nats:/data"]
    (config / "nats.conf").write_text(text.replace('"/data"', f'"{tmp_path}/data"'))
    mounted(directory, NODES["touchline-1"], tmp_path / "secrets")
    port, monitor, clients, internal = (free_port() for _ in range(4))
    log = open(tmp_path / "log", "w")
    command = [nats_server, "--config", config / "nats.conf", "--addr", "127.0.0.1", "--port", str(port), "--http_port", str(monitor)]
    # The database of the node is in the other container.
    (tmp_path / "secrets/store.primary.url").unlink()
    environment = {
        "PATH": os.environ["PATH"],
        "TOUCHLINE_CONFIG": str(directory / "touchline.toml"),
        "CREDENTIALS_DIRECTORY": str(tmp_path / "secrets"),
        "TOUCHLINE_CLUSTER_NATS_URL": f"nats://127.0.0.1:{port}",
        "TOUCHLINE_HTTP_SERVER_PORT": str(clients),
        "TOUCHLINE_HTTP_SERVER_INTERNAL_PORT": str(internal),
        "TOUCHLINE_CHANNEL_NAMESPACES": "news",
    }
    nats = subprocess.Popen(command, stdout=log, stderr=log)
    node = subprocess.Popen([BINARY, "serve"], env=environment, cwd=tmp_path, stdout=log, stderr=log)
    try:
        health = ["curl", "--silent", "--fail", "--output", "/dev/null", f"http://127.0.0.1:{internal}/readyz"]

        def is_ready() -> bool:
            assert nats.poll() is None and node.poll() is None, (tmp_path / "log").read_text()
            return subprocess.run(health).returncode == 0

        until(is_ready, (tmp_path / "log").read_text)
        publish = [
            "curl", "--silent", "--fail-with-body", f"http://127.0.0.1:{internal}/api/publish",
            "--header", f"X-API-Key: {(directory / 'secrets/api_key').read_text()}", "--data", '{"channel": "news:1", "data": {"goal": "1:0"}}',
        ]
        answer = subprocess.run(publish, capture_output=True, text=True)
        assert answer.returncode == 0 and '"offset":1' in answer.stdout, answer.stdout + (tmp_path / "log").read_text()
    finally:
        for process in (node, nats):
            process.terminate()
            process.wait(PATIENCE)


def has_compose() -> bool:
    try:
        return subprocess.run(["docker", "compose", "version"], capture_output=True).returncode == 0
    except OSError:
        return False


@pytest.mark.skipif(not has_compose(), reason="docker compose is not installed")
def test_docker_compose_takes_the_file(directory):
    told = subprocess.run(["docker", "compose", "--file", directory / "compose.yaml", "config", "--quiet"], capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    (directory / ".env").rename(directory / "env")
    try:
        told = subprocess.run(["docker", "compose", "--file", directory / "compose.yaml", "config", "--quiet"], capture_output=True, text=True)
        assert told.returncode != 0 and "run make-secrets first" in told.stderr
    finally:
        (directory / "env").rename(directory / ".env")
