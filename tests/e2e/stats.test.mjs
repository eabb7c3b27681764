// Statistics: the server API reports the actions of clients of the official SDK afterwards, with SQLite, and with two nodes on PostgreSQL.
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { Centrifuge } from 'centrifuge';
import WebSocket from 'ws';
import { Nats } from './nats.mjs';
import { LIMIT, PATIENCE, until } from './patience.mjs';
import { Postgres } from './postgres.mjs';
import { freePort, Server, token } from './server.mjs';

const ANDROID = 'Mozilla/5.0 (Linux; Android 15) Mobile';

/** A client with or without a user that subscribes to some channels. */
async function fan(server, user, channels, agent = ANDROID) {
  const socket = class extends WebSocket { constructor(url) { super(url, { headers: { 'User-Agent': agent } }); } };
  const client = new Centrifuge(server.websocket, { websocket: socket, timeout: PATIENCE, ...(user && { token: token({ sub: user }) }) });
  for (const channel of channels) client.newSubscription(channel).subscribe();
  client.connect();
  await client.ready(PATIENCE);
  await Promise.all(Object.values(client.subscriptions()).map((subscription) => subscription.ready(PATIENCE)));
  return client;
}

const audience = async (server, channel, more = {}) => (await server.api('stats_audience', { channel, ...more })).result;
const top = async (server, of, more = {}) => (await server.api('stats_top', { of, ...more })).result.top;
// waits: the server counts by the minutes of the clock.
const atMinute = () => sleep(60_000 - (Date.now() % 60_000) + 50);
/** Waits for a minute of which 20 s are left. */
const inMinute = async () => { if (Date.now() % 60_000 > 40_000) await atMinute(); };

test('audiences, traffic, connections and events are there after a restart, and exact', LIMIT, async () => {
  const directory = mkdtempSync(join(tmpdir(), 'stats-'));
  const port = await freePort();
  const change = { store: { stats: { enabled: true, url: `sqlite:${join(directory, 'stats.db')}`, track_rate: 5, track_size: 64 } } };
  let server = await Server.start({ port, change });
  const clients = [];
  await inMinute();
  const minute = Math.floor(Date.now() / 60_000);
  // Two connections of one user, one of another user, and one without a user. The last one disconnects and connects again.
  for (const user of ['ann', 'ann', 'bob', '']) clients.push(await fan(server, user, ['room:1', 'history:1']));
  const briefly = await fan(server, 'cyd', ['room:1'], 'some-program/1.0');
  await server.api('publish', { channel: 'room:1', data: 1 });
  await server.api('publish', { channel: 'history:1', data: 1 });
  await server.api('publish', { channel: 'history:nobody', data: 1 });
  briefly.disconnect();
  for (const team of ['home', 'home', 'away']) await clients[0].rpc('stats.track', { event: 'goal_seen', props: { team } });
  await clients[2].rpc('stats.track', { event: 'goal_seen' });
  await assert.rejects(clients[0].rpc('stats.track', { event: 'x', props: { long: 'x'.repeat(64) } }), { code: 107 });
  await assert.rejects(clients[0].rpc('stats.track', { props: {} }), { code: 107 });
  let flood = 0;
  await until(async () => {
    const tries = await Promise.allSettled(Array.from({ length: 8 }, () => clients[1].rpc('stats.track', { event: 'flood' })));
    flood += tries.filter(({ status }) => status === 'fulfilled').length;
    return tries.some(({ reason }) => reason?.code === 111);
  }, 'a client that reports too much');
  const early = await audience(server, 'room:1');
  if (Math.floor(Date.now() / 60_000) === minute) assert.deepEqual(early, { points: [], peak: 0, users: 0 }, 'this minute is not over');
  await server.stop();
  clients.forEach((client) => client.disconnect());
  server = await Server.start({ port, change });
  const { points, peak, users } = await audience(server, 'room:1', { step: 3_600, from: 3_600 * Math.floor(Date.now() / 3_600_000) - 3_600 });
  assert.deepEqual([peak, users], [5, 4], 'the greatest at a time, and different users: ann, bob, cyd and one without a name');
  assert.equal(Math.max(...points.map((point) => point.peak)), 5);
  assert.deepEqual([(await audience(server, 'history:1')).users, (await audience(server, 'history:nobody')).users], [3, 0]);
  assert.deepEqual((await top(server, 'channels')).map(({ channel, peak: most }) => [channel, most]), [['room:1', 5], ['history:1', 4]]);
  assert.deepEqual(await top(server, 'namespaces'), [
    { namespace: 'room', deliveries: 5, publications: 1 },
    { namespace: 'history', deliveries: 4, publications: 2 },
  ]);
  const agents = Object.fromEntries((await top(server, 'agents')).map(({ agent, connections }) => [agent, connections]));
  assert.deepEqual(agents, { mobile: 4, library: 1 });
  const [transport] = await top(server, 'transports');
  assert.equal(`${transport.transport} ${transport.connections}`, 'websocket 5');
  assert.ok(transport.average_ms < 60_000);
  const codes = Object.fromEntries((await top(server, 'codes')).map(({ code, connections }) => [code, connections]));
  assert.deepEqual(codes, { 3001: 4, 1005: 1 }, 'four were told that the server stops, one left by itself');
  assert.ok(flood > 4, 'a client may report so much at once');
  assert.deepEqual(await top(server, 'events'), [{ event: 'flood', count: flood, users: 1 }, { event: 'goal_seen', count: 4, users: 2 }]);
  const by = (await server.api('stats_events', { event: 'goal_seen', by: 'team', step: 86_400, from: 0, to: 0 })).result.points;
  assert.deepEqual(by.map(({ value, count }) => [value, count]), [[null, 1], ['away', 1], ['home', 2]]);
  await until(async () => (await server.metrics()).includes('touchline_stats_healthy 1\n'));
  for (const bad of [{ step: 30 }, { from: 10, to: 5 }, { from: 1, to: 4_000_000_000 }]) {
    assert.equal((await server.api('stats_audience', { channel: 'room:1', ...bad })).error.code, 107, JSON.stringify(bad));
  }
  assert.equal((await server.api('stats_top', { of: 'nothing' })).error.code, 107);
  assert.equal(await server.stop(), 0, server.output);
  rmSync(directory, { recursive: true });
});

