#!/usr/bin/env python3
"""Counts the costs of the server's short paths: user-space instructions, by callgrind, the bytes of an idle connection,
the size of the binary and the memory of a server without clients.

`cost.py BINARY [RUNS]` prints the table as TOML: the medians of RUNS runs (default 3) and the costs in base.toml. It fails if a path
costs over 3 % more than the base, or a connection over 64 bytes more. The server is a real one with one shard, and gets the same input
in every run. The cost of its own work (ticks, pings) is measured in an idle phase and subtracted.
"""

import base64
import hashlib
import hmac
import json
import os
import pathlib
import random
import re
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time

SECRET = "a-secret-for-counting-that-is-long-enough"
KEY = "a-key-for-counting"
SUBSCRIBERS, EVENTS, CLIENTS, HISTORY, CONNECTIONS = 200, 300, 200, 100, 2_000
HERE = pathlib.Path(__file__).resolve().parent


def token(user: str) -> str:
    part = lambda value: base64.urlsafe_b64encode(json.dumps(value, separators=(",", ":")).encode()).rstrip(b"=").decode()
    signed = part({"alg": "HS256", "typ": "JWT"}) + "." + part({"sub": user})
    digest = hmac.new(SECRET.encode(), signed.encode(), hashlib.sha256).digest()
    return signed + "." + base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def free_port() -> int:
    """A free port below the kernel's range for outgoing connections."""
    while True:
        port = random.randrange(10_000, 30_000)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port


class Client:
    """A WebSocket client without an SDK. The server's work for each command is counted, so each client sends the same bytes in every run."""

    def __init__(self, port: int, number: int):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=300)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer, self.number, self.last = b"", number, 0
        key = base64.b64encode(struct.pack(">QQ", 0, number)).decode()
        self.socket.sendall(
            f"GET /connection/websocket HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        while b"\r\n\r\n" not in self.buffer:
            self.receive()
        head, self.buffer = self.buffer.split(b"\r\n\r\n", 1)
        assert b" 101 " in head.split(b"\r\n")[0], head
        self.ask({"connect": {"token": token(f"user{number:05}")}})

    def receive(self) -> None:
        data = self.socket.recv(1 << 20)
        assert data, "the server closed the connection"
        self.buffer += data

    def send(self, command: dict) -> int:
        self.last += 1
        payload = json.dumps({"id": self.last, **command}, separators=(",", ":")).encode()
        length = struct.pack("B", 0x80 | len(payload)) if len(payload) < 126 else struct.pack(">BH", 0xFE, len(payload))
        self.socket.sendall(b"\x81" + length + b"\0\0\0\0" + payload)
        return self.last

    def frame(self) -> bytes:
        while True:
            if len(self.buffer) >= 2:
                length, start = self.buffer[1] & 0x7F, 2
                if length == 126 and len(self.buffer) >= 4:
                    length, start = struct.unpack(">H", self.buffer[2:4])[0], 4
                elif length == 127 and len(self.buffer) >= 10:
                    length, start = struct.unpack(">Q", self.buffer[2:10])[0], 10
                elif length > 125:
                    length = len(self.buffer) + 1
                if len(self.buffer) >= start + length:
                    payload, self.buffer = self.buffer[start : start + length], self.buffer[start + length :]
                    return payload
            self.receive()

    def ask(self, command: dict) -> dict:
        number = self.send(command)
        while True:
            for line in self.frame().split(b"\n"):
                reply = json.loads(line)
                if reply.get("id") == number:
                    assert "error" not in reply, reply
                    return reply


class Api:
    """One kept connection to the server API."""

    def __init__(self, port: int):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=300)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def publish(self, channel: str, number: int) -> None:
        body = json.dumps({"channel": channel, "data": {"number": 100_000 + number, "text": "x" * 100}}).encode()
        self.socket.sendall(
            f"POST /api/publish HTTP/1.1\r\nHost: localhost\r\nX-API-Key: {KEY}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
        )
        answer = b""
        while b"\r\n\r\n" not in answer or len(answer.split(b"\r\n\r\n", 1)[1]) < int(re.search(rb"(?i)content-length: (\d+)", answer)[1]):
            answer += self.socket.recv(65536)
        assert b'"error"' not in answer and b" 200 " in answer.split(b"\r\n")[0], answer


