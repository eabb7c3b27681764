"""Batches of events: the library of Standard Webhooks verifies the bytes as they arrived."""

import asyncio
import http.server
import json
import threading

import pytest
from conftest import PATIENCE, configuration, free_port, start, until_async
from centrifuge import Client as RealtimeClient
from standardwebhooks import Webhook, WebhookVerificationError

SECRET = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
BEFORE = "whsec_ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8="


class Receiver(http.server.BaseHTTPRequestHandler):
    """Keeps each batch: its header fields and its bytes."""

    batches: list[tuple[dict, bytes]] = []

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        Receiver.batches.append((dict(self.headers), body))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        """Writes no log."""


@pytest.fixture
def told(tmp_path):
    receiver = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=receiver.serve_forever, daemon=True).start()
    Receiver.batches = []
    events = [{
        "name": "backend", "endpoint": f"http://127.0.0.1:{receiver.server_port}/", "secret": SECRET, "secret_previous": BEFORE,
        "types": ["connected", "user_online"],
    }]
    running, process = start(tmp_path / "config.json", configuration(free_port(), {}, events=events))
    yield running
    process.terminate()
    assert process.wait(PATIENCE) == 0
    receiver.shutdown()


async def connect_until_told(told) -> None:
    async def token(_ctx=None) -> str:
        return told.token(sub="ann")

    client = RealtimeClient(told.websocket, get_token=token)
    await client.connect()
    await client.ready(timeout=PATIENCE)

    async def has_both() -> bool:
        types = {event["type"] for _, body in list(Receiver.batches) for event in json.loads(body)}
        return {"io.touchline.client.connected", "io.touchline.user.online"} <= types

    await until_async(has_both)
    await client.disconnect()


def test_the_library_verifies_each_batch(told):
    asyncio.run(connect_until_told(told))
    for headers, body in Receiver.batches:
        for secret in (SECRET, BEFORE):
            assert Webhook(secret).verify(body, headers) == json.loads(body)
        with pytest.raises(WebhookVerificationError):
            Webhook(SECRET).verify(body.replace(b"1.0", b"1.1", 1), headers)
        with pytest.raises(WebhookVerificationError):
            Webhook("whsec_" + "A" * 44).verify(body, headers)
