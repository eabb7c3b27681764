// A cluster on a NATS server with a small limit for messages: a message that is too large is refused at once, and no answer claims that it
// was sent.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { Centrifuge } from 'centrifuge';
import WebSocket from 'ws';
import { Nats } from './nats.mjs';
import { LIMIT, PATIENCE, until } from './patience.mjs';
import { Server, token } from './server.mjs';

const CARRIED = 64 * 1024;
const scopes = [{ name: 'devices', meta_max_size: 2_000_000, allow_register: ['*'], allow_call_for_client: true }];

describe('a cluster on a NATS server with a small max_payload', () => {
  let nats;
  let nodes;
  const clients = [];
  before(async () => {
    nats = await Nats.start({ more: `max_payload: ${CARRIED}\n` });
    const change = { registry: { scopes }, cluster: { engine: 'nats', name: 'sizes', nats_url: [nats.url] } };
    nodes = await Promise.all([0, 1, 2].map(() => Server.start({ change })));
    await until(async () => {
      const counts = await Promise.all(nodes.map((node) => node.api('count', { scope: 'devices' })));
      return counts.every(({ result }) => result.nodes.length === nodes.length);
    }, 'the nodes to see each other');
    // The node learns the limit a moment after the first connect.
    for (const node of nodes) await until(async () => (await node.api('publish', { channel: 'any', data: 'x'.repeat(CARRIED) })).error?.code === 107, 'the bound');
  });
  after(async () => {
    clients.forEach((client) => client.disconnect());
    for (const node of nodes) {
      assert.doesNotMatch(node.output, /panicked|could not be sent/);
      assert.equal(await node.stop(), 0, node.output);
    }
    await nats.stop();
  });

  async function connect(node, sub) {
    const client = new Centrifuge(nodes[node].websocket, { websocket: WebSocket, timeout: PATIENCE, token: token({ sub }) });
    clients.push(client);
    client.heard = [];
    client.on('message', ({ data }) => client.heard.push(data));
    const connected = new Promise((resolve) => client.once('connected', resolve));
    client.connect();
    client.id = (await connected).client;
    return client;
  }

  test('larger messages are refused, wherever the receiver is', LIMIT, async () => {
    const [near, far] = [await connect(0, 'near'), await connect(1, 'far')];
    for (const client of [near, far]) await client.rpc('registry.register', { scope: 'devices', name: client === near ? 'near' : 'far' });
    await until(async () => (await nodes[0].api('lookup', { scope: 'devices', name: 'far' })).result, 'the far name');
    for (const [size, code] of [[CARRIED - 2_000, undefined], [CARRIED, 107], [500_000, 107]]) {
      const data = 'x'.repeat(size);
      for (const client of [near, far]) {
        const [name, heard] = [client === near ? 'near' : 'far', client.heard.length];
        const sent = await nodes[0].api('send', { scope: 'devices', name, data });
        assert.deepEqual([sent.error?.code, sent.result?.sent], [code, code ? undefined : 1], `${size} bytes to ${name}`);
        if (!code) await until(() => client.heard.length > heard, 'the message');
        if (code) assert.equal((await nodes[0].api('call', { scope: 'devices', name, data, timeout_ms: 60_000 })).error.code, code);
        for (const method of ['register', 'update_meta', 'join']) {
          const key = method === 'join' ? { group: 'all' } : { name };
          const answer = await nodes[0].api(method, { scope: 'devices', ...key, meta: data, client: client.id });
          assert.equal(answer.error?.code, code, `${method} of ${size} bytes for ${name}: ${JSON.stringify(answer).slice(0, 200)}`);
        }
      }
    }
    // The other nodes get all later messages.
    await near.rpc('registry.register', { scope: 'devices', name: 'later' });
    for (const node of nodes) await until(async () => (await node.api('lookup', { scope: 'devices', name: 'later' })).result, 'a later name');
    for (const channel of ['any', 'history:any']) {
      assert.equal((await nodes[0].api('publish', { channel, data: 'x'.repeat(CARRIED) })).error?.code, 107);
      assert.equal((await nodes[0].api('publish', { channel, data: 'x'.repeat(CARRIED - 3_000) })).error, undefined);
    }
    assert.match(nodes[0].output, /meta_max_size.*"devices" bytes=65536/);
  });

  test('an answer of many messages comes whole', LIMIT, async () => {
    const expected = new Set();
    await Promise.all([1, 2].flatMap((node) => Array.from({ length: 8 }, async (_, number) => {
      const client = await connect(node, `of-${node}-${number}`);
      await Promise.all(Array.from({ length: 100 }, async (_, at) => {
        const channel = `${'long-'.repeat(20)}${node}-${number}-${at}`;
        expected.add(channel);
        const subscription = client.newSubscription(channel);
        subscription.subscribe();
        await subscription.ready(PATIENCE);
      }));
    })));
    const { result } = await nodes[0].api('channels');
    assert.deepEqual(Object.keys(result.channels).filter((channel) => channel.startsWith('long-')).sort(), [...expected].sort());
  });

  test('an operation for a client does not wait for a frozen node', LIMIT, async () => {
    const far = await connect(1, 'far');
    nodes[2].process.kill('SIGSTOP');
    try {
      // The process stops when the kernel handles the signal, and may answer until then.
      const state = () => readFileSync(`/proc/${nodes[2].process.pid}/stat`, 'utf8').split(') ')[1][0];
      await until(() => state() === 'T', 'the node to stand still');
      let isOver = false;
      const slow = nodes[0].api('info').then(() => { isOver = true; });
      const joined = await nodes[0].api('join', { scope: 'devices', group: 'some', client: far.id });
      assert.deepEqual([joined, isOver], [{ result: {} }, false], 'before a question to all nodes that was asked earlier');
      await slow;
      const unknown = await nodes[0].api('join', { scope: 'devices', group: 'some', client: '00000000-0000-4000-8000-000000000009' });
      assert.equal(unknown.error?.code, 4009, 'it may be at the frozen node');
    } finally {
      nodes[2].process.kill('SIGCONT');
    }
  });
});
