// Three nodes on a real nats-server: the registry and the channels of the cluster, and failures of a node or of NATS.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { Centrifuge } from 'centrifuge';
import WebSocket from 'ws';
import { Nats, slowLink } from './nats.mjs';
import { LIMIT, PATIENCE, until } from './patience.mjs';
import { scenarios, SCOPES } from './registry.mjs';
import { Server, token } from './server.mjs';

const clients = [];
let serial = 0;
const unique = (prefix) => `${prefix}${Date.now()}-${++serial}`;

async function startNodes(nats, count, name = unique('test')) {
  const change = { registry: { scopes: SCOPES }, cluster: { engine: 'nats', name, nats_url: [nats.url], heartbeat_interval: '300ms', node_timeout: '5s' } };
  const nodes = await Promise.all(Array.from({ length: count }, () => Server.start({ change })));
  await seeEachOther(nodes);
  return nodes;
}

const seeEachOther = (nodes) => until(async () => {
  for (const node of nodes) {
    const { result } = await node.api('count', { scope: 'devices' });
    if (result.nodes.length !== nodes.length) return false;
  }
  return true;
}, 'the nodes to see each other');

async function connect(node, options = {}) {
  const made = new Centrifuge(node.websocket, { websocket: WebSocket, timeout: PATIENCE, minReconnectDelay: 50, maxReconnectDelay: 300, ...options });
  clients.push(made);
  made.connect();
  await made.ready(PATIENCE);
  return made;
}

async function follow(client, channel, options = {}) {
  const subscription = client.newSubscription(channel, options);
  subscription.seen = [];
  subscription.contexts = [];
  subscription.on('publication', (event) => subscription.seen.push(event));
  subscription.on('subscribed', (event) => subscription.contexts.push(event));
  subscription.subscribe();
  await subscription.ready(PATIENCE);
  return subscription;
}

const data = (subscription) => subscription.seen.map((event) => event.data);

after(() => clients.forEach((client) => client.disconnect()));

