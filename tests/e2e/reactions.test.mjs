// Reactions of a crowd: over every transport, to all subscribers, on one node and on several, until the reactions are closed.
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { request } from 'node:http';
import { createConnection } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { json } from 'node:stream/consumers';
import { setTimeout as sleep } from 'node:timers/promises';
import { Centrifuge as Json } from 'centrifuge';
import { Centrifuge as Protobuf } from 'centrifuge/build/protobuf';
import { EventSource } from 'eventsource';
import WebSocket from 'ws';
import { ONE_WAY } from './hooks.mjs';
import { Nats } from './nats.mjs';
import { Network } from './network.mjs';
import { LIMIT, PATIENCE, until } from './patience.mjs';
import { Postgres } from './postgres.mjs';
import { freePort, KEY, Server, token } from './server.mjs';

const open = { allow_subscribe_for_client: true, allow_subscribe_for_anonymous: true };
const kept = { history_size: 100, history_ttl: '60s', force_recovery: true };
const crowd = { reactions: ['applause', 'boo'], reactions_rate: 1000 };
const NAMESPACES = [
  { name: 'match', ...open, ...kept, ...crowd, allowed_delta_types: ['fossil'] },
  { name: 'plain', ...open, ...crowd, allowed_delta_types: ['fossil'] },
  { name: 'slow', ...open, ...crowd, reactions_rate: 2 },
  { name: 'quiet', ...open, ...kept },
  { name: 'bytes', ...open, publication_data_format: 'binary' },
  { name: 'talk', ...open, slow_consumer: 'drop_oldest' },
];

const options = (server) => ({
  websocket: WebSocket, eventsource: EventSource, fetch, readableStream: ReadableStream, emulationEndpoint: `${server.http}/emulation`, minReconnectDelay: 50, maxReconnectDelay: 200,
});

/** A fan: the totals of a channel as this client gets them, and whether they ever fell. */
async function fan(server, channel, { Client = Json, transport = 'websocket', delta } = {}) {
  const endpoint = transport === 'websocket' ? server.websocket : `${server.http}/connection/${transport}`;
  const client = new Client([{ transport, endpoint }], options(server));
  const subscription = client.newSubscription(channel, delta ? { delta: 'fossil' } : {});
  const it = { client, subscription, states: [], others: [], now: undefined };
  subscription.on('publication', ({ data: raw, offset }) => {
    const data = Client === Protobuf ? JSON.parse(new TextDecoder().decode(raw)) : raw;
    if (!data.reactions) return it.others.push(data);
    const before = it.now;
    if (before && (before.opened ?? 0) === (data.opened ?? 0)) assert.ok(before.seq <= data.seq, `${before.seq} fell to ${data.seq}`);
    assert.equal(data.seq, Object.values(data.reactions).reduce((sum, n) => sum + n, 0));
    it.now = data;
    it.states.push({ ...data, offset });
  });
  subscription.subscribe();
  client.connect();
  await subscription.ready(PATIENCE);
  const encode = (value) => Client === Protobuf ? new TextEncoder().encode(JSON.stringify(value)) : value;
  it.react = (option, n) => client.rpc('reactions.add', encode({ channel, option, n }));
  it.send = (option, n) => client.send(encode({ method: 'reactions.add', data: { channel, option, n } }));
  it.shows = (wanted, what = '') => until(() => it.now && Object.entries(wanted).every(([option, n]) => it.now.reactions[option] === n),
    () => `${what} ${JSON.stringify(wanted)}, it shows ${JSON.stringify(it.now)}`);
  return it;
}

const refusal = (promise) => promise.then(() => 0, ({ code }) => code);