test('two nodes, a minute that turns, and a database that dies: nothing waits for it', LIMIT, async (t) => {
  const [nats, postgres] = await Promise.all([Nats.start(), Postgres.start()]);
  t.after(() => Promise.all([nats.stop(), postgres.stop()]));
  const change = {
    store: { stats: { enabled: true, url: postgres.url, timeout: '5s' } },
    cluster: { engine: 'nats', name: 'stats', nats_url: [nats.url], heartbeat_interval: '300ms', node_timeout: '5s' },
  };
  const nodes = await Promise.all([Server.start({ change }), Server.start({ change })]);
  const clients = [];
  t.after(async () => {
    clients.forEach((client) => client.disconnect());
    assert.deepEqual(await Promise.all(nodes.map((node) => node.stop())), [0, 0], nodes.map((node) => node.output).join());
  });
  // The clients must not connect near the end of a minute, nor in its first second, which may count for the minute before.
  await inMinute();
  // waits: for the second second of a minute.
  await sleep(Math.max(0, 1_500 - (Date.now() % 60_000)));
  const start = Math.floor(Date.now() / 60_000) * 60;
  for (let n = 0; n < 6; n += 1) clients.push(await fan(nodes[n % 2], `user-${n % 4}`, ['room:derby', `room:${n}`]));
  await atMinute();
  await until(async () => (await audience(nodes[0], 'room:derby')).peak === 6, 'the first minute of both nodes');
  assert.deepEqual(await audience(nodes[1], 'room:derby'), { points: [{ time: start, current: 6, peak: 6, users: 4 }], peak: 6, users: 4 });
  await until(async () => (await top(nodes[0], 'channels')).length === 7, 'the other channels');
  await postgres.kill();
  await nodes[0].api('publish', { channel: 'room:derby', data: 'goes on' });
  const error = await nodes[0].api('stats_audience', { channel: 'room:derby' });
  assert.equal(error.error.code, 4010);
  clients.slice(0, 2).forEach((client) => client.disconnect());
  await until(async () => (await nodes[0].metric('stats_dropped')) >= 1 && (await nodes[0].metric('stats_healthy')) === 0, 'what could not be written, counted');
  assert.equal((await fetch(`${nodes[0].http}/health`)).status, 200, 'and the node is as well as before');
  await postgres.again();
  clients.slice(2, 4).forEach((client) => client.disconnect());
  await until(async () => (await top(nodes[0], 'transports'))[0]?.connections > 0, 'connections that ended later');
  await until(async () => (await nodes[0].metric('stats_healthy')) === 1, 'the database to be well');
});

test('without statistics nothing is remembered', LIMIT, async () => {
  const server = await Server.start();
  const client = await fan(server, 'ann', ['room:1']);
  await assert.rejects(client.rpc('stats.track', { event: 'goal_seen' }), { code: 108 });
  for (const method of ['stats_audience', 'stats_top', 'stats_events', 'channel_get', 'channels_search']) {
    assert.equal((await server.api(method, { channel: 'room:1' })).error.code, 108, method);
  }
  client.disconnect();
  assert.equal(await server.stop(), 0, server.output);
});