describe('a cluster of three nodes', () => {
  let nats;
  let nodes;
  before(async () => {
    nats = await Nats.start();
    nodes = await startNodes(nats, 3);
  });
  after(async () => {
    clients.forEach((client) => client.disconnect());
    for (const node of nodes) {
      assert.doesNotMatch(node.output, /panicked/);
      assert.equal(await node.stop(), 0, node.output);
    }
    await nats.stop();
  });

  for (const [name, run] of Object.entries(scenarios)) {
    test(name, LIMIT, () => run({
      client: (node, options) => connect(nodes[node], options),
      api: (node, method, body) => nodes[node].api(method, body),
      token,
      equal: assert.deepEqual,
    }));
  }

  test('a publication reaches the subscribers of every node, in one order', LIMIT, async () => {
    const channel = unique('news');
    const followers = await Promise.all(nodes.map(async (node) => follow(await connect(node), channel)));
    await Promise.all([0, 1, 2].map(async (node) => {
      for (let n = 0; n < 50; n++) assert.deepEqual((await nodes[node].api('publish', { channel, data: [node, n], tags: { n: String(n) } })).result, {});
    }));
    await until(() => followers.every((follower) => follower.seen.length === 150), 'all publications');
    for (const follower of followers) assert.deepEqual(data(follower), data(followers[0]));
    assert.deepEqual(followers[2].seen[0].tags, { n: '0' });
  });

  test('a channel with history has one sequence of offsets on all nodes, and any node recovers it', LIMIT, async () => {
    const channel = unique('history:');
    const early = await Promise.all(nodes.map(async (node) => follow(await connect(node), channel)));
    const offsets = [];
    for (let n = 0; n < 30; n++) offsets.push((await nodes[n % 3].api('publish', { channel, data: n })).result);
    assert.equal(new Set(offsets.map(({ epoch }) => epoch)).size, 1);
    for (let n = 1; n < 30; n++) assert.ok(offsets[n].offset > offsets[n - 1].offset);
    await until(() => early.every((follower) => follower.seen.length === 30), 'all publications');
    for (const follower of early) assert.deepEqual(follower.seen.map((event) => event.offset), offsets.map(({ offset }) => offset));
    const since = { offset: offsets[9].offset, epoch: offsets[9].epoch };
    for (const node of nodes) {
      const late = await follow(await connect(node), channel, { since });
      await until(() => late.seen.length === 20, 'what was missed');
      assert.deepEqual([data(late), late.contexts[0].recovered, late.contexts[0].wasRecovering], [Array.from({ length: 20 }, (_, n) => n + 10), true, true]);
    }
    const { result } = await nodes[1].api('history', { channel, limit: 5, since });
    assert.deepEqual(result.publications.map((publication) => publication.data), [10, 11, 12, 13, 14]);
    assert.equal(result.offset, offsets[29].offset);
  });

  test('an idempotency key holds on every node', LIMIT, async () => {
    const channel = unique('history:');
    const results = [];
    for (const node of [0, 1, 2, 0]) results.push((await nodes[node].api('publish', { channel, data: 1, idempotency_key: 'once' })).result);
    for (const result of results) assert.deepEqual(result, results[0]);
    assert.equal((await nodes[2].api('history', { channel, limit: -1 })).result.publications.length, 1);
  });

  test('presence, joins and leaves are those of the whole cluster', LIMIT, async () => {
    const channel = unique('room:');
    const [ann, bob] = [await connect(nodes[0], { token: token({ sub: 'ann' }) }), await connect(nodes[1], { token: token({ sub: 'bob' }) })];
    const mine = ann.newSubscription(channel);
    const [joined, left] = [[], []];
    mine.on('join', (event) => joined.push(event.info.user));
    mine.on('leave', (event) => left.push(event.info.user));
    mine.subscribe();
    await mine.ready(PATIENCE);
    const other = await follow(bob, channel);
    await until(() => joined.includes('bob'), 'the join');
    for (const node of nodes) {
      await until(async () => {
        const { result } = await node.api('presence_stats', { channel });
        return result.num_clients === 2 && result.num_users === 2;
      }, 'both to be seen');
    }
    assert.deepEqual(Object.values((await mine.presence()).clients).map((client) => client.user).sort(), ['ann', 'bob']);
    other.unsubscribe();
    await until(() => left.includes('bob'), 'the leave');
    bob.disconnect();
    await until(async () => (await nodes[2].api('presence_stats', { channel })).result.num_clients === 1, 'one to be left');
  });

  test('the server API reaches connections, channels and nodes wherever they are', LIMIT, async () => {
    const [sub, channel] = [unique('user'), unique('news')];
    const ann = await connect(nodes[1], { token: token({ sub }) });
    const subscribed = [];
    const disconnected = [];
    ann.on('subscribed', (event) => subscribed.push(event.channel));
    ann.on('unsubscribed', (event) => subscribed.push(`not ${event.channel}`));
    ann.on('disconnected', (event) => disconnected.push(event.code));
    await nodes[0].api('subscribe', { user: sub, channel });
    await until(() => subscribed.length === 1, 'the subscription');
    await until(async () => (await nodes[2].api('channels', { pattern: channel })).result.channels[channel]?.num_clients === 1, 'the channel');
    await nodes[0].api('unsubscribe', { user: sub, channel });
    await until(() => subscribed.length === 2, 'the end of it');
    assert.deepEqual(subscribed, [channel, `not ${channel}`]);
    await nodes[0].api('batch', { commands: [{ disconnect: { user: sub } }] });
    await until(() => disconnected.length === 1, 'the disconnect');
    assert.deepEqual(disconnected, [3503]);
    const { result } = await nodes[0].api('info');
    assert.equal(new Set(result.nodes.map((node) => node.uid)).size, 3);
  });
});