describe('one node', { concurrency: 4 }, () => {
  let server;
  let tcp;
  before(async () => {
    tcp = await freePort();
    server = await Server.start({ change: { namespaces: NAMESPACES, tcp: { enabled: true, address: '127.0.0.1', port: tcp } } });
  });
  after(async () => {
    assert.equal(await server.stop(), 0, server.output);
    assert.doesNotMatch(server.output, /panicked/);
  });
  const get = async (channel) => (await server.api('reactions_get', { channel })).result;

  test('every way in is counted, and every way out shows the sum', async () => {
    const channel = 'match:ways';
    const ways = [{}, { Client: Protobuf }, { transport: 'http_stream' }, { transport: 'sse' }, { delta: true }, { Client: Protobuf, delta: true }];
    const fans = await Promise.all(ways.map((way) => fan(server, channel, way)));
    for (const [n, one] of fans.entries()) {
      await one.react('applause', n + 1);
      await one.send('boo', 2);
    }
    assert.equal((await server.api('reactions_add', { channel, option: 'applause', n: 1000 })).error, undefined);
    // This fan uses lines over TCP.
    const socket = createConnection(tcp, '127.0.0.1');
    let text = '';
    socket.on('data', (data) => { text += data; });
    socket.write('{"id":1,"connect":{}}\n{"id":2,"subscribe":{"channel":"match:ways"}}\n{"id":3,"rpc":{"method":"reactions.add","data":{"channel":"match:ways","option":"boo"}}}\n');
    await until(() => text.includes('"id":3,"rpc"'), () => text);
    socket.write('{"send":{"data":{"method":"reactions.add","data":{"channel":"match:ways","option":"boo","n":4}}}}\n');
    const total = { applause: 1021, boo: 17 };
    for (const [n, one] of fans.entries()) await one.shows(total, `fan ${n}`);
    await until(() => text.includes('"seq":1038'), () => text);
    assert.deepEqual(await get(channel), { reactions: total, seq: 1038, closed: false });
    // Totals are not in the history, and do not disturb its publications.
    assert.equal((await server.api('history', { channel, limit: 10 })).result.publications.length, 0);
    for (const data of [{ n: 1 }, { n: 2 }]) await server.api('publish', { channel, data });
    await fans[0].react('boo', 1);
    await server.api('publish', { channel, data: { n: 3 } });
    for (const [n, one] of fans.entries()) await until(() => one.others.length === 3, () => `fan ${n} has ${JSON.stringify(one.others)}`);
    for (const one of fans) assert.deepEqual(one.others, [{ n: 1 }, { n: 2 }, { n: 3 }]);
    await fans[0].shows({ boo: 18 });
    // A late subscriber gets the totals with the first answer, and does not wait for a tick.
    for (const way of ways) {
      const late = await fan(server, channel, way);
      await until(() => late.states.length > 0, () => 'the state at once');
      assert.equal(late.states[0].seq, 1039);
      await server.api('publish', { channel, data: { n: 4 } });
      await until(() => late.others.at(-1)?.n === 4, () => `a publication behind it: ${JSON.stringify(late.others)}`);
      late.client.disconnect();
    }
    fans.forEach(({ client }) => client.disconnect());
    socket.destroy();
  });

  test('a channel without a log shows them too, as deltas', async () => {
    const fans = await Promise.all([{}, { delta: true }].map((way) => fan(server, 'plain:a', way)));
    for (let n = 1; n <= 5; n += 1) {
      await fans[1].react('boo', 1);
      for (const one of fans) await one.shows({ boo: n });
    }
    const late = await fan(server, 'plain:a', { delta: true });
    await late.shows({ boo: 5 });
    await fans[0].react('boo', 1);
    await late.shows({ boo: 6 });
    [...fans, late].forEach(({ client }) => client.disconnect());
  });

  test('a one-way client reacts by a request of its own', async () => {
    const channel = 'match:listener';
    const watcher = await fan(server, channel);
    const { heard, close } = ONE_WAY.uni_http_stream(server, { token: token({ sub: 'ann', channels: [channel] }) });
    await until(() => heard.all.length > 0, () => 'the first push');
    const [first] = heard.all;
    const { session, node } = first.connect;
    assert.ok(session && node, JSON.stringify(first));
    const post = (body) => fetch(`${server.http}/reactions`, { method: 'POST', body: typeof body === 'string' ? body : JSON.stringify(body) });
    assert.equal((await post({ session, node, channel, option: 'applause', n: 3 })).status, 204);
    await watcher.shows({ applause: 3 });
    assert.equal((await post({ session: 'x', node, channel, option: 'applause' })).status, 204);
    assert.equal((await post({ session, node: 'nobody', channel, option: 'applause' })).status, 404);
    for (const wrong of ['', '[]', '{}', '{"session":1}', 'x'.repeat(10_000)]) assert.ok((await post(wrong)).status >= 400);
    assert.equal((await fetch(`${server.http}/reactions`)).status, 405);
    await post({ session, node, channel, option: 'applause', n: 1 });
    await watcher.shows({ applause: 4 });
    close();
    watcher.client.disconnect();
  });

  test('a refused reaction has a number, is counted, and has no other effect', async () => {
    const channel = 'slow:a';
    const one = await fan(server, channel);
    for (const [params, code] of [
      [{ channel, option: 'none' }, 107], [{ channel, option: 'boo', n: 0 }, 107], [{ channel, option: 'boo', n: 101 }, 107], [{ channel, option: 'boo', n: 11 }, 107],
      [{ channel: 'slow:other', option: 'boo' }, 103], [{ option: 'boo' }, 107], [[], 107], [{ channel, option: 'boo', n: 'x' }, 107],
    ]) assert.equal(await refusal(one.client.rpc('reactions.add', params)), code, JSON.stringify(params));
    // Tokens come back while a slow machine sends, so the fan sends until it has none.
    let accepted = 0;
    await until(async () => {
      const code = await refusal(one.react('boo', 10));
      if (code === 0) accepted += 10;
      return code === 111;
    });
    await one.shows({ boo: accepted });
    const quiet = await fan(server, 'quiet:a');
    assert.equal(await refusal(quiet.react('boo', 1)), 108);
    for (const reason of ['invalid', 'not_subscribed', 'not_open', 'rate']) {
      const counted = new RegExp(`touchline_reactions_refused_total\\{reason="${reason}"\\} [1-9]`);
      await until(async () => counted.test(await server.metrics()), reason);
    }
    // A message that is not a reaction ends the connection, as before.
    const ended = new Promise((resolve) => { quiet.client.on('disconnected', resolve); quiet.client.on('connecting', resolve); });
    quiet.client.send({ method: 'other' });
    await ended;
    [one, quiet].forEach(({ client }) => client.disconnect());
  });

  test('reactions that are counted while another channel closes are published', async () => {
    const one = await fan(server, 'plain:beside');
    for (let n = 1; n <= 30; n += 1) {
      const channel = `quiet:${n}`;
      await server.api('reaction_open', { channel, options: ['yes'] });
      await Promise.all([one.react('boo', 1), server.api('reactions_close', { channel }), one.react('boo', 1)]);
      await one.shows({ boo: 2 * n });
    }
    one.client.disconnect();
  });

  test('the server API opens, counts, reads and closes', async () => {
    const channel = 'quiet:vote';
    const one = await fan(server, channel);
    assert.equal((await server.api('reactions_get', { channel })).error.code, 108);
    const { opened } = (await server.api('reaction_open', { channel, options: ['yes', 'no'], rate: 100 })).result;
    assert.equal((await server.api('reaction_open', { channel, options: ['yes', 'no'], rate: 100 })).result.opened, opened);
    await one.shows({ yes: 0, no: 0 });
    await one.react('yes', 7);
    await server.api('reactions_add', { channel, option: 'no', n: 2 });
    await one.shows({ yes: 7, no: 2 });
    assert.equal(one.now.opened, opened);
    const closed = (await server.api('reactions_close', { channel })).result;
    assert.deepEqual(closed, { reactions: { yes: 7, no: 2 }, seq: 9, opened, closed: true });
    await until(() => one.now.closed, () => 'the closing publication');
    assert.ok(one.states.at(-1).offset > 0, 'it is in the history');
    const { publications } = (await server.api('history', { channel, limit: 10 })).result;
    assert.deepEqual(publications.map(({ data }) => data), [{ reactions: { yes: 7, no: 2 }, seq: 9, opened, closed: true }]);
    assert.equal(await refusal(one.react('yes', 1)), 4016);
    assert.equal((await server.api('reactions_add', { channel, option: 'no' })).error.code, 4016);
    assert.deepEqual((await server.api('reactions_close', { channel })).result, closed);
    const late = await fan(server, channel);
    await until(() => late.now?.closed, () => 'the result for who comes late');
    // A new round begins.
    const again = (await server.api('reaction_open', { channel, options: ['yes'] })).result.opened;
    assert.equal((await server.api('reactions_add', { channel, option: 'yes', n: null })).error, undefined);
    assert.equal((await server.api('reaction_open', { channel, options: ['yes'], closes_at: Number.MAX_SAFE_INTEGER })).error, undefined);
    assert.ok((await server.api('reaction_open', { channel, options: ['yes'] })).result.opened > again, 'the rounds differ');
    assert.ok(again > opened);
    await one.react('yes', 1);
    await one.shows({ yes: 1 });
    assert.equal(one.now.closed, undefined);
    // This round closes at its time without a request.
    // A slow machine may react after the end of a short round.
    for (let ms = 1_000, code; code !== 0; ms *= 4) {
      await server.api('reaction_open', { channel, options: ['yes'], closes_at: Date.now() + ms });
      code = await refusal(one.react('yes', 3));
      assert.ok(code === 0 || code === 4016, `${code}`);
    }
    await until(() => one.now.closed && one.now.reactions.yes === 3, () => `they close by themselves: ${JSON.stringify(one.now)}`);
    for (const [params, code] of [
      [{ channel }, 107], [{ channel, options: [] }, 107], [{ channel, options: ['a', 'a'] }, 107], [{ channel, options: ['x'.repeat(65)] }, 107],
      [{ channel, options: Array.from({ length: 33 }, (_, n) => `${n}`) }, 107], [{ channel, options: ['a'], closes_at: 1 }, 107], [{ channel: 'none:a', options: ['a'] }, 102], [{ channel: 'bytes:a', options: ['a'] }, 108],
      [{ channel: 'talk:a', options: ['a'] }, 108],
    ]) assert.equal((await server.api('reaction_open', params)).error.code, code, JSON.stringify(params));
    [one, late].forEach(({ client }) => client.disconnect());
  });
});

