"""The container image: the content of the archive, and its program, which serves as in a container."""

import base64
import contextlib
import gzip
import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tarfile
import urllib.request

import pytest

from image_parts import Image, interpreter, start, unpack
from waiting import PATIENCE, free_port, until

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGES = pathlib.Path(os.environ.get("TOUCHLINE_PACKAGES", ROOT / "target/package"))
VERSION = re.search(r'^version = "(.+)"$', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]
ARCHIVE = PACKAGES / f"touchline-{VERSION}-oci.tar"
BUILD = ROOT / "packaging/container/build"
USER = 65532
KEY = "the-key-of-the-image-test"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="changes users and mounts, which only root may do")


@pytest.fixture(scope="session")
def image() -> Image:
    if not ARCHIVE.is_file():
        pytest.fail(f"{ARCHIVE} is missing: make it by packaging/container/build BINARY {PACKAGES}, or name its directory by TOUCHLINE_PACKAGES", pytrace=False)
    return Image(ARCHIVE)


@pytest.fixture(scope="session")
def members(image) -> dict[str, tarfile.TarInfo]:
    """All entries of all layers."""
    found = {}
    for layer in image.layers():
        with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
            found |= {member.name: member for member in tar}
    return found


def content(image: Image, path: str) -> bytes:
    for layer in image.layers():
        with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
            if path in tar.getnames():
                return tar.extractfile(path).read()
    raise AssertionError(f"no layer has {path}")


