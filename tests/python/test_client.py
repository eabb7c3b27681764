"""The official Python SDK against the real server, in both encodings."""

import asyncio
import json
import time
import uuid

import pytest
from centrifuge import Client, ClientEventHandler, ClientState, ReplyError, SubscriptionEventHandler
from conftest import PATIENCE, until_async


class Events(SubscriptionEventHandler):
    """Puts the events of a subscription into queues."""

    def __init__(self):
        self.publications, self.joins, self.subscribed, self.gone = (asyncio.Queue() for _ in range(4))

    async def on_publication(self, ctx):
        await self.publications.put(ctx)

    async def on_join(self, ctx):
        await self.joins.put(ctx)

    async def on_subscribed(self, ctx):
        await self.subscribed.put(ctx)

    async def on_unsubscribed(self, ctx):
        await self.gone.put(ctx)


class ClientEvents(ClientEventHandler):
    """Puts the events of a connection into queues."""

    def __init__(self):
        self.disconnected, self.connecting = asyncio.Queue(), asyncio.Queue()

    async def on_disconnected(self, ctx):
        await self.disconnected.put(ctx)

    async def on_connecting(self, ctx):
        await self.connecting.put(ctx)


class Json:
    """Payloads are values."""

    options: dict = {"timeout": PATIENCE}
    pack = unpack = staticmethod(lambda value: value)


class Protobuf:
    """Payloads are bytes."""

    options = {"use_protobuf": True, "timeout": PATIENCE}
    pack = staticmethod(lambda value: json.dumps(value).encode())
    unpack = staticmethod(json.loads)


@pytest.fixture(params=[Json, Protobuf], ids=["json", "protobuf"])
def wire(request):
    return request.param


def run(scenario):
    asyncio.run(asyncio.wait_for(scenario, 3 * PATIENCE))


def unique(prefix: str) -> str:
    return f"{prefix}{uuid.uuid4().hex}"


async def api(server, method, **body):
    return await asyncio.to_thread(server.api, method, **body)


async def follow(client, channel, **options):
    events = Events()
    subscription = client.new_subscription(channel, events, **options)
    await subscription.subscribe()
    return subscription, events


def test_it_connects_subscribes_and_sees_what_is_published(server, wire):
    async def scenario():
        client = Client(server.websocket, **wire.options)
        await client.connect()
        channel = unique("news")
        subscription, events = await follow(client, channel)
        await subscription.ready(timeout=PATIENCE)
        await api(server, "publish", channel=channel, data={"n": 1})
        assert wire.unpack((await events.publications.get()).pub.data) == {"n": 1}
        await client.disconnect()

    run(scenario())


def test_it_publishes_and_tells_presence(server, wire):
    async def scenario():
        client = Client(server.websocket, **wire.options, token=server.token(sub="ann"))
        await client.connect()
        channel = unique("room:")
        subscription, events = await follow(client, channel)
        await subscription.ready(timeout=PATIENCE)
        await subscription.publish(wire.pack({"hello": True}))
        publication = (await events.publications.get()).pub
        assert (wire.unpack(publication.data), publication.info.user) == ({"hello": True}, "ann")
        assert (await events.joins.get()).info.user == "ann"
        stats = await subscription.presence_stats()
        assert (stats.num_clients, stats.num_users) == (1, 1)
        assert [info.user for info in (await subscription.presence()).clients.values()] == ["ann"]
        await client.disconnect()

    run(scenario())


