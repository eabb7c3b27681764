"""Centrifugo's server library for Python against the real server: every method of the library."""

import asyncio
import inspect
import time
import typing
import uuid

import cent
import pytest
from cent import dto
from centrifuge import Client as RealtimeClient
from centrifuge import SubscriptionEventHandler
from conftest import KEY, PATIENCE, until_async

#: Operations that this server has, and that Centrifugo has only in its commercial edition.
WHO = {"connections", "get_user_status"}
BANS = {"block_user", "unblock_user", "revoke_token", "invalidate_user_tokens"}
#: The other operations that this server has. All other methods of the library are for Centrifugo's commercial edition.
CORE = {"publish", "broadcast", "subscribe", "unsubscribe", "disconnect", "presence", "presence_stats", "history",
        "history_remove", "info", "refresh", "channels", "batch"}


def methods() -> dict[str, type]:
    """The methods of the library that send a request, each with the type of the request."""
    found = {}
    for name, method in inspect.getmembers(cent.Client, inspect.isfunction):
        parameters = list(typing.get_type_hints(method).items())
        if not name.startswith("_") and parameters and isinstance(parameters[0][1], type) and issubclass(parameters[0][1], dto.CentRequest):
            found[name] = parameters[0][1]
    found["info"], found["batch"] = dto.InfoRequest, dto.BatchRequest
    return found


@pytest.fixture
def library(server):
    with cent.Client(f"{server.http}/api", KEY) as client:
        yield client


class Quiet(SubscriptionEventHandler):
    """Ignores all events."""


async def connected(server, user: str, channel: str):
    """A client of this user that has subscribed to a channel. Its token names the user."""
    async def token(_ctx=None) -> str:
        return server.token(sub=user)

    client = RealtimeClient(server.websocket, get_token=token)
    subscription = client.new_subscription(channel, events=Quiet())
    await client.connect()
    await subscription.subscribe()
    await client.ready(timeout=PATIENCE)
    await subscription.ready(timeout=PATIENCE)
    return client


def fresh(namespace: str) -> str:
    return f"{namespace}:{uuid.uuid4().hex[:12]}"


def test_publications_and_history(library):
    first, second = fresh("history"), fresh("history")
    result = library.publish(dto.PublishRequest(channel=first, data={"n": 1}, tags={"a": "b"}, idempotency_key=uuid.uuid4().hex))
    assert result.offset == 1 and result.epoch
    result = library.broadcast(dto.BroadcastRequest(channels=[first, second, "unknown:x"], data=[2], skip_history=False))
    assert [response.result and response.result.offset for response in result.responses] == [2, 1, None]
    assert result.responses[2].error.code == 102
    kept = library.history(dto.HistoryRequest(channel=first, limit=-1, reverse=True))
    assert [publication.data for publication in kept.publications] == [[2], {"n": 1}]
    since = dto.StreamPosition(offset=1, epoch=kept.epoch)
    assert [p.offset for p in library.history(dto.HistoryRequest(channel=first, limit=10, since=since)).publications] == [2]
    library.history_remove(dto.HistoryRemoveRequest(channel=first))
    assert library.history(dto.HistoryRequest(channel=first, limit=10)).publications == []


def test_what_concerns_connections(server, library):
    user, channel = uuid.uuid4().hex, fresh("room")

    async def scenario():
        client = await connected(server, user, channel)
        call = asyncio.to_thread
        present = (await call(library.presence, dto.PresenceRequest(channel=channel))).presence
        assert [info.user for info in present.values()] == [user]
        stats = await call(library.presence_stats, dto.PresenceStatsRequest(channel=channel))
        assert (stats.num_clients, stats.num_users) == (1, 1)
        pattern = channel[:-1] + "?"
        assert (await call(library.channels, dto.ChannelsRequest(pattern=pattern))).channels[channel].num_clients == 1
        await call(library.subscribe, dto.SubscribeRequest(user=user, channel="personal", data={"x": 1}))
        assert "personal" in (await call(library.channels, dto.ChannelsRequest())).channels
        await call(library.unsubscribe, dto.UnsubscribeRequest(user=user, channel="personal"))
        assert "personal" not in (await call(library.channels, dto.ChannelsRequest())).channels
        await call(library.refresh, dto.RefreshRequest(user=user, expire_at=int(time.time()) + 3600))
        info = await call(library.info, dto.InfoRequest())
        node = info.nodes[0]
        assert node.name and node.num_clients >= 1 and node.process.rss > 1 << 20 and node.metrics.items["connections"] >= 1
        await call(library.disconnect, dto.DisconnectRequest(user=user, session="of nobody"))
        assert (await call(library.presence_stats, dto.PresenceStatsRequest(channel=channel))).num_clients == 1
        await call(library.disconnect, dto.DisconnectRequest(user=user, disconnect=dto.Disconnect(code=4000, reason="bye")))

        async def has_ended() -> bool:
            return not (await call(library.presence_stats, dto.PresenceStatsRequest(channel=channel))).num_clients

        await until_async(has_ended)
        await client.disconnect()

    asyncio.run(scenario())


@pytest.mark.parametrize("parallel", [None, True])
def test_a_batch(library, parallel):
    channel = fresh("history")
    requests = [
        dto.PublishRequest(channel=channel, data=1),
        dto.HistoryRequest(channel=channel, limit=1),
        dto.ChannelsRequest(),
        dto.PresenceStatsRequest(channel="room:a"),
    ]
    published, kept, channels, stats = library.batch(dto.BatchRequest(requests=requests, parallel=parallel)).replies
    assert published.offset == 1 and kept.publications[0].data == 1
    assert isinstance(channels.channels, dict) and stats.num_clients == 0


def test_errors_are_told_as_the_library_reads_them(server, library):
    with pytest.raises(cent.CentApiResponseError) as refused:
        library.publish(dto.PublishRequest(channel="unknown:x", data=1))
    assert refused.value.code == 102 and refused.value.message.startswith("unknown channel: ")
    with pytest.raises(cent.CentUnauthorizedError):
        cent.Client(f"{server.http}/api", "another key").info(dto.InfoRequest())


def test_methods_of_other_editions_are_told_apart(library):
    others = {name: request for name, request in methods().items() if name not in CORE | BANS | WHO}
    assert CORE <= methods().keys() and len(others) > 10
    for name, request in others.items():
        with pytest.raises(cent.CentTransportError) as refused:
            getattr(library, name)(request.model_construct())
        assert refused.value.status_code == 404, name


def test_the_asynchronous_client(server):
    async def scenario():
        async with cent.AsyncClient(f"{server.http}/api", KEY) as client:
            channel = fresh("history")
            assert (await client.publish(dto.PublishRequest(channel=channel, data=1))).offset == 1
            assert (await client.batch(dto.BatchRequest(requests=[dto.HistoryRequest(channel=channel, limit=1)]))).replies[0].offset == 1
            assert (await client.info(dto.InfoRequest())).nodes[0].name

    asyncio.run(scenario())