class Server:
    """The server under test, and the program that counts."""

    def __init__(self, binary: str, directory: str, before: list, environment: dict):
        self.port = free_port()
        open_to_all = {"allow_subscribe_for_client": True}
        history = {"history_size": HISTORY, "history_ttl": "1h", "force_recovery": True}
        config = {
            "http_server": {"address": "127.0.0.1", "port": self.port},
            "http_api": {"key": KEY},
            "health": {"enabled": True},
            "node": {"shards": 1},
            "client": {"token": {"hmac_secret_key": SECRET}, "ping_interval": "600s", "stale_close_delay": "600s"},
            "channel": {"without_namespace": open_to_all, "namespaces": [{"name": "kept", **open_to_all, **history}]},
            "registry": {"scopes": [{"name": "devices", "allow_register": ["*"]}]},
            "shutdown": {"spread": "10ms", "timeout": "2s"},
        }
        file = pathlib.Path(directory, "config.json")
        file.write_text(json.dumps(config))
        file.chmod(0o600)
        self.process = subprocess.Popen([*before, binary, "serve", "--config", str(file)], env={**os.environ, **environment}, cwd=directory, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(1_200):
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                break
            except OSError:
                assert self.process.poll() is None, "the server ended"
                time.sleep(0.1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(120)
        except subprocess.TimeoutExpired:
            self.process.kill()


class Counter:
    """The instructions between two moments, without the server's own work in that time."""

    def __init__(self, server: Server, directory: str):
        self.pid, self.directory, self.idle_second = server.process.pid, pathlib.Path(directory), 0.0

    def control(self, *arguments: str) -> None:
        subprocess.run(["callgrind_control", *arguments, str(self.pid)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def of(self, action) -> float:
        time.sleep(0.5)
        self.control("--zero")
        began = time.monotonic()
        action()
        time.sleep(0.5)
        seconds = time.monotonic() - began
        known = set(self.directory.glob("callgrind.out.*"))
        self.control("--dump")
        (dump,) = set(self.directory.glob("callgrind.out.*")) - known
        total = int(re.search(r"^totals: (\d+)", dump.read_text(), re.M)[1])
        return total - self.idle_second * seconds


def instructions(binary: str) -> dict:
    with tempfile.TemporaryDirectory() as directory:
        callgrind = ["valgrind", "--tool=callgrind", "--quiet", f"--callgrind-out-file={directory}/callgrind.out"]
        with Server(binary, directory, callgrind, {}) as server:
            counter, api, costs = Counter(server, directory), Api(server.port), {}
            clients = [Client(server.port, number) for number in range(SUBSCRIBERS)]
            for number in range(20):
                api.publish("warm", number)
            counter.idle_second = counter.of(lambda: time.sleep(10)) / 11
            costs["idle_second"] = counter.idle_second

            def publish(channel: str) -> float:
                return counter.of(lambda: [api.publish(channel, number) for number in range(EVENTS)])

            def drained() -> None:
                for number in range(EVENTS):
                    api.publish("news", number)
                    for client in clients:
                        client.frame()

            costs["publish"] = publish("nobody") / EVENTS
            for client in clients:
                client.ask({"subscribe": {"channel": "news"}})
            api.publish("news", 0)
            for client in clients:
                client.frame()
            costs["delivery"] = (counter.of(drained) - publish("nobody")) / (EVENTS * SUBSCRIBERS)
            for client in clients:
                client.socket.close()

            def connect() -> list:
                new = [Client(server.port, 10_000 + number) for number in range(CLIENTS)]
                for client in new:
                    client.ask({"subscribe": {"channel": "news"}})
                return new

            kept = connect()
            costs["connect_with_subscribe"] = counter.of(lambda: kept.extend(connect())) / CLIENTS
            for number in range(HISTORY):
                api.publish("kept:match", number)

            def subscribe(some: list, recover: dict) -> None:
                for client in some:
                    client.ask({"subscribe": {"channel": "kept:match", **recover}})

            epoch = kept[0].ask({"subscribe": {"channel": "kept:match"}})["subscribe"]["epoch"]
            recovery = {"recover": True, "offset": 0, "epoch": epoch}
            subscribe(kept[1:10], recovery)
            with_recovery = counter.of(lambda: subscribe(kept[10:110], recovery)) / 100
            without = counter.of(lambda: subscribe(kept[110:210], {})) / 100
            costs["recovered_publication"] = (with_recovery - without) / HISTORY

            def register(start: int) -> None:
                for number in range(start, start + 500):
                    kept[number // 100].ask({"rpc": {"method": "registry.register", "data": {"scope": "devices", "name": f"device{number:05}"}}})

            register(0)
            costs["registration"] = counter.of(lambda: register(500)) / 500
            return {name: round(value) if value >= 100 else round(value, 1) for name, value in costs.items()}


def idle_connection_bytes(binary: str) -> float:
    with tempfile.TemporaryDirectory() as directory:
        library, file = f"{directory}/heap.so", pathlib.Path(directory, "heap")
        subprocess.run(["cc", "-O1", "-fPIC", "-shared", "-o", library, str(HERE / "heap.c")], check=True)
        with Server(binary, directory, [], {"LD_PRELOAD": library, "HEAP_COUNTER": str(file)}) as server:
            live = lambda: struct.unpack("<q", file.read_bytes())[0]

            def connected(numbers) -> list:
                new = [Client(server.port, number) for number in numbers]
                for client in new:
                    client.ask({"subscribe": {"channel": "news"}})
                time.sleep(1)
                return new

            # Tables grow by doubling. Between these two powers of two each table grows as often as it can.
            first = connected(range(CONNECTIONS))
            before = live()
            second = connected(range(CONNECTIONS, 2 * CONNECTIONS))
            after = live()
            assert len(first) + len(second) == 2 * CONNECTIONS
            return round((after - before) / CONNECTIONS, 1)


def sizes(binary: str) -> dict:
    """The binary without its symbols, and the memory of a server without clients, MB."""
    with tempfile.TemporaryDirectory() as directory:
        stripped = pathlib.Path(directory, "touchline")
        subprocess.run(["strip", "--strip-unneeded", "-o", str(stripped), binary], check=True)
        with Server(str(stripped), directory, [], {}) as server:
            time.sleep(2)
            resident = re.search(r"^VmRSS:\s+(\d+) kB", pathlib.Path(f"/proc/{server.process.pid}/status").read_text(), re.M)
            return {"binary_megabytes": round(stripped.stat().st_size / 1e6, 1), "memory_at_rest_megabytes": round(int(resident[1]) * 1024 / 1e6, 1)}


def base() -> dict:
    """The costs of the base commit."""
    lines = (HERE / "base.toml").read_text().splitlines() if (HERE / "base.toml").exists() else []
    return {name: float(value) for name, value in (line.split(" = ") for line in lines if " = " in line and not line.startswith("#"))}


def main() -> None:
    binary, runs = os.path.abspath(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 3
    tables = [{**instructions(binary), "idle_connection_bytes": idle_connection_bytes(binary), **sizes(binary)} for _ in range(runs)]
    then, dearer = base(), 0
    print("# User-space instructions of one of each, heap bytes of an idle connection with one subscription, the stripped binary")
    print("# and the memory of a server without clients; written by ./x cost.")
    for name in tables[0]:
        value = statistics.median(table[name] for table in tables)
        print(f"{name} = {value:.7g}")
        if name in then:
            limit = then[name] + 64 if name.endswith("_bytes") else then[name] * 1.03
            dearer += value > limit
            note = "  MORE THAN ALLOWED" if value > limit else ""
            print(f"  {name}: {value:.7g}, base {then[name]:.7g}, {value / then[name] * 100 - 100:+.1f} %{note}", file=sys.stderr)
    print(f"{len(then) - dearer} passed, {dearer} failed", file=sys.stderr)
    sys.exit(dearer > 0)


main()
