// Payloads that are not JSON, over every transport and through every log: a receiver gets the bytes that were sent.
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { Centrifuge as Json } from 'centrifuge';
import { Centrifuge as Protobuf } from 'centrifuge/build/protobuf';
import { EventSource } from 'eventsource';
import WebSocket from 'ws';
import { Backend, lines, ONE_WAY } from './hooks.mjs';
import { JetStream } from './jetstream.mjs';
import { Nats } from './nats.mjs';
import { LIMIT, PATIENCE, until } from './patience.mjs';
import { Postgres } from './postgres.mjs';
import { freePort, Server } from './server.mjs';

const open = {
  allow_subscribe_for_client: true, allow_subscribe_for_anonymous: true, allow_publish_for_client: true, allow_publish_for_anonymous: true,
  publication_data_format: 'binary',
};
const kept = { history_size: 1000, history_ttl: '600s', force_recovery: true, allow_history_for_client: true, allow_history_for_anonymous: true };
const namespaces = (durable) => [
  { name: 'bytes', ...open, ...kept, durable, binary_as_base64: true, allowed_delta_types: ['fossil'], presence: true, join_leave: true, force_push_join_leave: true, allow_presence_for_client: true, allow_presence_for_anonymous: true },
  { name: 'strict', ...open, ...kept, durable },
  { name: 'loose', ...open, binary_as_base64: true },
  { name: 'object', ...open, publication_data_format: 'json_object' },
];

/**
 * Payloads that have broken an implementation: empty, JSON, JSON with white space, half a character, quotes, zeros, line breaks,
 * the notation itself. Random bytes follow.
 */
const CASES = [
  '', ' ', '1', ' 1', '{"a":1}', '{\n"a": 1}\n', 'null', '"', '\\', '\0', '\r\n\r\n', 'data: x\n\n', '{"$b64":"AAEC"}', '{"$b64":"not base64"}', '{ "$b64": "AAEC" }', '\u2028',
].map((text) => Buffer.from(text)).concat([Buffer.from([0xff]), Buffer.from([0xc3]), Buffer.from([0xf0, 0x9f]), Buffer.from([0, 1, 2])]);
const noise = () => randomBytes([1, 2, 3, 100, 126, 5_000, 20_000][Math.floor(Math.random() * 7)]);
const bytesOf = (base64) => Buffer.from(base64, 'base64');
const hex = (bytes) => Buffer.from(bytes).toString('hex');

const options = (server, more = {}) => ({
  websocket: WebSocket, eventsource: EventSource, fetch, readableStream: ReadableStream, emulationEndpoint: `${server.http}/emulation`, minReconnectDelay: 50, maxReconnectDelay: 200, timeout: PATIENCE, ...more,
});
const client = (server, Client, transport = 'websocket', more = {}) => new Client([{
  transport, endpoint: transport === 'websocket' ? server.websocket : `${server.http}/connection/${transport}`,
}], options(server, more));

/** A subscriber that collects its publications as hexadecimal digits. */
async function listener(server, [Client, transport, delta], channel, since) {
  const sdk = client(server, Client, transport);
  const subscription = sdk.newSubscription(channel, { ...(delta && { delta: 'fossil' }), ...(since && { since }) });
  const got = [];
  const read = Client === Json ? (data) => bytesOf(data.$b64) : (data) => data;
  subscription.on('publication', ({ data }) => got.push(hex(read(data))));
  subscription.subscribe();
  sdk.connect();
  await subscription.ready(PATIENCE);
  return { sdk, subscription, got, read };
}

const WAYS = [
  [Protobuf, 'websocket', false], [Protobuf, 'websocket', true], [Protobuf, 'http_stream', false],
  [Json, 'websocket', false], [Json, 'websocket', true], [Json, 'http_stream', false], [Json, 'sse', false],
];

const STORES = {
  memory: async () => ({ change: {} }),
  SQLite: async (directory) => ({ durable: true, change: { store: { primary: { url: `sqlite:${join(directory, 'primary.db')}` } } } }),
  PostgreSQL: async () => {
    const postgres = await Postgres.start();
    return { durable: true, change: { store: { primary: { url: postgres.url } } }, stop: () => postgres.stop(), sql: (statement) => postgres.sql(statement) };
  },
  JetStream: async () => {
    const nats = await Nats.start();
    return { change: { cluster: { engine: 'nats', name: 'bytes', nats_url: [nats.url], heartbeat_interval: '300ms', node_timeout: '5s' } }, stop: () => nats.stop(), hasNodes: true };
  },
};

