// Promises of the console to operators besides its pages: access rights, the log of activities, and reports of lost nodes.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect as h2 } from 'node:http2';
import { after, test } from 'node:test';
import WebSocket from 'ws';
import { Nats } from './nats.mjs';
import { LIMIT, until } from './patience.mjs';
import { Server } from './server.mjs';

const admin = { enabled: true, password: 'a password of operators', viewer_password: 'a password of viewers', secret: 'a secret that signs what is signed' };
const OWN = { 'X-Touchline-Console': '1', 'Content-Type': 'application/json' };
const started = [];
after(async () => {
  for (const part of started.reverse()) await part.stop('SIGKILL');
});

async function start(change) {
  const server = await Server.start({ change: { admin, ...change } });
  started.push(server);
  return server;
}

const post = (server, path, body, headers) => fetch(`${server.http}/admin/${path}`, { method: 'POST', headers: { ...OWN, ...headers }, body: JSON.stringify(body ?? {}) });

/** The header field of a person who has signed in with a password. */
async function signedIn(server, password = admin.password) {
  const answer = await post(server, 'login', { password });
  assert.equal(answer.status, 200);
  return { Cookie: answer.headers.get('set-cookie').split(';')[0] };
}

const overview = async (server) => (await server.api('overview')).result;
const problems = async (server) => (await overview(server)).problems.map((problem) => problem.id);

test('however many passwords are tried at once, five are looked at', LIMIT, async () => {
  const server = await start();
  const answers = await Promise.all(Array.from({ length: 60 }, (_, n) => post(server, 'login', { password: `guess ${n}` })));
  const of = (status) => answers.filter((answer) => answer.status === status).length;
  assert.deepEqual([of(401), of(429)], [5, 55]);
  const refused = await post(server, 'login', { password: admin.password });
  const { error } = await refused.json();
  assert.deepEqual([refused.status, error.code, error.retry_after > 0 && error.retry_after <= 60], [429, 111, true]);
});

test('a browser without a session has no live connection, and a silent one ends', LIMIT, async () => {
  const server = await start();
  const address = `${server.http.replace('http', 'ws')}/admin/connection/websocket`;
  const open = (headers) => new WebSocket(address, { origin: server.http, headers });
  const [, { statusCode }] = await once(open({}), 'unexpected-response');
  assert.equal(statusCode, 401);
  const silent = open(await signedIn(server));
  const [code] = await once(silent, 'close');
  assert.equal(code, 3502);
  const polite = open(await signedIn(server));
  await once(polite, 'open');
  polite.close(1000);
  const [own] = await once(polite, 'close');
  assert.equal(own, 1000);
});

test('a page of another origin is refused over HTTP/2 too', LIMIT, async () => {
  const server = await start();
  const { Cookie } = await signedIn(server);
  const session = h2(server.http);
  const ask = async (origin) => {
    const request = session.request({ ':method': 'POST', ':path': '/admin/op/info', 'x-touchline-console': '1', cookie: Cookie, origin });
    request.end('{}');
    const [headers] = await once(request, 'response');
    request.resume();
    return headers[':status'];
  };
  assert.deepEqual([await ask(server.http), await ask('http://evil.example')], [200, 403]);
  session.close();
});

test('without a password only localhost and addresses lead to the console', LIMIT, async () => {
  const server = await start({ admin: { enabled: true, insecure: true } });
  const session = h2(server.http);
  const ask = async (authority) => {
    const request = session.request({ ':path': '/admin/session', ':authority': authority });
    request.end();
    const [headers] = await once(request, 'response');
    request.resume();
    return headers[':status'];
  };
  const port = server.port;
  assert.deepEqual([await ask(`127.0.0.1:${port}`), await ask(`localhost:${port}`), await ask(`evil.example:${port}`)], [200, 200, 421]);
  session.close();
});