test('durable totals are there after a crash, and all of them after a stop', LIMIT, async () => {
  const directory = mkdtempSync(join(tmpdir(), 'reactions-'));
  const postgres = await Postgres.start();
  for (const url of [`sqlite:${join(directory, 'primary.db')}`, postgres.url]) {
    const change = { namespaces: [{ name: 'match', ...open, ...crowd, reactions_durable: true }], store: { primary: { url } } };
    const port = await freePort();
    let server = await Server.start({ port, change });
    const channel = 'match:1';
    let total = 0;
    for (const how of ['SIGKILL', 'SIGTERM', 'SIGKILL', 'SIGTERM']) {
      const one = await fan(server, channel);
      if (total > 0) await one.shows({ boo: total }, `after ${how}`);
      for (let n = 0; n < 5; n += 1) await one.react('boo', 20);
      total += 100;
      await one.shows({ boo: total });
      // waits: for the next writing of totals, which nothing shows.
      if (how === 'SIGKILL') await sleep(5_000);
      one.client.disconnect();
      await server.stop(how);
      server = await Server.start({ port, change });
    }
    assert.equal((await server.api('reactions_get', { channel })).result.reactions.boo, total);
    await server.api('reactions_close', { channel });
    await server.stop();
    server = await Server.start({ port, change });
    await until(async () => (await server.api('reactions_get', { channel })).result.closed, () => 'it stays closed');
    await server.stop();
  }
  await postgres.stop();
  rmSync(directory, { recursive: true });
});