describe('bytes', { concurrency: 2 }, () => {
  for (const [store, make] of Object.entries(STORES)) {
    test(`are the same after ${store}, for every subscriber, live, recovered and in the history`, LIMIT, async () => {
      const directory = mkdtempSync(join(tmpdir(), 'bytes-'));
      const { change, durable = false, stop, sql, hasNodes } = await make(directory);
      const one = await Server.start({ change: { ...change, namespaces: namespaces(durable) } });
      const two = hasNodes ? await Server.start({ change: { ...change, namespaces: namespaces(durable) } }) : one;
      const channel = 'bytes:all';
      const listeners = await Promise.all(WAYS.map((way, n) => listener(n % 2 ? one : two, way, channel)));
      const publisher = client(two, Protobuf);
      publisher.connect();
      const sent = [];
      // Consecutive payloads that differ little make deltas.
      const base = randomBytes(3_000);
      const payloads = CASES.concat(Array.from({ length: 60 }, (_, n) => {
        if (n % 3) return noise();
        const changed = Buffer.from(base);
        changed[Math.floor(Math.random() * changed.length)] ^= 0xff;
        return changed;
      }));
      for (const [n, payload] of payloads.entries()) {
        sent.push(hex(payload));
        if (n % 2 || payload.length === 0) await publisher.publish(channel, payload);
        else if (n % 4) assert.equal((await one.api('publish', { channel, data: { $b64: payload.toString('base64') } })).error, undefined);
        else assert.equal((await one.api('publish', { channel, b64data: payload.toString('base64url') })).error, undefined);
      }
      for (const { got } of listeners) {
        await until(() => got.length >= sent.length, () => `${sent.length} publications, ${got.length} came`);
        assert.deepEqual(got, sent);
      }
      // A late subscriber recovers all payloads, and the history returns all of them.
      const { offset, epoch } = (await one.api('history', { channel, limit: 1 })).result;
      assert.equal(offset, sent.length);
      for (const way of WAYS) {
        const late = await listener(one, way, channel, { offset: 0, epoch });
        await until(() => late.got.length >= sent.length, () => `${sent.length} recovered publications, ${late.got.length} came`);
        assert.deepEqual(late.got, sent);
        const { publications } = await late.sdk.history(channel, { limit: 1000 });
        assert.deepEqual(publications.map(({ data }) => hex(late.read(data))), sent);
        late.sdk.disconnect();
      }
      const told = (await two.api('history', { channel, limit: 1000 })).result.publications;
      assert.deepEqual(told.map(({ data }) => hex(bytesOf(data.$b64))), sent);
      if (store === 'PostgreSQL') {
        const late = await listener(one, [Protobuf, 'websocket', false], 'strict:sql');
        await sql(`SELECT touchline_publish('strict:sql', '{"$b64": "AP8"}')`);
        await until(() => late.got.length > 0, () => 'a publication of SQL');
        assert.deepEqual(late.got, ['00ff']);
        late.sdk.disconnect();
      }
      if (durable) {
        // The node also reads them from the database again.
        await one.stop('SIGKILL');
        const again = await Server.start({ port: one.port, change: { ...change, namespaces: namespaces(durable) } });
        const read = (await again.api('history', { channel, limit: 1000 })).result.publications;
        assert.deepEqual(read.map(({ data }) => hex(bytesOf(data.$b64))), sent);
        for (const { sdk } of listeners) sdk.disconnect();
        publisher.disconnect();
        await again.stop();
      } else {
        for (const { sdk } of listeners) sdk.disconnect();
        publisher.disconnect();
        await one.stop();
        if (two !== one) await two.stop();
      }
      await stop?.();
      rmSync(directory, { recursive: true, force: true });
    });
  }
});