test('the log names the operator of each change, also in a batch, and a viewer changes nothing', LIMIT, async () => {
  const server = await start();
  const [operator, viewer] = [await signedIn(server), await signedIn(server, admin.viewer_password)];
  const commands = [{ publish: { channel: 'room:a', data: 1 } }, { info: {} }, { block_user: { user: 'eve' } }, { publish: { channel: 'none:a', data: 1 } }];
  assert.equal((await post(server, 'op/batch', { commands }, operator)).status, 200);
  assert.equal((await post(server, 'op/nothing', {}, operator)).status, 404);
  for (const operation of ['batch', 'publish', 'trace', 'token_check', 'reload', 'nothing']) assert.equal((await post(server, `op/${operation}`, { commands: [] }, viewer)).status, 403, operation);
  const { result: { activity } } = await server.api('activity');
  const told = activity.filter((one) => one.role === 'operator' && one.what !== 'sign in').map(({ what, target, result }) => [what, target, result].join(' '));
  assert.deepEqual(told.reverse(), ['publish room:a ok', 'block_user eve ok', 'publish none:a error 102']);
});

test('a key that is limited to channels traces these, and no users', LIMIT, async () => {
  const server = await Server.start({ change: { admin: { trace_payloads: true } } });
  started.push(server);
  server.configure({ admin: { trace_payloads: true } }, (written) => { written.http_api.keys = [{ name: 'tail', key: 'a secret of sixteen', operations: ['trace', '@read'], channels: ['room:*'] }, { name: 'reader', key: 'another of sixteen', operations: ['@read'] }]; });
  assert.ok((await server.api('reload')).result);
  const ask = async (key, question) => (await (await fetch(`${server.http}/api/trace`, { method: 'POST', headers: { 'X-API-Key': key }, body: JSON.stringify({ id: `${Math.random()}`, ...question }) })).json()).error?.code;
  assert.deepEqual([await ask('a secret of sixteen', { channel: 'room:a' }), await ask('a secret of sixteen', { channel: 'history:a' })], [undefined, 103]);
  assert.equal(await ask('a secret of sixteen', { user: 'ana', payloads: true }), 103);
  assert.equal(await ask('another of sixteen', { channel: 'room:a' }), 103, 'traces are in no group');
});

test('a refused reload is a problem until the next one is taken', LIMIT, async () => {
  const server = await start();
  const set = async (interval) => {
    server.configure({ admin }, (written) => { written.client.ping_interval = interval; });
    return (await server.api('reload')).error?.code;
  };
  assert.deepEqual([await set('20s'), await problems(server)], [undefined, []]);
  assert.equal(await set('nonsense'), 4017);
  await until(async () => (await problems(server)).includes('reload_failed'));
  assert.equal(await set('21s'), undefined);
  const { activity } = await overview(server);
  assert.deepEqual(activity.filter((one) => one.what === 'reload').map((one) => one.result), ['ok', 'refused', 'ok']);
});

test('a killed node is a problem until another comes, a stopped one is not; a session is valid on every node', LIMIT, async () => {
  const nats = await Nats.start();
  started.push(nats);
  const cluster = { engine: 'nats', nats_url: [nats.url], name: 'operators' };
  const node = (name) => start({ cluster, node: { name } });
  const [one, two, three] = [await node('one'), await node('two'), await node('three')];
  for (const each of [one, two, three]) await until(async () => (await overview(each)).nodes.length === 3);
  const operator = await signedIn(one);
  const there = await (await post(two, 'op/overview', {}, operator)).json();
  assert.deepEqual(there.result.nodes.map((each) => each.name), ['one', 'three', 'two']);
  await three.stop();
  await until(async () => (await overview(one)).nodes.length === 2);
  assert.deepEqual(await problems(one), []);
  two.process.kill('SIGKILL');
  const lost = await until(async () => (await overview(one)).problems.find((problem) => problem.id === 'node_lost'));
  assert.match(lost.words, /gone without a goodbye/);
  assert.ok((await overview(one)).activity.some((change) => change.what === 'node lost'));
  // The problem is there when the node has found a later one.
  one.configure({ cluster, node: { name: 'one' }, admin }, (written) => { written.client.ping_interval = 'nonsense'; });
  assert.ok((await one.api('reload')).error);
  await until(async () => (await problems(one)).includes('reload_failed'));
  assert.ok((await problems(one)).includes('node_lost'), 'it stays');
  await node('two');
  // A problem ends when its condition has been false for half a minute.
  await until(async () => !(await problems(one)).includes('node_lost'));
});
