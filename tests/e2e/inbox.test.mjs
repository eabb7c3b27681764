// Messages to a device that is away, and the directory of channels: both in the primary database, after a server is killed.
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { Centrifuge } from 'centrifuge';
import WebSocket from 'ws';
import { Nats } from './nats.mjs';
import { LIMIT, PATIENCE, until } from './patience.mjs';
import { Postgres } from './postgres.mjs';
import { freePort, Server, token } from './server.mjs';

const SCOPES = [{ name: '', allow_register: ['{user}', '{user}/*'], allow_send_for_client: true, allow_store: ['late', 'away/*'], inbox_size: 250, inbox_ttl_max: '1h' }, { name: 'none' }];
let directory;
let port;
let server;
const clients = [];

const start = async () => {
  const change = { registry: { scopes: SCOPES }, store: { directory: true, primary: { url: `sqlite:${join(directory, 'primary.db')}` } } };
  server = await Server.start({ port, change });
};
const send = (name, data, more = {}) => server.api('send', { name, data, store_for: 600, ...more });

/** A device with a name, and the messages that it receives. */
async function device(user, name = user, node = server) {
  const client = new Centrifuge(node.websocket, { websocket: WebSocket, timeout: PATIENCE, token: token({ sub: user }) });
  clients.push(client);
  const given = [];
  const passed = [];
  client.on('message', ({ data }) => (data.id ? given : passed).push(data));
  client.connect();
  await client.ready(PATIENCE);
  await client.rpc('registry.register', { name, policy: 'newest' });
  return { client, given, passed, numbers: () => given.map(({ data }) => data), ack: (...ids) => client.rpc('inbox.ack', { ids }) };
}

before(async () => {
  directory = mkdtempSync(join(tmpdir(), 'inbox-'));
  port = await freePort();
  await start();
});
after(async () => {
  for (const client of clients) client.disconnect();
  assert.equal(await server.stop(), 0, server.output);
  rmSync(directory, { recursive: true });
});

test('messages to a name without an owner arrive in order at its next owner, and again until they are acknowledged', LIMIT, async () => {
  const before = Date.now();
  for (let n = 1; n <= 3; n += 1) {
    const { result } = await send('bike', n);
    assert.match(result.id, /^\d+$/);
    assert.ok(Math.abs(result.expires_at - before - 600_000) < 60_000);
  }
  await server.stop('SIGKILL');
  await start();
  const first = await device('bike');
  await until(() => first.given.length === 3, 'three messages');
  assert.deepEqual(first.numbers(), [1, 2, 3]);
  assert.deepEqual(Object.keys(first.given[0]).sort(), ['data', 'from', 'id', 'time', 'to']);
  assert.ok(first.given[0].time >= before && first.given[0].to === 'bike');
  assert.deepEqual((await first.ack(first.given[0].id)).data, {});
  assert.deepEqual((await first.ack(first.given[0].id)).data, {}, 'once more does no harm');
  first.client.disconnect();
  const second = await device('bike');
  await until(() => second.given.length === 2, 'the two that were not acknowledged');
  await send('bike', 4);
  await until(() => second.given.length === 3, 'one that is sent while somebody has the name');
  assert.deepEqual(second.numbers(), [2, 3, 4]);
  const stranger = await device('stranger');
  await stranger.ack(...second.given.map(({ id }) => id));
  const third = await device('bike');
  await until(() => third.given.length === 3, 'all again: nobody can acknowledge what is another one\'s');
  await third.ack(...third.given.map(({ id }) => id));
  const fourth = await device('bike');
  await send('bike', 5);
  await until(() => fourth.given.length > 0, 'the newest');
  assert.deepEqual(fourth.numbers(), [5]);
});

test('a device gets no more than it can acknowledge, and all of it in the end', LIMIT, async () => {
  for (let n = 0; n < 250; n += 1) assert.ok((await send('slow', n)).result);
  assert.deepEqual((await send('slow', 'one too many')).error, { code: 4011, message: 'inbox full' });
  const slow = await device('slow');
  await until(() => slow.given.length === 100, 'a window of a hundred');
  // A message that is not stored passes the window, and comes after all that the window lets through.
  await server.api('send', { name: 'slow', data: 'marker' });
  await until(() => slow.passed.length > 0, 'the marker');
  assert.equal(slow.given.length, 100);
  for (let acknowledged = 0; acknowledged < 250; acknowledged += 50) {
    await until(() => slow.given.length >= acknowledged + 50, 'the next fifty');
    await slow.ack(...slow.given.slice(acknowledged, acknowledged + 50).map(({ id }) => id));
  }
  assert.deepEqual(slow.numbers(), Array.from({ length: 250 }, (_, n) => n));
});

test('clients send such messages too, they move with their names, and expired ones are counted', LIMIT, async () => {
  const sender = await device('sender');
  const { data } = await sender.client.rpc('registry.send', { name: 'late', data: { hello: 1 }, store_for: 1 }); // short: it must expire.
  assert.ok(data.id);
  await sender.client.rpc('registry.send', { name: 'away/phone', data: { hello: 2 }, store_for: 60 });
  await assert.rejects(sender.client.rpc('registry.send', { name: 'anybody', data: 1, store_for: 60 }), { code: 103 }, 'not for any name');
  await until(async () => (await server.metric('store_inbox_messages_expired')) === 1, 'one that has expired');
  const away = await device('away', 'away/phone');
  await until(() => away.given.length === 1, 'the message');
  assert.equal(away.given[0].from.user, 'sender');
  const late = await device('late');
  await send('late', 'afterwards');
  await until(() => late.given.length > 0, 'a message that has not expired');
  assert.deepEqual(late.numbers(), ['afterwards'], 'what has expired does not come before it');
});