describe('a cluster that loses a part', () => {
  let nats;
  before(async () => { nats = await Nats.start(); });
  after(async () => { await nats.stop(); });

  test('cut off from NATS a node serves its own, says so, and catches up alone', LIMIT, async () => {
    const [one, two] = await startNodes(nats, 2);
    const [news, kept] = [unique('news'), unique('history:')];
    const ann = await connect(one, { token: token({ sub: 'ann' }) });
    const bob = await connect(two, { token: token({ sub: 'bob' }) });
    const mine = await follow(ann, news);
    const held = [await follow(ann, kept), await follow(bob, kept)];
    await ann.rpc('registry.register', { scope: 'devices', name: 'ann/phone' });
    await until(async () => (await two.api('lookup', { scope: 'devices', name: 'ann/phone' })).result, 'node two to know');
    for (let n = 0; n < 5; n++) await one.api('publish', { channel: kept, data: n });
    await until(() => held.every((follower) => follower.seen.length === 5), 'five publications');
    await nats.kill();
    await until(async () => (await fetch(`${one.http}/health`)).status === 503, 'the node to say so');
    // Publications at the moment of the cut may be lost.
    await until(async () => (await one.api('publish', { channel: news, data: 'local' })).result && mine.seen.length > 0, 'what is local');
    assert.equal((await one.api('publish', { channel: kept, data: 'no' })).error.code, 4009);
    assert.equal((await one.api('lookup', { scope: 'devices', name: 'ann/phone' })).result.name, 'ann/phone');
    await ann.rpc('registry.register', { scope: 'devices', name: 'ann/tablet' });
    await until(async () => (await two.api('lookup', { scope: 'devices', name: 'ann/phone' })).error, 'the other to forget');
    await nats.run();
    await seeEachOther([one, two]);
    for (const name of ['ann/phone', 'ann/tablet']) {
      await until(async () => (await two.api('lookup', { scope: 'devices', name })).result, name);
    }
    await until(async () => (await fetch(`${one.http}/health`)).ok, 'the node to be ready');
    await until(async () => (await one.api('publish', { channel: kept, data: 5 })).result, 'history to be there');
    await until(() => held.every((follower) => follower.seen.length === 6), 'the sixth publication');
    for (const follower of held) assert.deepEqual(data(follower), [0, 1, 2, 3, 4, 5]);
    for (const node of [one, two]) await node.stop();
  });

  test('a node behind a slow link has the same order, the same names and the same owners', LIMIT, async () => {
    const link = await slowLink(nats, 150);
    const name = unique('slow');
    const start = (url) => Server.start({ change: { registry: { scopes: SCOPES }, cluster: { engine: 'nats', name, nats_url: [url], heartbeat_interval: '300ms', node_timeout: '5s' } } });
    const nodes = await Promise.all([start(nats.url), start(link.url)]);
    await seeEachOther(nodes);
    const channel = unique('history:');
    const clients = await Promise.all(nodes.map((node) => connect(node, { token: token({ sub: 'ann' }) })));
    const followers = await Promise.all(clients.map((client) => follow(client, channel)));
    await Promise.all(nodes.map(async (node, of) => {
      for (let n = 0; n < 15; n++) assert.ok((await node.api('publish', { channel, data: `${of}-${n}` })).result);
    }));
    await until(() => followers.every(({ seen }) => seen.length === 30), 'everything on both');
    assert.deepEqual(data(followers[1]), data(followers[0]));
    await Promise.allSettled(clients.map((client) => client.rpc('registry.register', { scope: 'devices', name: 'ann/race' })));
    const owner = async (node) => (await node.api('lookup', { scope: 'devices', name: 'ann/race' })).result?.client;
    await until(async () => { const owners = await Promise.all(nodes.map(owner)); return owners[0] && owners[0] === owners[1]; }, 'one owner');
    for (const node of nodes) await node.stop();
    link.stop();
  });

  test('nothing acknowledged is lost or doubled while NATS restarts again and again', LIMIT, async () => {
    const nodes = await startNodes(nats, 2);
    const channel = unique('history:');
    const followers = await Promise.all(nodes.map(async (node) => follow(await connect(node), channel)));
    const acknowledged = [];
    let [isOver, refusals] = [false, 0];
    const publisher = (async () => {
      for (let n = 0; !isOver; n++) {
        // The client repeats with the same key until the server acknowledges: a retry must not make a second publication.
        for (;;) {
          const reply = await nodes[n % 2].api('publish', { channel, data: n, idempotency_key: `k${n}` });
          if (reply.result) break;
          refusals += 1;
          // waits: between the attempts of a client.
          await sleep(50);
        }
        acknowledged.push(n);
        // waits: between the publications of a client.
        await sleep(10);
      }
    })();
    for (let restart = 0; restart < 3; restart++) {
      const more = acknowledged.length + 20;
      await until(() => acknowledged.length >= more, 'publications');
      const before = refusals;
      await nats.kill('SIGTERM');
      await until(() => refusals > before, 'a refusal');
      await nats.run();
    }
    const more = acknowledged.length + 20;
    await until(() => acknowledged.length >= more, 'publications after the last restart');
    isOver = true;
    await publisher;
    for (const follower of followers) {
      await until(() => follower.seen.length >= acknowledged.length, `all of ${acknowledged.length}, have ${follower.seen.length}`);
      assert.deepEqual(data(follower), acknowledged);
    }
    for (const node of nodes) await node.stop();
  });
});