describe('clients, hooks and consumers', () => {
  let server, backend, tcp;
  const answers = {};
  before(async () => {
    tcp = await freePort();
    backend = await Backend.start((question) => answers[question.path]?.(question) ?? { result: {} });
    server = await Server.start({
      change: {
        namespaces: namespaces(false),
        tcp: { enabled: true, address: '127.0.0.1', port: tcp },
        client: { proxy: { connect: { enabled: true, endpoint: backend.url('/connect'), binary_encoding: true } } },
        rpc: { proxy: { endpoint: backend.url('/rpc'), binary_encoding: true }, without_namespace: { proxy_enabled: true } },
      },
    });
  });
  after(async () => { assert.equal(await server.stop(), 0, server.output); await backend.stop(); });

  test('a JSON client gets the reason why it cannot subscribe, unless the namespace converts to base64', async () => {
    const sdk = client(server, Json);
    sdk.connect();
    const refused = await new Promise((resolve) => {
      const subscription = sdk.newSubscription('strict:a');
      subscription.on('error', ({ error }) => resolve(error));
      subscription.on('unsubscribed', (context) => resolve(context));
      subscription.subscribe();
    });
    assert.equal(refused.code, 4015, JSON.stringify(refused));
    sdk.disconnect();
    const named = client(server, Json);
    await new Promise((resolve) => named.once('connected', resolve).connect());
    assert.equal((await server.api('subscribe', { user: '', channel: 'strict:a' })).error?.code, 4015);
    assert.equal((await server.api('subscribe', { user: '', channel: 'loose:a' })).error, undefined);
    named.disconnect();
    const binary = await listener(server, [Protobuf, 'websocket', false], 'strict:a');
    binary.sdk.disconnect();
  });

  test('the server refuses data that is not JSON where JSON is promised', async () => {
    for (const [channel, request] of [
      ['plain', { b64data: '/w==' }], ['plain', { data: { $b64: '/w==' } }], ['object:a', { data: 1 }], ['object:a', { data: [1] }], ['object:a', { b64data: 'MQ==' }],
      ['strict:a', { b64data: '%' }], ['strict:a', {}],
    ]) {
      assert.equal((await server.api('publish', { channel, ...request })).error?.code, 107, `${channel} ${JSON.stringify(request)}`);
    }
    for (const [channel, request] of [['plain', { b64data: 'eyJhIjoxfQ==' }], ['object:a', { data: { a: 1 } }], ['object:a', { b64data: 'eyJhIjoxfQ==' }], ['strict:a', { data: { a: 1 } }]]) {
      assert.equal((await server.api('publish', { channel, ...request })).error, undefined, `${channel} ${JSON.stringify(request)}`);
    }
    const sdk = client(server, Protobuf);
    sdk.connect();
    await assert.rejects(sdk.publish('object:a', Buffer.from([0xff])), { code: 107 });
    sdk.disconnect();
  });

  test('connect, RPC and presence carry any bytes, and JSON shows them', LIMIT, async () => {
    for (const payload of CASES.filter((bytes) => bytes.length > 0).concat(Array.from({ length: 20 }, noise))) {
      const answer = noise();
      answers['/connect'] = ({ b64data }) => ({ result: { user: 'ann', b64info: payload.toString('base64'), b64data: b64data ?? '' } });
      answers['/rpc'] = ({ b64data }) => ({ result: { b64data: Buffer.concat([bytesOf(b64data), answer]).toString('base64') } });
      const sdk = client(server, Protobuf, 'websocket', { data: answer });
      const connected = new Promise((resolve) => sdk.once('connected', resolve));
      sdk.connect();
      assert.equal(hex((await connected).data), hex(answer), 'connect data there and back');
      const { data } = await sdk.rpc('echo', payload);
      // JSON is a value: line breaks between its tokens are not a part of it.
      if (!/^\s*[{1n"]/.test(payload.toString('latin1'))) assert.equal(hex(data), hex(payload) + hex(answer));
      const subscription = sdk.newSubscription('bytes:presence');
      subscription.subscribe();
      await subscription.ready(PATIENCE);
      const { clients } = await subscription.presence();
      const [{ connInfo }] = Object.values(clients);
      if (!/^\s*[{1n"]/.test(payload.toString('latin1'))) assert.equal(hex(connInfo), hex(payload));
      sdk.disconnect();
      await until(async () => (await server.api('presence_stats', { channel: 'bytes:presence' })).result.num_clients === 0, () => 'nobody there');
    }
  });

  test('clients without an SDK get lines of JSON', LIMIT, async () => {
    // A backend that decides about a connect also names the channels.
    answers['/connect'] = ({ transport }) => ({ result: transport.startsWith('uni_') ? { channels: ['loose:a'] } : {} });
    const ways = Object.values(ONE_WAY).map((open) => open(server, {}));
    const typed = lines(tcp);
    await typed.ask({ id: 1, connect: {} });
    assert.equal((await typed.ask({ id: 2, subscribe: { channel: 'strict:a' } })).error.code, 4015);
    assert.equal((await typed.ask({ id: 3, subscribe: { channel: 'loose:a' } })).error, undefined);
    for (const { heard } of ways) await heard.first(({ connect }) => connect);
    for (const payload of CASES) {
      const notation = { $b64: payload.toString('base64') };
      await typed.ask({ id: 4 + CASES.indexOf(payload), publish: { channel: 'loose:a', data: notation } });
    }
    const data = (message) => (message.pub ?? message.push?.pub)?.data;
    const expected = CASES.map((payload) => ({ $b64: payload.toString('base64') }));
    for (const { heard } of [...ways, typed]) {
      await until(() => heard.all.filter(data).length >= CASES.length, () => `all of ${JSON.stringify(heard.all)}`);
      assert.deepEqual(heard.all.map(data).filter(Boolean), expected);
    }
    for (const way of [...ways, typed]) way.close();
  });
});

test('a stream of NATS feeds bytes', LIMIT, async () => {
  const nats = await Nats.start();
  const stream = await JetStream.connect(nats.port);
  await stream.create('feed', ['feed.>']);
  const server = await Server.start({
    change: {
      namespaces: namespaces(false),
      consumers: [{
        name: 'feed', enabled: true, type: 'nats_jetstream',
        nats_jetstream: { url: nats.url, stream_name: 'feed', subjects: ['feed.>'], durable_consumer_name: 'touchline', deliver_policy: 'all', publication_data_mode: { enabled: true } },
      }],
    },
  });
  const { got, sdk } = await listener(server, [Protobuf, 'websocket', false], 'strict:fed');
  const payloads = CASES.concat(Array.from({ length: 30 }, noise));
  for (const payload of payloads) await stream.request('feed.a', payload, { 'centrifugo-channels': 'strict:fed' });
  await until(() => got.length >= payloads.length, () => `${payloads.length} publications, ${got.length} came`);
  assert.deepEqual(got, payloads.map(hex));
  sdk.disconnect();
  assert.equal(await server.stop(), 0);
  await nats.stop();
});
