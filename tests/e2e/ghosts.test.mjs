// Nodes that were away, are frozen, are killed, or have another version: a connected owner never loses a name to a closed connection.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { Centrifuge } from 'centrifuge';
import WebSocket from 'ws';
import { Nats } from './nats.mjs';
import { LIMIT, PATIENCE, until } from './patience.mjs';
import { Server, token } from './server.mjs';

const SCOPES = [
  { name: 'floor', conflict_policy: 'reject', disconnect_losers: true, allow_register: ['*'], allow_watch_for_client: true, allow_lookup_for_client: true },
  { name: 'devices', conflict_policy: 'reject', allow_register: ['{user}/*'], allow_send_for_client: true },
];
const NAMES = Array.from({ length: 20 }, (_, n) => `name-${n}`);

let serial = 0;
let nats;
const clients = [];
before(async () => { nats = await Nats.start(); });
after(async () => {
  clients.forEach((client) => client.disconnect());
  await nats.stop();
});

async function start(count, cluster = {}, scopes = () => SCOPES) {
  const name = `ghosts-${process.pid}-${++serial}`;
  const change = (n) => ({
    registry: { scopes: scopes(n) },
    cluster: { engine: 'nats', name, nats_url: [nats.url], heartbeat_interval: '300ms', node_timeout: '5s', ...cluster },
  });
  const nodes = [];
  for (let n = 0; n < count; n++) nodes.push(await Server.start({ change: change(n) }));
  await until(async () => (await Promise.all(nodes.map(sees))).every((seen) => seen === count), 'the nodes to see each other');
  return nodes;
}

const sees = async (node) => (await node.api('count', { scope: 'floor' })).result?.nodes.length;
const find = async (node, name, scope = 'floor') => (await node.api('lookup', { scope, name })).result?.client;
const health = async (node) => { const answer = await fetch(`${node.http}/health`); return [answer.status, await answer.text()]; };

async function connect(node, user) {
  const client = new Centrifuge(node.websocket, { websocket: WebSocket, timeout: PATIENCE, token: token({ sub: user }) });
  clients.push(client);
  client.told = [];
  client.on('message', (event) => client.told.push(event.data));
  client.on('disconnected', (event) => client.told.push(event));
  client.on('connected', (event) => { client.id = event.client; });
  client.connect();
  await client.ready(PATIENCE);
  return client;
}

const register = (client, name, scope = 'floor') => client.rpc('registry.register', { scope, name });

describe('past states do not come back', () => {
  test('names given up before NATS was away are not claimed again after it', LIMIT, async () => {
    const [one, two] = await start(2);
    const [ann, bob] = [await connect(two, 'ann'), await connect(one, 'bob')];
    const watcher = bob.newSubscription('$registry:floor');
    const seen = [];
    watcher.on('publication', ({ data }) => seen.push(...data.changes ?? []));
    watcher.subscribe();
    await watcher.ready(PATIENCE);
    for (const name of NAMES) {
      await register(ann, name);
      await until(async () => (await find(one, name)) === ann.id, 'the other node to know');
      await ann.rpc('registry.unregister', { scope: 'floor', name });
      await until(async () => !(await find(one, name)), 'the name to be free');
      await register(bob, name);
    }
    // The reply to the last registration may arrive before the change that it made.
    await until(async () => seen.some(({ name, client }) => name === NAMES.at(-1) && client === bob.id), 'the watcher to know');
    seen.length = 0;
    await nats.kill();
    await until(async () => (await sees(one)) === 1 && (await sees(two)) === 1, 'the nodes to forget each other');
    await nats.run();
    await until(async () => (await sees(one)) === 2 && (await sees(two)) === 2, 'the nodes to see each other');
    await until(async () => (await find(two, NAMES.at(-1))) === bob.id, 'the other node to know');
    for (const node of [one, two]) for (const name of NAMES) assert.equal(await find(node, name), bob.id, name);
    assert.deepEqual([bob.told, seen], [[], []], 'nobody is told of what is over');
    for (const node of [one, two]) await node.stop();
  });

  test('a node that joins late gets the present state, not former ones', LIMIT, async () => {
    const name = `late-${process.pid}`;
    const nodes = await start(1, { name });
    const ann = await connect(nodes[0], 'ann');
    for (const each of NAMES) {
      await register(ann, each);
      await ann.rpc('registry.unregister', { scope: 'floor', name: each });
    }
    await register(ann, 'kept');
    const change = { registry: { scopes: SCOPES }, cluster: { engine: 'nats', name, nats_url: [nats.url], heartbeat_interval: '300ms', node_timeout: '5s' } };
    nodes.push(await Server.start({ change }));
    assert.equal(await find(nodes[1], 'kept'), ann.id, 'a node that is ready knows what others have');
    const bob = await connect(nodes[1], 'bob');
    for (const each of NAMES) await register(bob, each);
    for (const node of nodes) await until(async () => (await find(node, 'kept')) === ann.id && (await find(node, NAMES.at(-1))) === bob.id, 'both to know');
    for (const node of nodes) for (const each of NAMES) assert.equal(await find(node, each), bob.id, each);
    assert.deepEqual([bob.told, ann.told], [[], []]);
    for (const node of nodes) await node.stop();
  });

  test('a node that stood still does not take the names of connections that closed meanwhile', LIMIT, async () => {
    const [one, two] = await start(2);
    const [ann, carl] = [await connect(two, 'ann'), await connect(two, 'carl')];
    for (const name of NAMES) await register(ann, name);
    await register(carl, 'lives');
    await until(async () => (await find(one, NAMES.at(-1))) === ann.id && (await find(one, 'lives')) === carl.id, 'the other node to know');
    two.process.kill('SIGSTOP');
    await until(async () => !(await find(one, 'lives')), 'the node to be forgotten');
    ann.disconnect();
    const bob = await connect(one, 'bob');
    for (const name of NAMES) await register(bob, name);
    two.process.kill('SIGCONT');
    await until(async () => (await find(one, 'lives')) === carl.id, 'what lives to be back');
    for (const node of [one, two]) for (const name of NAMES) await until(async () => (await find(node, name)) === bob.id, name);
    assert.deepEqual([bob.told, carl.told], [[], []], 'nobody has lost anything');
    for (const node of [one, two]) await node.stop();
  });
});