test('while the database is gone, openings wait for a time and in a number', LIMIT, async () => {
  const postgres = await Postgres.start();
  const server = await Server.start({ change: { namespaces: [{ name: 'match', ...open, ...crowd, reactions_durable: true }], store: { primary: { url: postgres.url } } } });
  await server.api('reaction_open', { channel: 'match:before', options: ['yes'] });
  await postgres.kill();
  // Not by fetch, which gives up a connection after ten seconds.
  const attempt = (n) => new Promise((resolve, reject) => {
    const sent = request(`${server.http}/api/reaction_open`, { method: 'POST', agent: false, headers: { 'X-API-Key': KEY } }, (answer) => json(answer).then(resolve, reject));
    sent.on('error', reject).end(JSON.stringify({ channel: `match:${n}`, options: ['yes'] }));
  });
  // On a busy machine the first openings may end before the last ones arrive, and then none is refused: the test sends all again.
  let codes;
  await until(async () => {
    codes = await Promise.all(Array.from({ length: 1_100 }, async (_, n) => (await attempt(n)).error?.code));
    const count = (wanted) => codes.filter((code) => code === wanted).length;
    assert.equal(count(4010) + count(111), 1_100);
    assert.ok(count(4010) >= 1_024, `${count(4010)} have waited`);
    return count(111) > 0;
  }, () => 'some are refused');
  assert.equal((await server.api('reactions_get', { channel: 'match:before' })).result.seq, 0, 'who does not wait is answered');
  await postgres.again();
  const kept = codes.indexOf(4010);
  await until(async () => (await attempt(kept)).result, () => 'it can be sent again');
  assert.equal(await server.stop(), 0, server.output);
  await postgres.stop();
});

