"""Starts the real binary for the tests with the Python SDK."""

import json
import os
import pathlib
import random
import socket
import subprocess
import time
import urllib.request

import jwt
import pytest

SECRET = "end-to-end-secret-that-is-long-enough"
KEY = "end-to-end-key"
ROOT = pathlib.Path(__file__).resolve().parents[2]
BINARY = os.environ.get("TOUCHLINE_BIN", str(ROOT / "target/debug/touchline"))
OPEN = {"allow_subscribe_for_client": True, "allow_subscribe_for_anonymous": True}
HISTORY = {"history_size": 100, "history_ttl": "60s", "force_recovery": True}


class Server:
    """A running server: its addresses, its API, its tokens."""

    def __init__(self, port: int):
        self.http = f"http://127.0.0.1:{port}"
        self.websocket = f"ws://127.0.0.1:{port}/connection/websocket"

    def api(self, method: str, **body):
        request = urllib.request.Request(
            f"{self.http}/api/{method}", json.dumps(body).encode(), {"X-API-Key": KEY, "Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=10) as response:
            return json.load(response)

    @staticmethod
    def token(**claims) -> str:
        return jwt.encode(claims, SECRET, algorithm="HS256")


def free_port() -> int:
    """A free port below the kernel's range for outgoing connections. The kernel uses ports of that range while the tests run."""
    while True:
        port = random.randrange(10_000, 30_000)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port


def configuration(port: int, history: dict, **more) -> dict:
    return {
        "http_server": {"address": "127.0.0.1", "port": port},
        "http_api": {"key": KEY},
        "client": {"token": {"hmac_secret_key": SECRET}, "allow_anonymous_connect_without_token": True},
        "channel": {
            "without_namespace": OPEN,
            "namespaces": [
                {"name": "history", **OPEN, **HISTORY, "allow_history_for_subscriber": True, **history},
                {"name": "room", **OPEN, "presence": True, "join_leave": True, "force_push_join_leave": True,
                 "allow_presence_for_subscriber": True, "allow_publish_for_client": True},
                {"name": "closed"},
            ],
        },
        "health": {"enabled": True},
        "prometheus": {"enabled": True},
        "shutdown": {"spread": "100ms", "timeout": "5s"},
        **more,
    }


def start(file: pathlib.Path, config: dict) -> tuple[Server, subprocess.Popen]:
    """Starts the binary and waits until it answers."""
    file.write_text(json.dumps(config))
    process = subprocess.Popen([BINARY, "serve", "--config", str(file)])
    running = Server(config["http_server"]["port"])
    for _ in range(1_200):
        try:
            urllib.request.urlopen(f"{running.http}/health", timeout=1).close()
            break
        except OSError:
            assert process.poll() is None, "the server ended"
            time.sleep(0.05)
    return running, process


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    running, process = start(tmp_path_factory.mktemp("touchline") / "config.json", configuration(free_port(), {}))
    yield running
    process.terminate()
    assert process.wait(60) == 0


class Durable:
    """A server whose channels are in SQLite. It can be killed and started again."""

    def __init__(self, directory: pathlib.Path):
        store = {"primary": {"url": f"sqlite:{directory / 'primary.db'}"}}
        self.file, self.config = directory / "config.json", configuration(free_port(), {"durable": True}, store=store)
        self.server, self.process = start(self.file, self.config)

    def begin_another_run(self) -> None:
        self.process.kill()
        self.process.wait(60)
        self.server, self.process = start(self.file, self.config)


@pytest.fixture
def durable(tmp_path):
    node = Durable(tmp_path)
    yield node
    node.process.kill()
    node.process.wait(60)
