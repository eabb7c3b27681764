"""The OpenAPI document of the server API: it is valid, the answers agree with it, and a fuzzer uses it."""

import contextlib
import json
import os
import subprocess
import sys
import threading
import urllib.error
import urllib.request

import openapi_spec_validator
import pytest
from conftest import KEY, PATIENCE, configuration, free_port, start
from jsonschema import Draft202012Validator, FormatChecker
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

#: Operations that need a hook or endpoints of events, which this node does not have.
WITHOUT_RESULT = {"rpc", "events_resume", "events_dead", "events_dead_retry", "events_dead_drop"}
#: Seconds of fuzzing.
SHORT, LONG = 60, 900


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """A node on which every operation can return a result."""
    directory = tmp_path_factory.mktemp("openapi")
    store = {
        "directory": True,
        "primary": {"url": f"sqlite:{directory / 'primary.db'}"},
        "stats": {"enabled": True, "url": f"sqlite:{directory / 'stats.db'}"},
    }
    config = configuration(free_port(), {}, store=store, registry={"scopes": [{"name": "devices", "inbox_size": 100, "allow_watch_for_client": True}]})
    running, process = start(directory / "config.json", config)
    yield running
    process.terminate()
    assert process.wait(PATIENCE) == 0


def request(node, path: str, body=None, **headers) -> tuple[int, dict, bytes]:
    """The status, the headers and the body of an answer."""
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(f"{node.http}{path}", data, {"X-API-Key": KEY, **headers})
    try:
        with urllib.request.urlopen(asked, timeout=PATIENCE) as answer:
            return answer.status, dict(answer.headers), answer.read()
    except urllib.error.HTTPError as refused:
        return refused.code, dict(refused.headers), refused.read()


@pytest.fixture(scope="module")
def document(node) -> dict:
    status, headers, body = request(node, "/api/openapi.json")
    assert (status, headers["content-type"]) == (200, "application/json")
    return json.loads(body)


def resolved(document: dict, value: dict) -> dict:
    while "$ref" in value:
        place = document
        for name in value["$ref"].removeprefix("#/").split("/"):
            place = place[name]
        value = place
    return value


def check(document: dict, schema: dict, value) -> None:
    """Compares a value with a schema of the document."""
    whole = {**schema, "components": document["components"]}
    Draft202012Validator(whole, format_checker=FormatChecker()).validate(value)


def call(node, document: dict, path: str, body=None, **headers):
    """Makes a call and compares the answer with the document's description of its status."""
    kind = "get" if body is None else "post"
    described = document["paths"][path][kind]["responses"]
    status, got, text = request(node, path, body, **headers)
    assert str(status) in described, f"{path} answers {status}: {text}"
    answer = json.loads(text)
    content = resolved(document, described[str(status)])["content"]
    check(document, content[got["content-type"]]["schema"], answer)
    assert got["x-request-id"]
    return answer


def operations(document: dict) -> list[str]:
    return [path for path, methods in document["paths"].items() if "x-touchline-scope" in methods.get("post", {})]


def test_the_document_is_valid(document):
    assert document["openapi"].startswith("3.1")
    openapi_spec_validator.validate(document)


def test_every_example_is_of_its_schema(document):
    for name, schema in document["components"]["schemas"].items():
        for example in schema.get("examples", []):
            check(document, {"$ref": f"#/components/schemas/{name}"}, example)
    for methods in document["paths"].values():
        for content in [method["requestBody"]["content"] for method in methods.values() if "requestBody" in method]:
            check(document, content["application/json"]["schema"], content["application/json"]["example"])


def test_every_call_with_its_example_is_answered_as_described(node, document):
    assert len(operations(document)) > 40
    for path, methods in document["paths"].items():
        bodies = [method["requestBody"]["content"]["application/json"]["example"] if "requestBody" in method else None for method in methods.values()]
        for mode in ({}, {"X-Centrifugo-Error-Mode": "transport"}, {"Accept": "application/vnd.touchline.v1+json"}):
            for body in bodies:
                call(node, document, path, body, **mode)