describe('three nodes', () => {
  let network;
  let servers = [];
  let nodes = [];
  const change = (nats_url) => ({ namespaces: NAMESPACES, cluster: { engine: 'nats', name: 'crowd', nats_url, nats_no_randomize: true, heartbeat_interval: '300ms', node_timeout: '5s' } });
  const start = (machine) => {
    const urls = servers.map(({ url }) => url);
    return Server.start({ port: 8000, change: change([urls[machine]]), on: { address: network.address(machine), words: network.on(machine, []) } });
  };

  before(async () => {
    network = new Network(3);
    servers = await Nats.cluster(network);
    nodes = await Promise.all([0, 1, 2].map(start));
  });
  after(async () => {
    await Promise.all(nodes.map((node) => node.stop()));
    for (const server of servers) await server.stop();
    network?.destroy();
    for (const node of nodes) assert.doesNotMatch(node.output, /panicked/);
  });

  test('a cut link, a killed node and a new one: all come to the same sum', LIMIT, async () => {
    const channel = 'match:cut';
    let fans = await Promise.all(nodes.map((node) => fan(node, channel)));
    for (const one of fans) await one.react('applause', 10);
    for (const one of fans) await one.shows({ applause: 30 }, 'before the cut');
    network.cut(0, 2);
    network.cut(1, 2);
    const seen = async (node) => (await node.api('info')).result.nodes.length;
    await until(async () => (await seen(nodes[0])) === 2 && (await seen(nodes[2])) === 1, 'the nodes to forget each other');
    for (const one of fans) await one.react('boo', 5);
    await fans[0].shows({ applause: 30, boo: 10 }, 'the majority');
    await fans[2].shows({ applause: 30, boo: 5 }, 'the node alone');
    network.heal();
    for (const one of fans) await one.shows({ applause: 30, boo: 15 }, 'after the cut');
    // Counts that a dead node has sent to the others stay.
    await fans[2].react('boo', 1);
    for (const one of fans) await one.shows({ boo: 16 });
    fans[2].client.disconnect();
    await nodes[2].stop('SIGKILL');
    await fans[0].react('boo', 1);
    await fans[1].shows({ applause: 30, boo: 17 }, 'after the kill');
    nodes[2] = await start(2);
    fans[2] = await fan(nodes[2], channel);
    await fans[2].shows({ applause: 30, boo: 17 }, 'the new node');
    await fans[2].react('boo', 3);
    for (const one of fans) await one.shows({ applause: 30, boo: 20 }, 'all');
    const closed = (await nodes[1].api('reactions_close', { channel })).result;
    assert.deepEqual(closed.reactions, { applause: 30, boo: 20 });
    for (const one of fans) await until(() => one.now.closed, () => 'the closing publication on every node');
    for (const one of fans) assert.equal(one.states.filter((state) => state.closed).length, 1, 'once');
    for (const one of fans) assert.equal(await refusal(one.react('boo', 1)), 4016);
    fans.forEach(({ client }) => client.disconnect());
  });

  test('what one node opens, all count', LIMIT, async () => {
    const channel = 'quiet:poll';
    const fans = await Promise.all(nodes.map((node) => fan(node, channel)));
    await nodes[0].api('reaction_open', { channel, options: ['yes'], rate: 50, closes_at: Date.now() + 15_000 });
    for (const one of fans) await one.shows({ yes: 0 });
    for (const one of fans) await one.react('yes', 4);
    for (const one of fans) await one.shows({ yes: 12 });
    for (const one of fans) await until(() => one.now.closed, () => 'closed at its time');
    for (const one of fans) assert.deepEqual(one.states.filter((state) => state.closed).map(({ reactions }) => reactions), [{ yes: 12 }]);
    fans.forEach(({ client }) => client.disconnect());
  });
});
