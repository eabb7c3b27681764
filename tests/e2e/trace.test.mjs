// Traces: the input and output of one client, user or channel, recorded for a person who looks for a fault.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { after, test } from 'node:test';
import { promisify } from 'node:util';
import WebSocket from 'ws';
import { Nats } from './nats.mjs';
import { LIMIT, until } from './patience.mjs';
import { KEY, Server, token } from './server.mjs';

const binary = process.env.TOUCHLINE_BIN ?? new URL('../../target/debug/touchline', import.meta.url).pathname;
const started = [];
const clients = [];
after(async () => {
  clients.forEach((client) => client.socket.terminate());
  for (const part of started.reverse()) await part.stop('SIGKILL');
});

async function start(change) {
  const server = await Server.start({ change: { admin: { trace_payloads: true }, ...change } });
  started.push(server);
  return server;
}

/** A client without an SDK. It sends the commands that a test writes. */
async function connect(server, claims) {
  const socket = new WebSocket(server.websocket);
  const client = { socket, replies: [], id: 0 };
  clients.push(client);
  await new Promise((resolve, reject) => socket.once('open', resolve).once('error', reject));
  socket.on('message', (data) => String(data).split('\n').forEach((line) => (line === '{}' ? socket.send('{}') : client.replies.push(JSON.parse(line)))));
  client.command = async (command) => {
    const id = ++client.id;
    socket.send(JSON.stringify({ id, ...command }));
    return until(() => client.replies.find((reply) => reply.id === id));
  };
  const { connect: { client: name } } = await client.command({ connect: claims ? { token: token(claims) } : {} });
  client.name = name;
  return client;
}

const trace = (server, question) => server.api('trace', question);
/** Reads a trace until it has shown enough frames. */
async function seen(server, question, isEnough) {
  const frames = [];
  await until(async () => {
    frames.push(...(await trace(server, question)).result.frames);
    return isEnough(frames);
  });
  return frames;
}
const begin = async (server, question) => assert.deepEqual((await trace(server, question)).result, { frames: [], left_out: 0, ended: false });

test('a trace of a client has its commands, its replies and its pushes, without its tokens', LIMIT, async () => {
  const server = await start();
  const [client, other] = [await connect(server, { sub: 'ana' }), await connect(server, { sub: 'bo' })];
  const question = { id: 'a', client: client.name, payloads: true, seconds: 60 };
  await begin(server, question);
  await client.command({ subscribe: { channel: 'history:a', data: { token: 'mine' } } });
  await other.command({ subscribe: { channel: 'history:a' } });
  await server.api('publish', { channel: 'history:a', data: { n: 1 } });
  await client.command({ subscribe: { channel: 'closed:a', token: 's3cret' } });
  const frames = await seen(server, question, (all) => all.some((frame) => frame.error));
  assert.deepEqual(frames.map(({ direction, kind, channel, error }) => [direction, kind, channel, error].filter(Boolean).join(' ')), [
    'in subscribe history:a', 'out reply', 'out publication history:a', 'in subscribe closed:a', 'out reply 103',
  ]);
  assert.ok(frames.every((frame) => frame.client === client.name && frame.user === 'ana' && frame.node && frame.size > 0));
  const texts = frames.map((frame) => frame.payload).join('\n');
  assert.ok(!texts.includes('s3cret') && texts.includes('"token":"mine"') && texts.includes('{"n":1}'), texts);
  await begin(server, { ...question, id: 'b' });
  client.socket.close();
  assert.ok((await seen(server, { ...question, id: 'b' }, (all) => all.length > 0)).some((frame) => frame.kind === 'close'));
});

test('a trace of a user has those of all its connections, also of later ones', LIMIT, async () => {
  const server = await start();
  const question = { id: 'u', user: 'ana', seconds: 60 };
  await begin(server, question);
  const [first, second] = [await connect(server, { sub: 'ana' }), await connect(server, { sub: 'ana' })];
  await connect(server, { sub: 'anabel' });
  const frames = await seen(server, question, (all) => new Set(all.map((frame) => frame.client)).size === 2);
  assert.deepEqual(new Set(frames.map((frame) => frame.client)), new Set([first.name, second.name]));
  assert.ok(frames.every((frame) => !('payload' in frame)), 'nobody has asked for payloads');
});

test('a trace of a channel has its publications, does not count as a subscriber, and is in no presence', LIMIT, async () => {
  const server = await start();
  const question = { id: 'c', channel: 'room:a', payloads: true, seconds: 60 };
  await begin(server, question);
  await server.api('publish', { channel: 'room:a', data: { text: 'é' } });
  await server.api('publish', { channel: 'room:b', data: 1 });
  await server.api('broadcast', { channels: ['room:a', 'room:b'], data: 2 });
  const client = await connect(server, { sub: 'ana' });
  await client.command({ subscribe: { channel: 'room:a' } });
  await client.command({ publish: { channel: 'room:a', data: 3 } });
  const frames = await seen(server, question, (all) => all.length >= 3);
  assert.deepEqual(frames.map(({ kind, channel, payload, size }) => [kind, channel, payload, size]), [
    ['publication', 'room:a', '{"text":"é"}', 13], ['publication', 'room:a', '2', 1], ['publication', 'room:a', '3', 1],
  ]);
  assert.deepEqual((await server.api('presence_stats', { channel: 'room:a' })).result, { num_clients: 1, num_users: 1 });
  await client.command({ unsubscribe: { channel: 'room:a' } });
  await until(async () => !((await server.api('channels', {})).result.channels['room:a']));
  await server.api('publish', { channel: 'history:k', data: 0, idempotency_key: 'once' });
  await begin(server, { id: 'h', channel: 'history:k', seconds: 60 });
  await server.api('publish', { channel: 'history:k', data: 0, idempotency_key: 'once' });
  await server.api('publish', { channel: 'history:k', data: 1 });
  const [only, ...more] = await seen(server, { id: 'h', channel: 'history:k', seconds: 60 }, (all) => all.length > 0);
  assert.deepEqual([only.offset, more.length], [2, 0], 'a repetition is no publication');
});

