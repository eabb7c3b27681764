// Two nodes gave away the same name while they could not reach each other: the backend decides which client keeps it.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { connect, createServer } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { Centrifuge } from 'centrifuge';
import WebSocket from 'ws';
import { Backend } from './hooks.mjs';
import { Nats } from './nats.mjs';
import { LIMIT, PATIENCE, until } from './patience.mjs';
import { freePort, Server, token } from './server.mjs';

/** A link to NATS that can be stopped: what is sent while it stands still arrives later. */
async function slowWay(port) {
  const sockets = new Set();
  const own = await freePort();
  const listener = createServer((near) => {
    const far = connect(port, '127.0.0.1');
    for (const socket of [near, far]) sockets.add(socket.on('error', () => {}).on('close', () => { near.destroy(); far.destroy(); }));
    near.on('data', (data) => far.write(data));
    far.on('data', (data) => near.write(data));
  });
  await new Promise((resolve) => listener.listen(own, '127.0.0.1', resolve));
  return {
    url: `nats://127.0.0.1:${own}`,
    hold: () => sockets.forEach((socket) => socket.pause()),
    goOn: () => sockets.forEach((socket) => socket.resume()),
    stop: () => { listener.close(); sockets.forEach((socket) => socket.destroy()); },
  };
}

describe('a contested name', () => {
  let nats, way, backend, nodes, decide;
  const clients = [];
  before(async () => {
    nats = await Nats.start();
    way = await slowWay(nats.port);
    backend = await Backend.start((question) => decide(question));
    const scopes = [{ name: 'doors', conflict_policy: 'hook', allow_register: ['*'] }];
    const proxy = { conflict: { endpoint: backend.url('/conflict'), timeout: '5s' } };
    const change = (nats_url) => ({
      registry: { scopes, proxy },
      cluster: { engine: 'nats', name: `conflict-${process.pid}`, nats_url: [nats_url], heartbeat_interval: '300ms', node_timeout: '10s' },
    });
    nodes = [await Server.start({ change: change(nats.url) }), await Server.start({ change: change(way.url) })];
    await until(async () => {
      const counts = await Promise.all(nodes.map((node) => node.api('count', { scope: 'doors' })));
      return counts.every(({ result }) => result?.nodes.length === 2);
    }, 'the nodes to see each other');
  });
  after(async () => {
    clients.forEach((client) => client.disconnect());
    for (const node of nodes ?? []) await node.stop();
    await backend?.stop();
    way?.stop();
    await nats?.stop();
  });

  async function client(node, user) {
    const client = new Centrifuge(node.websocket, { websocket: WebSocket, timeout: PATIENCE, token: token({ sub: user }) });
    clients.push(client);
    client.on('connected', (event) => { client.id = event.client; });
    client.connect();
    await client.ready(PATIENCE);
    return client;
  }

  const register = (client, name, meta) => client.rpc('registry.register', { scope: 'doors', name, meta });
  const owner = async (node, name) => (await node.api('lookup', { scope: 'doors', name })).result?.client;

  /** Ann gets the name on one node. Bob gets it a little later on the other node, before the nodes reach each other again. */
  async function contest(name, answer) {
    const [ann, bob] = [await client(nodes[0], 'ann'), await client(nodes[1], 'bob')];
    decide = (question) => answer(question, ann, bob);
    way.hold();
    try {
      await register(ann, name, { of: 'ann' });
      // waits: the second claim must have a later time.
      await sleep(50);
      await register(bob, name, { of: 'bob' });
    } finally {
      way.goOn();
    }
    return [ann, bob];
  }

  /** The number of questions that have ended. */
  const decided = async () => {
    const texts = await Promise.all(nodes.map((node) => node.metrics()));
    return texts.flatMap((text) => [...text.matchAll(/^touchline_hook_calls_total\{[^}]*hook="conflict"[^}]*\} (\d+)/gm)]).reduce((sum, [, count]) => sum + Number(count), 0);
  };

  const keeps = (name, client) => until(async () => {
    const owners = await Promise.all(nodes.map((node) => owner(node, name)));
    return owners.every((id) => id === client.id);
  }, `both nodes to know the owner of ${name}`);

  test('is kept by the client that the backend names, and the question has both claims', LIMIT, async () => {
    const [ann, bob] = await contest('front', (_, first) => ({ result: { keep: first.id } }));
    await keeps('front', ann);
    const [question, ...more] = backend.of('/conflict');
    assert.deepEqual(more, [], 'it is asked once');
    const { scope, name, claims } = question;
    assert.deepEqual([scope, name], ['doors', 'front']);
    assert.deepEqual(claims.map(({ client, user, meta }) => ({ client, user, meta })), [
      { client: ann.id, user: 'ann', meta: { of: 'ann' } },
      { client: bob.id, user: 'bob', meta: { of: 'bob' } },
    ]);
    assert.ok(claims[0].time <= claims[1].time && claims[0].node !== claims[1].node, JSON.stringify(claims));
  });

  for (const [what, answer] of [
    ['an answer that names neither client', () => ({ result: { keep: 'nobody' } })],
    ['an error', () => ({ error: { code: 500, message: 'no' } })],
    ['no answer in time', () => new Promise(() => {})],
  ]) {
    test(`is kept by the later claim after ${what}, and other names do not wait`, LIMIT, async () => {
      const name = what.replaceAll(' ', '-');
      const [ann, bob] = await contest(name, answer);
      await register(ann, `other-${name}`);
      await until(() => backend.of('/conflict').some((question) => question.name === name), 'the question');
      await until(async () => (await decided()) >= backend.of('/conflict').length, 'the end of the question');
      await keeps(name, bob);
      await keeps(`other-${name}`, ann);
      assert.ok((await nodes[0].api('info', {})).result, 'the node serves others');
    });
  }
});