def test_it_recovers_exactly_what_it_missed(server, wire):
    async def scenario():
        user, channel = unique("u"), unique("history:")
        told = ClientEvents()
        client = Client(server.websocket, **wire.options, events=told, token=server.token(sub=user), min_reconnect_delay=0.3)
        await client.connect()
        subscription, events = await follow(client, channel)
        await subscription.ready(timeout=PATIENCE)
        await api(server, "publish", channel=channel, data=1)
        assert wire.unpack((await events.publications.get()).pub.data) == 1
        while not told.connecting.empty():
            told.connecting.get_nowait()
        await api(server, "disconnect", user=user, disconnect={"code": 3000, "reason": "come back"})
        await told.connecting.get()
        for n in range(2, 6):
            await api(server, "publish", channel=channel, data=n)
        assert [wire.unpack((await events.publications.get()).pub.data) for _ in range(4)] == [2, 3, 4, 5]
        history = await subscription.history(limit=10)
        assert [wire.unpack(publication.data) for publication in history.publications] == [1, 2, 3, 4, 5]
        await client.disconnect()

    run(scenario())


def test_it_recovers_from_one_run_of_the_store_to_the_next(durable, wire):
    """Each start of a node is a run, and the epoch names the run: a complete recovery after a restart returns another epoch."""

    async def scenario():
        channel = unique("history:")
        client = Client(durable.server.websocket, **wire.options, min_reconnect_delay=0.05, max_reconnect_delay=0.2)
        await client.connect()
        subscription, events = await follow(client, channel)
        await subscription.ready(timeout=PATIENCE)
        epochs = [(await events.subscribed.get()).stream_position.epoch]
        for n in range(1, 4):
            await api(durable.server, "publish", channel=channel, data=n)
            assert wire.unpack((await events.publications.get()).pub.data) == n
            await asyncio.to_thread(durable.begin_another_run)
            subscribed = await events.subscribed.get()
            assert (subscribed.was_recovering, subscribed.recovered) == (True, True)
            epochs.append(subscribed.stream_position.epoch)
        assert len(set(epochs)) == 4, epochs
        assert events.publications.empty(), "no publication arrives twice"
        await client.disconnect()

    run(scenario())


def test_it_refreshes_its_token(server, wire):
    async def scenario():
        asked = []

        async def get_token(*_):
            asked.append(time.time())
            return server.token(sub="ann", exp=int(time.time()) + (5 if len(asked) == 1 else 3600))

        async def has_asked() -> bool:
            return len(asked) >= 2

        told = ClientEvents()
        client = Client(server.websocket, **wire.options, events=told, get_token=get_token)
        await client.connect()
        await client.ready(timeout=PATIENCE)
        await until_async(has_asked)
        with pytest.raises(ReplyError):  # This answer comes after the answer about the token.
            await client.rpc("nothing", wire.pack({}))
        # The client keeps its one connection. A client that the server disconnects would also ask for a token, and reconnect.
        assert (client.state, told.connecting.qsize()) == (ClientState.CONNECTED, 1)
        await client.disconnect()

    run(scenario())


def test_a_subscription_token_opens_a_private_channel(server, wire):
    async def scenario():
        channel = unique("$closed:")
        client = Client(server.websocket, **wire.options, token=server.token(sub="ann"))
        await client.connect()

        async def get_token(*_):
            return server.token(sub="ann", channel=channel)

        subscription, _ = await follow(client, channel, get_token=get_token)
        await subscription.ready(timeout=PATIENCE)
        _, refused = await follow(client, unique("closed:"))
        assert (await refused.gone.get()).code == 103
        await client.disconnect()

    run(scenario())


def test_a_final_disconnect_code_is_final(server, wire):
    async def scenario():
        user, told = unique("u"), ClientEvents()
        client = Client(server.websocket, **wire.options, events=told, token=server.token(sub=user))
        await client.connect()
        await client.ready(timeout=PATIENCE)
        await api(server, "disconnect", user=user)
        assert (await told.disconnected.get()).code == 3503

    run(scenario())


def test_a_bad_token_is_refused(server, wire):
    async def scenario():
        told = ClientEvents()
        client = Client(server.websocket, **wire.options, events=told, token="no.such.token")
        await client.connect()
        assert (await told.disconnected.get()).code == 3500

    run(scenario())