test('waiting frames are limited, and omitted ones are counted', LIMIT, async () => {
  const server = await start();
  const question = { id: 'much', channel: 'room:a', payloads: true, seconds: 60 };
  await begin(server, question);
  const commands = Array.from({ length: 600 }, (_, n) => ({ publish: { channel: 'room:a', data: n } }));
  await server.api('batch', { commands });
  await server.api('batch', { commands });
  const { result: { frames, left_out: leftOut } } = await trace(server, question);
  assert.deepEqual([frames.length, leftOut], [1_000, 200]);
  await server.api('publish', { channel: 'room:a', data: 'x'.repeat(40_000) });
  const [long] = await seen(server, question, (all) => all.length > 0);
  assert.deepEqual([long.size, long.payload.length], [40_002, 8_192]);
});

test('a trace is refused that is wrong, too long, or one too many, and each is over by its time', LIMIT, async () => {
  const server = await start();
  const refused = async (question) => (await trace(server, question)).error?.code;
  for (const question of [
    {}, { id: 'a' }, { channel: 'room:a' }, { id: 'a', channel: 'room:a', user: 'ana' }, { id: 'a', client: 'no id' }, { id: 'x'.repeat(65), user: 'ana' }, { id: 'a', user: 'ana', seconds: 61 },
  ]) assert.equal(await refused(question), 107, JSON.stringify(question));
  assert.equal(await refused({ id: 'a', channel: 'none:a' }), 102);
  for (let n = 0; n < 16; n++) assert.equal(await refused({ id: `t${n}`, channel: 'room:a', seconds: 60 }), undefined);
  assert.equal(await refused({ id: 'one more', channel: 'room:a' }), 106);
  assert.equal(await refused({ id: 't1', channel: 'room:b' }), 107, 'it is the id of another trace');
  const hidden = await start({ admin: {} });
  assert.equal((await trace(hidden, { id: 'a', user: 'ana', payloads: true })).error.code, 103);
  assert.equal((await trace(hidden, { id: 'a', user: 'ana', seconds: 1 })).error, undefined); // short: it must end.
  await until(async () => (await trace(hidden, { id: 'a', user: 'ana' })).result.ended);
});

test('the command and a stream of lines show frames as they come', LIMIT, async () => {
  const server = await start();
  const headers = { 'X-API-Key': KEY, Accept: 'application/x-ndjson' };
  const ask = (question, more) => fetch(`${server.http}/api/trace`, { method: 'POST', headers: { ...headers, ...more }, body: JSON.stringify(question) });
  assert.equal((await ask({ channel: 'room:a' }, { 'X-API-Key': 'wrong' })).status, 401);
  assert.equal((await (await ask({ channel: 'none:a' })).json()).error.code, 102);
  assert.equal((await ask({ channel: 7 })).status, 400);
  const response = await ask({ channel: 'room:a', seconds: 5, payloads: true });
  assert.equal(response.headers.get('content-type'), 'application/x-ndjson');
  const command = promisify(execFile)(binary, ['trace', '--api', server.http, '--key', KEY, '--channel', 'room:a', '--seconds', '5', '--payloads']);
  const publishing = setInterval(() => server.api('publish', { channel: 'room:a', data: { n: 7 } }).catch(() => {}), 100);
  const lines = (await response.text()).trim().split('\n').map((line) => JSON.parse(line));
  const { stdout } = await command;
  clearInterval(publishing);
  assert.ok(lines.length > 3 && lines.slice(0, -1).every((frame) => frame.payload === '{"n":7}'), JSON.stringify(lines));
  assert.deepEqual(lines.at(-1), { ended: true });
  assert.match(stdout, /^\d{4}-.*Z · \S+ publication room:a 7 B \{"n":7\}$/m);
});

test('in a cluster a trace has the frames of all nodes, each publication once', LIMIT, async () => {
  const nats = await Nats.start();
  started.push(nats);
  const cluster = { engine: 'nats', nats_url: [nats.url], name: 'trace' };
  const nodes = [await start({ cluster, node: { name: 'one' } }), await start({ cluster, node: { name: 'two' } })];
  for (const node of nodes) await until(async () => (await node.api('info')).result.nodes.length === 2);
  const client = await connect(nodes[1], { sub: 'ana' });
  await client.command({ subscribe: { channel: 'room:a' } });
  const [ofChannel, ofUser] = [{ id: 'c', channel: 'room:a', seconds: 60 }, { id: 'u', user: 'ana', seconds: 60 }];
  for (const question of [ofChannel, ofUser]) await begin(nodes[0], question);
  for (const node of nodes) await node.api('publish', { channel: 'room:a', data: 1 });
  const published = await seen(nodes[0], ofChannel, (all) => all.length >= 2);
  assert.deepEqual(published.map((frame) => frame.node).sort(), ['one', 'two']);
  const frames = await seen(nodes[0], ofUser, (all) => all.filter((frame) => frame.kind === 'publication').length >= 2);
  assert.ok(frames.every((frame) => frame.node === 'two' && frame.client === client.name));
  nodes[1].process.kill('SIGSTOP');
  try {
    await until(async () => (await trace(nodes[0], ofUser)).result.missing_nodes?.length === 1);
  } finally {
    nodes[1].process.kill('SIGCONT');
  }
});
