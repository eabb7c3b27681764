// Three machines in network namespaces, each with a NATS server and a node. Links between them are cut, slowed and healed. Meanwhile
// official clients are connected to every node, names are registered and unregistered, and every node gets publications.
import assert from 'node:assert/strict';
import { afterEach, beforeEach, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { Centrifuge } from 'centrifuge';
import WebSocket from 'ws';
import { Nats } from './nats.mjs';
import { Network } from './network.mjs';
import { LIMIT, PATIENCE, until } from './patience.mjs';
import { SCOPES } from './registry.mjs';
import { Server, token } from './server.mjs';

const CHANNEL = 'history:match';

describe('three machines', () => {
  let network;
  let servers = [];
  let nodes = [];
  let fans = [];
  let devices = [];

  // Each test has machines of its own: what one test breaks does not reach the next.
  beforeEach(async () => {
    network = new Network(3);
    servers = await Nats.cluster(network);
    const urls = servers.map((server) => server.url);
    nodes = await Promise.all([0, 1, 2].map((machine) => {
      // The node connects to its own server first, and to the others when that server is gone.
      const nats_url = [urls[machine], ...urls.filter((url) => url !== urls[machine])];
      // short: a cut of 2.5 s must lose the node. What a stall of the machine loses comes back, and the tests wait for it.
      const cluster = { engine: 'nats', name: 'splits', nats_url, nats_no_randomize: true, stream_replicas: 3, heartbeat_interval: '300ms', node_timeout: '1500ms' };
      return Server.start({ port: 8000, change: { registry: { scopes: SCOPES }, client: { recovery_max_publication_limit: 10_000 }, history: { history_size: 10_000 }, cluster }, on: { address: network.address(machine), words: network.on(machine, []) } });
    }));
    await until(() => seen(3), 'the nodes to see each other');
    fans = await Promise.all(nodes.map(fan));
    devices = await Promise.all(nodes.map((_, node) => device(node, `open-steady-${node}`)));
    await until(() => agreed(), 'all names on all nodes');
    await areCurrent();
  });

  afterEach(async () => {
    network.heal();
    for (const { client } of [...fans, ...devices]) client.disconnect();
    const exits = await Promise.all(nodes.map((node) => node.stop()));
    for (const server of servers) await server.stop();
    network?.destroy();
    for (const [number, node] of nodes.entries()) {
      assert.doesNotMatch(node.output, /panicked/);
      assert.equal(exits[number], 0, node.output);
    }
  });

  /** Waits until each server has all messages of all streams. */
  const areCurrent = () => until(() => Nats.areCurrent(servers), 'the copies of the streams');

  const seen = async (count) => {
    for (const node of nodes) {
      if ((await node.api('count', { scope: 'devices' })).result.nodes.length !== count) return false;
    }
    return true;
  };

  function connect(node, options = {}) {
    const client = new Centrifuge(nodes[node].websocket, { websocket: WebSocket, timeout: PATIENCE, minReconnectDelay: 50, maxReconnectDelay: 300, token: token({ sub: `user-${node}` }), ...options });
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
    await subscription.ready(PATIENCE);
    return { client, seen, story };
  }

  /** A client that registers names, and records which names it holds. */
  async function device(node, name) {
    const client = connect(node);
    await client.ready(PATIENCE);
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
   * `stop` returns the acknowledged publications; `more` waits for twenty others.
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
          // waits: between the attempts of a client.
          await sleep(50);
        }
        // waits: between the publications of a client.
        await sleep(20);
      }
    });
    const more = async () => {
      const enough = acknowledged.length + 20;
      await until(() => acknowledged.length >= enough, 'publications');
    };
    const stop = async () => {
      await until(() => acknowledged.length > 60, 'publications');
      isOver = true;
      await Promise.all(publishers);
      return acknowledged;
    };
    return { acknowledged, more, stop };
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
        // waits: between the commands of a client.
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
    await areCurrent();
    await until(() => seen(3), 'all nodes to see each other');
    await until(() => agreed(), 'the same names everywhere, and those that clients hold');
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
    await until(isComplete, () => `${new Date().toISOString().slice(17, 23)} of ${acknowledged.length}, fans have ${fans.map(({ seen }) => seen.length)}, and lack ${JSON.stringify(missing().map((some) => [some.length, ...some.slice(0, 3)]))}; ${JSON.stringify(fans.map(({ story }) => story.slice(-12)))}`);
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

  test('a full split: one against two', LIMIT, async () => {
    const [{ more, stop }, stopChurn] = [publish(), churn()];
    await more();
    network.cut(0, 2);
    network.cut(1, 2);
    await until(async () => (await nodes[2].api('count', { scope: 'devices' })).result.nodes.length === 1, 'the lonely one to know');
    await more();
    const lookup = (node, name) => nodes[node].api('lookup', { scope: 'devices', name });
    for (const [node, name] of [[2, 'open-steady-2'], [0, 'open-steady-1']]) await until(async () => (await lookup(node, name)).result?.name === name, name);
    await until(async () => (await lookup(2, 'open-steady-0')).error?.code === 4002, 'a name of the others to be gone');
    network.heal();
    assert.ok(await converged(stop, stopChurn) > 50);
  });

  test('a partial split: the two ends of a row don\'t see each other', LIMIT, async () => {
    const [{ more, stop }, stopChurn] = [publish(), churn()];
    network.cut(0, 2);
    await until(async () => (await nodes[0].api('count', { scope: 'devices' })).result.nodes.length === 2, 'one end to forget the other');
    await more();
    await until(async () => (await nodes[1].api('count', { scope: 'devices' })).result.nodes.length === 3, 'the middle to see both');
    network.heal();
    assert.ok(await converged(stop, stopChurn) > 50);
  });

  test('a link that flaps', LIMIT, async () => {
    const [{ stop }, stopChurn] = [publish(), churn()];
    for (let flap = 0; flap < 8; flap++) {
      network.cut(1, 2);
      // waits: a cut of 2.5 s loses a node, one of 0.3 s does not.
      await sleep(flap % 2 ? 300 : 2_500);
      network.heal();
      // waits: the link works for a moment.
      await sleep(1_000);
    }
    assert.ok(await converged(stop, stopChurn) > 50);
  });

  test('a link that is slow', LIMIT, async () => {
    const [{ stop }, stopChurn] = [publish(), churn()];
    network.slow(1, '400kbit');
    // waits: queues must fill.
    await sleep(4_000);
    network.fast(1);
    assert.ok(await converged(stop, stopChurn) > 10);
  });

  test('a NATS server is lost and comes back', LIMIT, async () => {
    const [{ more, stop }, stopChurn] = [publish(), churn()];
    await more();
    await servers[0].kill();
    await more();
    await until(async () => (await fetch(`${nodes[0].http}/health`)).ok, 'its node to go to another');
    await servers[0].run();
    assert.ok(await converged(stop, stopChurn) > 10);
  });

  test('a node is killed under load', LIMIT, async () => {
    const before = devices[2];
    fans.splice(2)[0].client.disconnect();
    devices.splice(2);
    // The publisher also publishes on the node that is killed.
    const [{ acknowledged: all, stop }, stopChurn] = [publish(), churn()];
    const [killed] = nodes.splice(2);
    await until(() => all.some((data) => data.startsWith('2-')), 'a publication of the node');
    await killed.stop('SIGKILL');
    before.client.disconnect();
    await until(async () => (await nodes[0].api('count', { scope: 'devices' })).result.nodes.length === 2, 'the others to forget it');
    assert.equal((await nodes[0].api('lookup', { scope: 'devices', name: 'open-steady-2' })).error.code, 4002);
    const [acknowledged] = await Promise.all([stop(), stopChurn()]);
    assert.deepEqual([...new Set(acknowledged.map((data) => data[0]))].sort(), ['0', '1', '2'], 'all three acknowledged something');
    await until(async () => {
      const lists = await Promise.all([0, 1].map(namesOn));
      return JSON.stringify(lists[0]) === JSON.stringify(lists[1]) && lists[0].length === devices.reduce((sum, device) => sum + device.held.size, 0);
    }, 'the two that are left to agree');
    await complete(acknowledged);
  });
});