def test_what_is_refused_is_refused_as_described(node, document):
    for path in operations(document):
        for mode in ({}, {"X-Centrifugo-Error-Mode": "transport"}):
            for body in ([], 7, {"user": {}, "channel": {}, "scope": {}, "method": {}, "query": {}, "client": {}, "channels": 7, "pattern": 7, "of": 7, "event": 7}):
                if path != "/api/info" or body != 7:
                    call(node, document, path, body, **mode)
            call(node, document, path, {}, Accept="application/vnd.touchline.v999+json", **mode)
            call(node, document, path, {}, **{"X-API-Key": "wrong", **mode})


class Device:
    """A client that answers every call. It implements the protocol itself, because the library has no calls."""

    def __init__(self, socket, token: str):
        self.socket = socket
        self.send({"id": 1, "connect": {"token": token}})
        self.send({"id": 2, "subscribe": {"channel": "room:a"}})
        self.client, self.is_subscribed = None, threading.Event()
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()
        assert self.is_subscribed.wait(PATIENCE)

    def send(self, command: dict) -> None:
        self.socket.send(json.dumps(command))

    def serve(self) -> None:
        with contextlib.suppress(ConnectionClosed):
            self.answer()

    def answer(self) -> None:
        for frame in self.socket:
            for line in frame.splitlines():
                message = json.loads(line)
                if not message:
                    self.socket.send("{}")
                if "connect" in message:
                    self.client = message["connect"]["client"]
                if "subscribe" in message:
                    self.is_subscribed.set()
                called = message.get("push", {}).get("message", {}).get("data", {})
                if "call" in called:
                    reply = {"call": called["call"], "data": {"at": "depot"}}
                    self.send({"id": 7, "rpc": {"method": "reply", "data": reply}})


def test_every_operation_that_has_a_result_gives_one_as_described(node, document):
    # The examples block another user, and invalidate that user's tokens.
    with connect(node.websocket) as socket:
        go_through(node, document, Device(socket, node.token(sub="device")))