def test_the_layout_is_whole(image):
    assert json.loads(image.files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    assert image.entry["platform"] == {"architecture": image.configuration["architecture"], "os": "linux"}
    assert image.configuration["os"] == "linux"
    blobs = {name for name in image.files if name.startswith("blobs/")}
    used = {image.entry["digest"], image.manifest["config"]["digest"], *(layer["digest"] for layer in image.manifest["layers"])}
    assert blobs == {f"blobs/{name.replace(':', '/')}" for name in used}, "the manifest names every blob"


def test_the_layers_are_those_of_the_configuration(image):
    found = [f"sha256:{hashlib.sha256(gzip.decompress(layer)).hexdigest()}" for layer in image.layers()]
    assert found == image.configuration["rootfs"]["diff_ids"]


def test_docker_finds_the_same_image(image):
    [told] = json.loads(image.files["manifest.json"])
    assert told["RepoTags"] == [f"touchline:{VERSION}"]
    path = lambda descriptor: f"blobs/{descriptor['digest'].replace(':', '/')}"
    assert told["Config"] == path(image.manifest["config"])
    assert told["Layers"] == [path(layer) for layer in image.manifest["layers"]]


def test_the_configuration_is_that_of_a_server_without_rights(image):
    config = image.config
    assert config["User"] == f"{USER}:{USER}"
    assert config["WorkingDir"] == "/var/lib/touchline"
    assert config["Volumes"] == {"/var/lib/touchline": {}}
    assert config["Entrypoint"] == ["/usr/bin/touchline"] and config["Cmd"] == ["serve"]
    assert set(config["ExposedPorts"]) == {"8000/tcp", "9000/tcp"}
    assert config["Healthcheck"]["Test"] == ["CMD", "/usr/bin/touchline", "health"]
    assert config["StopSignal"] == "SIGTERM"
    assert config["Labels"]["org.opencontainers.image.version"] == VERSION
    assert config["Labels"]["org.opencontainers.image.licenses"] == "Apache-2.0"


def test_the_image_holds_these_files_and_no_other(members):
    files = {name: (member.mode, member.uid, member.gid) for name, member in members.items() if not member.isdir()}
    assert files == {
        "etc/passwd": (0o644, 0, 0),
        "etc/group": (0o644, 0, 0),
        "etc/ssl/certs/ca-certificates.crt": (0o644, 0, 0),
        "usr/bin/touchline": (0o755, 0, 0),
        "usr/share/doc/touchline/LICENSE": (0o644, 0, 0),
    }
    assert all(member.isfile() or member.isdir() for member in members.values()), "the image has no links and no devices"


def test_the_server_may_write_into_its_directory_only(members):
    home = members["var/lib/touchline"]
    assert (home.mode, home.uid, home.gid, home.isdir()) == (0o700, USER, USER, True)
    others = [member for name, member in members.items() if name != "var/lib/touchline"]
    assert all(member.uid == member.gid == 0 and member.mode & 0o022 == 0 for member in others)


def test_there_is_no_secret_in_it(image):
    names = [variable.split("=")[0] for variable in image.config["Env"]]
    assert sorted(names) == ["PATH", "TOUCHLINE_HEALTH_ENABLED"]
    assert b"PRIVATE KEY" not in content(image, "etc/ssl/certs/ca-certificates.crt")
    account = [line.split(":") for line in content(image, "etc/passwd").decode().splitlines()]
    assert ["touchline", "x", str(USER), str(USER)] in [fields[:4] for fields in account]


def test_the_binary_is_static(image):
    assert not interpreter(content(image, "usr/bin/touchline"))


@pytest.mark.parametrize("transport", ["oci-archive", "docker-archive"])
@pytest.mark.skipif(not shutil.which("skopeo"), reason="skopeo is not installed")
def test_skopeo_reads_it(image, transport, tmp_path):
    source = f"{transport}:{ARCHIVE}"
    told = json.loads(subprocess.run(["skopeo", "inspect", "--config", source], check=True, capture_output=True).stdout)
    assert told["config"]["User"] == f"{USER}:{USER}"
    # The copy reads every layer and compares it with its digest.
    subprocess.run(["skopeo", "copy", "--quiet", "--insecure-policy", source, f"dir:{tmp_path}/copy"], check=True)


def test_the_same_parts_give_the_same_bytes(image, tmp_path):
    for path in ("usr/bin/touchline", "etc/ssl/certs/ca-certificates.crt"):
        (tmp_path / path.split("/")[-1]).write_bytes(content(image, path))
    made = []
    for number in ("1", "2"):
        subprocess.run(
            [BUILD, tmp_path / "touchline", tmp_path / number, "--certificates", tmp_path / "ca-certificates.crt"],
            check=True, env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000"}, stdout=subprocess.DEVNULL,
        )
        [archive] = (tmp_path / number).iterdir()
        made.append(archive.read_bytes())
    assert made[0] == made[1]
    assert Image(archive).configuration["created"] == "2023-11-14T22:13:20Z"


def test_a_binary_for_arm64_gives_an_image_for_arm64(image, tmp_path):
    binary = bytearray(content(image, "usr/bin/touchline"))
    binary[18:20] = (183).to_bytes(2, "little")
    (tmp_path / "touchline").write_bytes(binary)
    subprocess.run([BUILD, tmp_path / "touchline", tmp_path / "out"], check=True, stdout=subprocess.DEVNULL)
    made = Image(tmp_path / f"out/touchline-{VERSION}-arm64-oci.tar")
    assert made.configuration["architecture"] == made.entry["platform"]["architecture"] == "arm64"


def test_a_dynamic_binary_is_refused(tmp_path):
    ended = subprocess.run([BUILD, os.path.realpath("/bin/sh"), tmp_path], capture_output=True, text=True)
    assert ended.returncode == 1 and "linked dynamically" in ended.stderr
    assert list(tmp_path.iterdir()) == []


class Container:
    """The image's program in its unpacked root, on a read-only file system with one volume."""

    def __init__(self, image: Image, directory: pathlib.Path):
        self.image, self.root, self.data = image, directory / "root", directory / "data"
        unpack(image, self.root)
        self.data.mkdir(mode=0o700)
        os.chown(self.data, USER, USER)
        # The user of the image must be able to reach both directories.
        for above in (directory, *directory.parents):
            if above != above.parent and above.stat().st_uid == os.geteuid():
                above.chmod(above.stat().st_mode | 0o011)
        self.port = free_port()
        self.environment = {
            "TOUCHLINE_HTTP_SERVER_PORT": str(self.port),
            "TOUCHLINE_HTTP_API_KEY": KEY,
            "TOUCHLINE_CLIENT_TOKEN_HMAC_SECRET_KEY": "the-secret-of-the-image-test-is-long-enough",
            "TOUCHLINE_CHANNEL_NAMESPACES": json.dumps([{"name": "chat", "history_size": 10, "history_ttl": "60s", "durable": True}]),
            "TOUCHLINE_SHUTDOWN_SPREAD": "100ms",
        }
        self.log = open(directory / "log", "w+b")
        self.process = self.run(*image.config["Cmd"])

    def run(self, *arguments: str) -> subprocess.Popen:
        return start(self.image, self.root, self.data, list(arguments), self.environment, self.log)

    def said(self) -> str:
        self.log.flush()
        return pathlib.Path(self.log.name).read_text()

    def wait_until_ready(self) -> None:
        def is_ready() -> bool:
            assert self.process.poll() is None, self.said()
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=PATIENCE).close()
                return True
            return False

        until(is_ready, self.said)

    def api(self, method: str, **body) -> dict:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/api/{method}", json.dumps(body).encode(), {"X-API-Key": KEY, "Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=PATIENCE) as response:
            return json.load(response)