describe('a node that is killed', () => {
  test('is gone long before its silence would tell, and answers for it are not awaited', LIMIT, async () => {
    // By its silence the node would be noticed only after minutes. NATS reports at once that the node does not listen.
    const [one, two] = await start(2, { node_timeout: '5m', suspect_grace: '10s' });
    const [ann, bob] = [await connect(two, 'ann'), await connect(one, 'bob')];
    await register(ann, 'ann/phone', 'devices');
    await register(ann, 'taken');
    await until(async () => (await find(one, 'taken')) && (await find(one, 'ann/phone', 'devices')), 'the other node to know');
    ann.disconnect = () => {};
    two.process.kill('SIGKILL');
    await until(async () => (await one.api('send', { scope: 'devices', name: 'ann/phone', data: 1 })).error?.code === 4006, 'the node to be suspected');
    // At this time only the user of a name can register the name again.
    await assert.rejects(register(bob, 'taken'), { code: 4001 });
    const again = await connect(one, 'ann');
    await register(again, 'ann/phone', 'devices');
    assert.equal(await find(one, 'ann/phone', 'devices'), again.id);
    await until(async () => { await register(bob, 'taken'); return true; }, 'the name to be free');
    assert.equal(await sees(one), 1);
    assert.deepEqual([bob.told, again.told], [[], []]);
    await one.stop();
  });
});

describe('nodes that differ', () => {
  test('follow the stricter policy, and say so', LIMIT, async () => {
    const policy = (n) => SCOPES.map((scope) => ({ ...scope, conflict_policy: n === 0 ? 'newest' : scope.conflict_policy }));
    const [one, two] = await start(2, {}, policy);
    const [ann, bob] = [await connect(two, 'ann'), await connect(one, 'bob')];
    await register(ann, 'once');
    await until(async () => (await find(one, 'once')) === ann.id, 'the other node to know');
    await assert.rejects(bob.rpc('registry.register', { scope: 'floor', name: 'once', policy: 'newest' }), { code: 4001 }, 'newest gives way to reject');
    for (const node of [one, two]) await until(() => /another node has other options for this scope/.test(node.output));
    for (const node of [one, two]) await node.stop();
  });

  test('in version: the later one stands aside until the other has gone', LIMIT, async () => {
    const name = `versions-${process.pid}`;
    const subject = `touchline.${Buffer.from(name).toString('base64url')}.hello`;
    const hello = (more) => { const text = JSON.stringify({ node: 'of-tomorrow', started_ms: 1, versions: [7, 9], program: '9.9', ...more }); return nats.command(`PUB ${subject} ${text.length}\r\n${text}\r\n`); };
    const change = { registry: { scopes: SCOPES }, cluster: { engine: 'nats', name, nats_url: [nats.url], heartbeat_interval: '300ms', node_timeout: '60s' } };
    const node = await Server.start({ change });
    const sent = [];
    const timer = setInterval(() => sent.push(hello({})), 50);
    await until(async () => (await health(node))[1].includes('no part of the cluster'), 'the node to stand aside');
    const [status, why] = await health(node);
    assert.deepEqual([status, why], [503, 'no part of the cluster: node of-tomorrow (Touchline 9.9) speaks versions 7 to 9 between nodes, this one 1 to 1\n']);
    await until(() => /takes no part in the cluster until that node has gone/.test(node.output));
    const ann = await connect(node, 'ann');
    await register(ann, 'own');
    assert.equal(await find(node, 'own'), ann.id, 'it serves its own clients');
    clearInterval(timer);
    await Promise.all(sent);
    await hello({ leaves: true });
    await until(async () => (await health(node))[0] === 200, 'the node to join');
    await hello({ node: 'of-later', started_ms: Date.now() + 60_000 });
    await until(() => node.output.includes('of-later (Touchline 9.9) speaks versions 7 to 9'), 'the node to say whom it refuses');
    assert.equal((await health(node))[0], 200, 'it is the other that stands aside');
    await node.stop();
  });
});
