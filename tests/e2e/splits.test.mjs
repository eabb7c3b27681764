// Three machines in network namespaces, each with a NATS server and a node. Links between them are cut, slowed and healed. Meanwhile
// official clients are connected to every node, names are registered and unregistered, and every node gets publications.
import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { Centrifuge } from 'centrifuge';
import WebSocket from 'ws';
import { Nats } from './nats.mjs';
import { Network } from './network.mjs';
import { eventually, SCOPES } from './registry.mjs';
import { Server, token } from './server.mjs';

const CHANNEL = 'history:match';
/** The time after the healing in which all effects of the split must end. */
const HEALED_SECONDS = 20;
/** The same time for lost publications: reads without an answer are repeated, caches are checked, and clients wait between their attempts. */
const RECOVERED_SECONDS = 30;

describe('three machines', () => {
  let network;
  let servers = [];
  let nodes = [];
  let fans = [];
  let devices = [];

  before(async () => {
    network = new Network(3);
    servers = await Promise.all([0, 1, 2].map((machine) => Nats.member(network, machine)));
    const urls = servers.map((server) => server.url);
    nodes = await Promise.all([0, 1, 2].map((machine) => {
      // The node connects to its own server first, and to the others when that server is gone.
      const nats_url = [urls[machine], ...urls.filter((url) => url !== urls[machine])];
      const cluster = { engine: 'nats', name: 'splits', nats_url, nats_no_randomize: true, stream_replicas: 3, heartbeat_interval: '300ms', node_timeout: '1500ms' };
      // JetStream first elects its leaders, which takes long on a busy machine.
      return Server.start({ port: 8000, seconds: 180, change: { registry: { scopes: SCOPES }, client: { recovery_max_publication_limit: 10_000 }, history: { history_size: 10_000 }, cluster }, on: { address: network.address(machine), words: network.on(machine, []) } });
    }));
    await eventually(() => seen(3), 'the nodes to see each other', 60);
    fans = await Promise.all(nodes.map(fan));
    devices = await Promise.all(nodes.map((_, node) => device(node, `open-steady-${node}`)));
    await eventually(() => agreed(), 'all names on all nodes', 30);
  });

  after(async () => {
    for (const { client } of [...fans, ...devices]) client.disconnect();
    const exits = await Promise.all(nodes.map((node) => node.stop()));
    for (const server of servers) await server.stop();
    network?.destroy();
    for (const [number, node] of nodes.entries()) {
      assert.doesNotMatch(node.output, /panicked/);
      assert.equal(exits[number], 0, node.output);
    }
  });

  afterEach(() => network.heal());

  const seen = async (count) => {
    for (const node of nodes) {
      if ((await node.api('count', { scope: 'devices' })).result.nodes.length !== count) return false;
    }
    return true;
  };

  function connect(node, options = {}) {
    const client = new Centrifuge(nodes[node].websocket, { websocket: WebSocket, minReconnectDelay: 50, maxReconnectDelay: 300, token: token({ sub: `user-${node}` }), ...options });
    client.disconnects = [];
    client.on('disconnected', (event) => client.disconnects.push(event.code));
    client.connect();
    return client;
  }

  /** Follows the match on a node, and records its publications. */
  async function fan(_, node) {
    const client = connect(node);
    const subscription = client.newSubscription(CHANNEL);
    const seen = [];
    subscription.on('publication', (event) => seen.push(event.data));
    const story = [];
    for (const name of ['subscribing', 'subscribed', 'unsubscribed', 'error']) {
      subscription.on(name, (event) => story.push([new Date().toISOString().slice(17, 23), name, event.code, event.error?.code, event.wasRecovering, event.recovered, event.streamPosition?.offset]));
    }
    subscription.subscribe();
    await subscription.ready(30_000);
    return { client, seen, story };
  }

  /** A client that registers names, and records which names it holds. */
  async function device(node, name) {
    const client = connect(node);
    await client.ready(30_000);
    const held = new Set();
    client.on('message', ({ data }) => data.lost && held.delete(data.lost.name));
    const made = { client, node, held };
    await register(made, name);
    return made;
  }

  async function register({ client, held }, name, more = {}) {
    try {
      await client.rpc('registry.register', { scope: 'devices', name, ...more });
      held.add(name);
    } catch (error) {
      assert.equal(error.code, 4001);
    }
  }

  async function unregister({ client, held }, name) {
    held.delete(name);
    await client.rpc('registry.unregister', { scope: 'devices', name });
  }

  const namesOn = async (node) => {
    const found = [];
    let cursor = 0;
    do {
      const { result } = await nodes[node].api('names', { scope: 'devices', limit: 1000, cursor });
      found.push(...result.names.map((entry) => `${entry.name} ${entry.client}`));
      cursor = result.cursor ?? 0;
    } while (cursor);
    return found.sort();
  };

  /** All nodes list the same names, and these are the names that clients hold. */
  async function agreed() {
    const lists = await Promise.all([0, 1, 2].map(namesOn));
    const held = devices.flatMap((device) => [...device.held]).sort();
    try {
      for (const list of lists) assert.deepEqual(list, lists[0]);
      assert.deepEqual(lists[0].map((line) => line.split(' ')[0]), held);
      return true;
    } catch { return false; }
  }

  /**
   * Publishes on every node until `stop` is called or the node is dead, and repeats each publication until it is acknowledged.
   * Returns the acknowledged publications.
   */
  function publish() {
    const acknowledged = [];
    let isOver = false;
    const publishers = nodes.map(async (node, number) => {
      for (let n = 0; !isOver; n++) {
        const body = { channel: CHANNEL, data: `${number}-${Date.now()}-${n}`, idempotency_key: `${number}-${Date.now()}-${n}` };
        for (let tries = 0; !isOver || tries > 0; tries++) {
          const reply = await node.api('publish', body).catch(() => ({}));
          if (reply.result) { acknowledged.push(body.data); break; }
          if (node.process.signalCode) return;
          await sleep(50);
        }
        await sleep(20);
      }
    });
    return async () => {
      // This is enough to show an effect, even on a slow machine.
      await eventually(() => acknowledged.length > 60, 'publications', 60);
      isOver = true;
      await Promise.all(publishers);
      return acknowledged;
    };
  }

  /** Registers and unregisters names on every node. Some names are the same on all nodes. */
  function churn() {
    let isOver = false;
    const workers = devices.map(async (device) => {
      for (let n = 0; !isOver; n++) {
        await register(device, `open-own-${device.node}-${n % 50}`);
        await register(device, `open-contested-${n % 10}`, n % 3 === 0 ? { policy: 'newest' } : {});
        const [some] = [...device.held].filter((name) => !name.includes('steady')).slice(n % 7);
        if (n % 2 && some) await unregister(device, some).catch((error) => assert.equal(error.code, 4002));
        await sleep(10);
      }
    });
    return async () => {
      isOver = true;
      await Promise.all(workers);
    };
  }

  async function converged(stop, stopChurn) {
    await stopChurn();
    await eventually(() => seen(3), 'all nodes to see each other', HEALED_SECONDS);
    await eventually(() => agreed(), 'the same names everywhere, and those that clients hold', HEALED_SECONDS);
    const acknowledged = await stop();
    await complete(acknowledged);
    for (const { client } of [...fans, ...devices]) assert.deepEqual(client.disconnects, [], 'clients stay connected');
    return acknowledged.length;
  }

  /**
   * Every fan has each acknowledged publication once, and all fans have the same order. The publications of one publisher are in
   * the order of their acknowledgements.
   */
  async function complete(acknowledged) {
    const missing = () => fans.map(({ seen }) => {
      const all = new Set(seen);
      return acknowledged.filter((data) => !all.has(data));
    });
    const isComplete = () => fans.every(({ seen }) => seen.length === fans[0].seen.length) && missing().every((some) => some.length === 0);
    await eventually(isComplete, 'all that was acknowledged', RECOVERED_SECONDS)
      .catch((error) => assert.fail(`${new Date().toISOString().slice(17, 23)} ${error.message}; of ${acknowledged.length}, fans have ${fans.map(({ seen }) => seen.length)}, and lack ${JSON.stringify(missing().map((some) => [some.length, ...some.slice(0, 3)]))}; ${JSON.stringify(fans.map(({ story }) => story.slice(-12)))}`));
    for (const { seen } of fans) {
      assert.deepEqual(seen, fans[0].seen, 'one order');
      assert.equal(new Set(seen).size, seen.length, 'nothing twice');
    }
    const by = (publisher, list) => list.filter((data) => data.startsWith(`${publisher}-`));
    for (const publisher of new Set(acknowledged.map((data) => data.split('-')[0]))) {
      const sent = new Set(by(publisher, acknowledged));
      assert.deepEqual(by(publisher, fans[0].seen).filter((data) => sent.has(data)), [...sent], 'the order of each publisher');
    }
  }

  // The state of one test is not used in the next test.
  beforeEach(() => fans.forEach(({ seen }) => seen.splice(0)));

  test('a full split: one against two', { timeout: 180_000 }, async () => {
    const [stop, stopChurn] = [publish(), churn()];
    await sleep(500);
    network.cut(0, 2);
    network.cut(1, 2);
    await eventually(async () => (await nodes[2].api('count', { scope: 'devices' })).result.nodes.length === 1, 'the lonely one to know', 30);
    await sleep(2_000);
    assert.equal((await nodes[2].api('lookup', { scope: 'devices', name: 'open-steady-2' })).result.name, 'open-steady-2');
    assert.equal((await nodes[2].api('lookup', { scope: 'devices', name: 'open-steady-0' })).error.code, 4002);
    assert.equal((await nodes[0].api('lookup', { scope: 'devices', name: 'open-steady-1' })).result.name, 'open-steady-1');
    network.heal();
    assert.ok(await converged(stop, stopChurn) > 50);
  });

  test('a partial split: the two ends of a row don\'t see each other', { timeout: 180_000 }, async () => {
    const [stop, stopChurn] = [publish(), churn()];
    network.cut(0, 2);
    await eventually(async () => (await nodes[0].api('count', { scope: 'devices' })).result.nodes.length === 2, 'one end to forget the other', 30);
    await sleep(1_000);
    assert.equal((await nodes[1].api('count', { scope: 'devices' })).result.nodes.length, 3, 'the middle sees both');
    network.heal();
    assert.ok(await converged(stop, stopChurn) > 50);
  });

  test('a link that flaps', { timeout: 240_000 }, async () => {
    const [stop, stopChurn] = [publish(), churn()];
    for (let flap = 0; flap < 8; flap++) {
      network.cut(1, 2);
      await sleep(flap % 2 ? 300 : 2_500);
      network.heal();
      await sleep(1_000);
    }
    assert.ok(await converged(stop, stopChurn) > 50);
  });

  test('a link that is slow', { timeout: 180_000 }, async () => {
    const [stop, stopChurn] = [publish(), churn()];
    network.slow(1, '400kbit');
    await sleep(4_000);
    network.fast(1);
    assert.ok(await converged(stop, stopChurn) > 10);
  });

  test('a NATS server is lost and comes back', { timeout: 180_000 }, async () => {
    const [stop, stopChurn] = [publish(), churn()];
    await sleep(300);
    await servers[0].kill();
    await sleep(4_000);
    assert.equal((await fetch(`${nodes[0].http}/health`)).status, 200, 'its node has gone to another');
    await servers[0].run();
    await sleep(1_000);
    assert.ok(await converged(stop, stopChurn) > 10);
  });

  test('a node is killed under load', { timeout: 180_000 }, async () => {
    const before = devices[2];
    fans.splice(2)[0].client.disconnect();
    devices.splice(2);
    // The publisher also publishes on the node that is killed.
    const [stop, stopChurn] = [publish(), churn()];
    const [killed] = nodes.splice(2);
    await sleep(1_000);
    await killed.stop('SIGKILL');
    before.client.disconnect();
    await eventually(async () => (await nodes[0].api('count', { scope: 'devices' })).result.nodes.length === 2, 'the others to forget it', HEALED_SECONDS);
    assert.equal((await nodes[0].api('lookup', { scope: 'devices', name: 'open-steady-2' })).error.code, 4002);
    const [acknowledged] = await Promise.all([stop(), stopChurn()]);
    assert.deepEqual([...new Set(acknowledged.map((data) => data[0]))].sort(), ['0', '1', '2'], 'all three acknowledged something');
    await eventually(async () => {
      const lists = await Promise.all([0, 1].map(namesOn));
      return JSON.stringify(lists[0]) === JSON.stringify(lists[1]) && lists[0].length === devices.reduce((sum, device) => sum + device.held.size, 0);
    }, 'the two that are left to agree', HEALED_SECONDS);
    await complete(acknowledged);
  });
});