@pytest.fixture(scope="module")
def container(image, tmp_path_factory):
    running = Container(image, tmp_path_factory.mktemp("image"))
    try:
        running.wait_until_ready()
        yield running
    finally:
        running.process.kill()
        running.process.wait(PATIENCE)


@needs_root
def test_it_runs_as_the_user_of_the_image_without_any_right(container):
    status = dict(line.split(":\t", 1) for line in pathlib.Path(f"/proc/{container.process.pid}/status").read_text().splitlines() if ":\t" in line)
    assert status["Uid"].split() == [str(USER)] * 4 and status["Gid"].split() == [str(USER)] * 4
    assert int(status["CapEff"], 16) == 0 and int(status["CapPrm"], 16) == 0
    assert os.readlink(f"/proc/{container.process.pid}/cwd").endswith("/var/lib/touchline")


@needs_root
def test_it_listens_on_all_addresses(container):
    sockets = [line.split()[1] for line in pathlib.Path("/proc/net/tcp6").read_text().splitlines()[1:]]
    assert f"{'0' * 32}:{container.port:04X}" in sockets


@needs_root
def test_it_serves_a_publication_and_keeps_it_in_its_volume(container):
    answer = container.api("publish", channel="chat:1", data={"text": "from the image"})
    assert answer["result"]["offset"] == 1
    publications = container.api("history", channel="chat:1", limit=10)["result"]["publications"]
    assert [publication["data"] for publication in publications] == [{"text": "from the image"}]
    database = container.data / "data/primary.db"
    assert database.stat().st_uid == USER


@needs_root
def test_the_health_check_of_the_image_asks_the_server(container):
    _, program, *arguments = container.image.config["Healthcheck"]["Test"]
    assert [program] == container.image.config["Entrypoint"]
    assert container.run(*arguments).wait(PATIENCE) == 0, container.said()


@needs_root
def test_it_drains_at_sigterm(container):
    with open_websocket(container.port) as client:
        container.process.send_signal(signal.SIGTERM)
        # The server disconnects the client with a close frame, and does not cut it off.
        received = b""
        while chunk := client.recv(4096):
            received += chunk
        assert b"\x88" in received
    assert container.process.wait(PATIENCE) == 0, container.said()


def open_websocket(port: int) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), PATIENCE)
    nonce = base64.b64encode(os.urandom(16)).decode()
    client.sendall((
        f"GET /connection/websocket HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {nonce}\r\n\r\n"
    ).encode())
    head = b""
    while b"\r\n\r\n" not in head:
        head += client.recv(1)
    assert b" 101 " in head.split(b"\r\n")[0], head
    return client