def go_through(node, document, device):
    name = {"scope": "devices", "name": "bike-7"}
    group = {"scope": "devices", "group": "bikes"}
    of_client = {"client": device.client}
    given = set()

    def good(operation: str, **body) -> dict:
        answer = call(node, document, f"/api/{operation}", body)
        assert "result" in answer, f"{operation}: {answer}"
        given.add(operation)
        return answer["result"]

    position = good("publish", channel="history:a", data={"n": 1}, tags={"a": "b"}, expires_in=600)
    good("broadcast", channels=["history:a", "unknown:a"], data=[2])
    assert len(good("history", channel="history:a", limit=-1)["publications"]) == 2
    good("history", channel="history:a", limit=1, since={"offset": 1, "epoch": position["epoch"]})
    good("subscribe", user="device", channel="news", info={"a": 1}, override={"presence": {"value": True}})
    assert good("presence", channel="room:a")["presence"]
    good("presence_stats", channel="room:a")
    assert good("channels", pattern="room:*")["channels"]
    good("info")
    assert good("client_user", **of_client) == {"user": "device"}
    good("register", **name, meta={"colour": "red"}, **of_client)
    version = good("lookup", **name)["version"]
    good("update_meta", **name, meta=None, version=version, **of_client)
    good("join", **group, meta=[1], **of_client)
    good("names", scope="devices", prefix="bike")
    good("groups", scope="devices")
    good("count", scope="devices")
    good("members", **group)
    good("members", **group, limit=1)
    good("member", **group, **of_client)
    start_at = good("changes", scope="devices")
    good("send", **name, data=None)
    kept = good("send", **name, data=1, store_for=60)["id"]
    assert good("inbox_names", scope="devices", prefix="bike")["names"][0]["waiting"] >= 1
    assert kept in [message["id"] for message in good("inbox_list", **name)["messages"]]
    assert good("inbox_drop", **name, ids=[kept, "999999"]) == {"dropped": 1}
    good("inbox_drop", **name)
    assert good("call", **name, data={"where": True}) == {"data": {"at": "depot"}}
    assert len(good("multi_call", **group, data=1)["replies"]) == 1
    good("leave", **group, **of_client)
    good("unregister", **name, **of_client)
    good("changes", scope="devices", offset=start_at["offset"], epoch=start_at["epoch"])
    good("channel_set", channel="match-42", title="Rovers v United", type="match", tags=["football"])
    good("channel_set", channel="match-43", title="Rovers v City", tags=["football"])
    good("channel_get", channel="match-42")
    assert good("channels_search", query="rovers")["channels"]
    good("channels_similar", channel="match-42")
    good("channel_remove", channel="match-42")
    for operation, body in (("stats_audience", {"channel": "room:a"}), ("stats_events", {"by": "team"})):
        good(operation, **body)
    for kind in ("channels", "namespaces", "events", "transports", "agents", "codes"):
        good("stats_top", of=kind)
    good("refresh", user="device", info={"a": 1})
    good("unsubscribe", user="device", channel="news")
    good("history_remove", channel="history:a")
    good("disconnect", user="device", disconnect={"code": 4501, "reason": "bye"})
    good("block_user", user="43")
    good("unblock_user", user="43")
    good("revoke_token", uid="5e1f6a2c")
    good("invalidate_user_tokens", user="43")
    assert {ban["kind"] for ban in good("bans")["bans"]} >= {"token", "issued_before"}
    forgotten = good("forget_user", user="43", names=[name])
    assert forgotten["done"] and forgotten["remains"]["bans"] == ["issued_before"]
    assert good("token_check", token=node.token(sub="44", exp=4102444800))["valid"]
    assert not good("token_check", token="no token")["valid"]
    assert good("connections", user="device") is not None
    assert good("overview")["nodes"] and good("overview_history")["step_ms"] == 10_000
    assert good("activity")["activity"] and good("configuration")["keys"]
    assert good("consumers")["consumers"] == []
    assert good("channel", channel="history:a")["options"]
    assert "refusals" in good("refusals")
    assert good("trace", id="t", channel="news") == {"frames": [], "left_out": 0, "ended": False}
    good("get_user_status", users=["device"])
    assert good("reaction_open", channel="news", options=["applause", "boo"])["opened"]
    good("reactions_add", channel="news", option="boo", n=3)
    assert good("reactions_get", channel="news")["reactions"] == {"applause": 0, "boo": 3}
    assert good("reactions_close", channel="news")["closed"]
    assert good("reload") == {"generation": 1, "changed": []}
    device.thread.join(PATIENCE)
    expected = {path.removeprefix("/api/") for path in operations(document)} - WITHOUT_RESULT
    assert given == expected


def test_schemathesis_finds_no_answer_outside_the_document(node, document, tmp_path):
    seconds = LONG if os.environ.get("TOUCHLINE_LONG") else SHORT
    checks = ["not_a_server_error", "status_code_conformance", "content_type_conformance", "response_headers_conformance", "response_schema_conformance"]
    # In this mode an error has an HTTP status, so the fuzzer checks that invalid requests are refused. Commands of a batch have no status.
    alone = ["--checks", ",".join([*checks, "negative_data_rejection"]), "--exclude-path", "/api/batch", "--exclude-path", "/api"]
    for mode, options in (("transport", alone), ("inside", ["--checks", ",".join(checks)])):
        command = [
            sys.executable, "-m", "schemathesis.cli", "run", f"{node.http}/api/openapi.json", "-H", f"X-API-Key: {KEY}",
            "-H", f"X-Centrifugo-Error-Mode: {mode}", *options, "--max-time", str(seconds // 2),
            "--max-examples", "20", "--phases", "examples,coverage,fuzzing", "--continue-on-failure", "--no-color", "--warnings", "off",
            "--request-timeout", "20",
        ]
        ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=3 * (seconds + PATIENCE), check=False)
        assert ended.returncode == 0, ended.stdout[-20_000:] + ended.stderr[-2_000:]
        assert "Test cases:" in ended.stdout, ended.stdout[-2_000:]
