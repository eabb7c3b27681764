"""Starts the real binary for the tests with the Python SDK."""

import asyncio
import contextlib
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
#: Seconds: several times as long as a busy machine stands still.
PATIENCE = 120
#: The ports of these tests (CONTRIBUTING.md).
PORTS = range(23_000, 24_200)
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
        with urllib.request.urlopen(request, timeout=PATIENCE) as response:
            return json.load(response)

    @staticmethod
    def token(**claims) -> str:
        return jwt.encode(claims, SECRET, algorithm="HS256")


def free_port() -> int:
    while True:
        port = random.choice(PORTS)
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

    def is_ready() -> bool:
        assert process.poll() is None, "the server ended"
        with contextlib.suppress(OSError):
            urllib.request.urlopen(f"{running.http}/health", timeout=PATIENCE).close()
            return True
        return False

    until(is_ready)
    return running, process


def until(condition) -> None:
    """Waits until a condition holds."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)  # waits: between two looks.


async def until_async(condition) -> None:
    """Waits until a condition holds that a coroutine function tests."""
    end = time.monotonic() + PATIENCE
    while not await condition():
        assert time.monotonic() < end, "waited too long"
        await asyncio.sleep(0.02)  # waits: between two looks.


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    running, process = start(tmp_path_factory.mktemp("touchline") / "config.json", configuration(free_port(), {}))
    yield running
    process.terminate()
    assert process.wait(PATIENCE) == 0


class Durable:
    """A server whose channels are in SQLite. It can be killed and started again."""

    def __init__(self, directory: pathlib.Path):
        store = {"primary": {"url": f"sqlite:{directory / 'primary.db'}"}}
        self.file, self.config = directory / "config.json", configuration(free_port(), {"durable": True}, store=store)
        self.server, self.process = start(self.file, self.config)

    def begin_another_run(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)
        self.server, self.process = start(self.file, self.config)


@pytest.fixture
def durable(tmp_path):
    node = Durable(tmp_path)
    yield node
    node.process.kill()
    node.process.wait(PATIENCE)