test('a message is kept only where that is possible', LIMIT, async () => {
  const code = async (request) => (await server.api('send', { data: 1, store_for: 60, ...request })).error?.code;
  assert.equal(await code({ scope: 'none', name: 'x' }), 108);
  assert.equal(await code({ group: 'x' }), 107);
  assert.equal(await code({ name: 'x'.repeat(300) }), 107);
  assert.equal(await code({ name: 'x', store_for: -1 }), 107);
  const anybody = await device('anybody');
  await assert.rejects(anybody.client.rpc('inbox.ack', { ids: ['no number'] }), { code: 107 });
});

test('channels are described, found and likened', LIMIT, async () => {
  const set = (channel, title, more = {}) => server.api('channel_set', { channel, title, ...more });
  assert.deepEqual((await set('history:1', 'Rovers against United', { description: 'The cup final', type: 'match', tags: ['cup'] })).result, {});
  await set('room:2', 'Rovers against City', { type: 'match', tags: ['cup'] });
  await set('cache:1', 'Weather', { type: 'news' });
  await server.stop('SIGKILL');
  await start();
  assert.deepEqual((await server.api('channel_get', { channel: 'history:1' })).result,
    { channel: 'history:1', title: 'Rovers against United', description: 'The cup final', type: 'match', tags: ['cup'] });
  const names = ({ result }) => result.channels.map(({ channel }) => channel);
  const similar = await server.api('channels_similar', { channel: 'history:1' });
  assert.deepEqual(names(similar), ['room:2']);
  assert.ok(similar.result.channels[0].score > 0.3 && similar.result.channels[0].score < 1);
  assert.deepEqual(names(await server.api('channels_search', { query: 'rover' })), ['room:2', 'history:1']);
  assert.deepEqual(names(await server.api('channels_search', { query: 'rover final' })), ['history:1']);
  assert.deepEqual(names(await server.api('channels_search', { type: 'news' })), ['cache:1']);
  assert.deepEqual((await server.api('channel_remove', { channel: 'history:1' })).result, {});
  assert.equal((await server.api('channel_get', { channel: 'history:1' })).error.code, 4012);
  assert.equal((await server.api('channels_similar', { channel: 'history:1' })).error.code, 4012);
  assert.equal((await set('history:1', 'x'.repeat(1_025))).error.code, 107);
  assert.equal((await set('nowhere:1', 'x')).error.code, 102);
});

test('nodes of a cluster share one inbox and one directory in PostgreSQL, through its death', LIMIT, async (t) => {
  const [nats, postgres] = await Promise.all([Nats.start(), Postgres.start()]);
  t.after(() => Promise.all([nats.stop(), postgres.stop()]));
  const change = {
    registry: { scopes: SCOPES },
    store: { directory: true, primary: { url: postgres.url, timeout: '5s' } },
    cluster: { engine: 'nats', name: 'inbox', nats_url: [nats.url], heartbeat_interval: '300ms', node_timeout: '5s' },
  };
  const [one, two] = await Promise.all([Server.start({ change }), Server.start({ change })]);
  t.after(async () => {
    clients.forEach((client) => client.disconnect());
    assert.deepEqual(await Promise.all([one.stop(), two.stop()]), [0, 0], one.output + two.output);
  });
  const post = (node, name, data) => node.api('send', { name, data, store_for: 600 });
  assert.ok((await post(one, 'tram', 1)).result.id);
  const tram = await device('tram', 'tram', two);
  await until(() => tram.given.length === 1, 'what another node has kept');
  assert.ok((await post(one, 'tram', 2)).result.id);
  await until(() => tram.given.length === 2, 'what another node keeps now');
  await postgres.kill();
  assert.equal((await post(one, 'tram', 'never')).error.code, 4010);
  await assert.rejects(tram.ack(tram.given[0].id), { code: 4010 });
  const late = await device('bus', 'bus', two);
  await postgres.again();
  await until(async () => (await post(one, 'tram', 3)).result, 'PostgreSQL to be found again');
  await post(one, 'bus', 'hello');
  await until(() => late.given.length === 1, 'a name that came while PostgreSQL was dead');
  await until(() => tram.given.length === 3, 'the third');
  assert.deepEqual(tram.numbers(), [1, 2, 3]);
  await tram.ack(...tram.given.map(({ id }) => id));
  assert.equal(await postgres.sql("SELECT count(*) FROM touchline.inbox_message WHERE name = 'tram'"), '0');
  // The name moves to the other node with its unacknowledged messages.
  const moved = await device('bus', 'bus', one);
  await until(() => moved.given.length === 1, 'the same message on the other node');
  await Promise.all(Array.from({ length: 40 }, (_, n) => (n % 2 ? one : two).api('channel_set', { channel: `room:${n % 4}`, title: `Rovers ${n}` })));
  const [{ result: a }, { result: b }] = await Promise.all([one, two].map((node) => node.api('channels_search', { query: 'rovers' })));
  assert.deepEqual(a, b);
  assert.equal(a.channels.length, 4);
  assert.equal(await postgres.sql("SELECT channels FROM touchline.term WHERE term = 'rover'"), '4');
});
