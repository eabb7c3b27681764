// Durable lifecycle events: real nodes are killed, and the backend gets each change once.
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { Centrifuge } from 'centrifuge';
import WebSocket from 'ws';
import { Nats } from './nats.mjs';
import { LIMIT, PATIENCE, until } from './patience.mjs';
import { Postgres } from './postgres.mjs';
import { Server, token } from './server.mjs';

const TYPES = ['connected', 'disconnected', 'occupied', 'vacated', 'user_online', 'user_offline'];
const clients = [];
after(() => clients.forEach((client) => client.disconnect()));

/** A backend that stores the events that it receives. */
class Receiver {
  static async start() {
    const receiver = new Receiver();
    receiver.sent = [];
    receiver.server = createServer(async (request, response) => {
      let body = '';
      for await (const data of request) body += data;
      receiver.sent.push(...JSON.parse(body));
      response.writeHead(204).end();
    });
    await new Promise((resolve) => receiver.server.listen(0, '127.0.0.1', resolve));
    return receiver;
  }

  /** The setting of the endpoint. */
  get events() {
    return [{ name: 'backend', endpoint: `http://127.0.0.1:${this.server.address().port}/`, types: TYPES, delay: '1s', durable: true }];
  }

  /** Events of a type about one user or channel. An event that arrived twice counts once: repetition is allowed. */
  of(type, subject) {
    const found = this.sent.filter((event) => event.type === `io.touchline.${type}` && event.subject === subject);
    return [...new Map(found.map((event) => [`${event.source} ${event.id}`, event])).values()];
  }

  /** The backend got all generations of each key, and first attempts arrived in order. */
  check() {
    const keys = {};
    for (const event of this.sent.filter(({ generation }) => generation)) {
      const told = (keys[event.partitionkey] ??= []);
      if (!told.includes(Number(event.generation))) told.push(Number(event.generation));
    }
    for (const [key, told] of Object.entries(keys)) assert.deepEqual(told, told.map((_, index) => index + 1), key);
  }

  stop() { this.server.close(); this.server.closeAllConnections(); }
}

/** A client of a user that is subscribed to a channel. It does not reconnect when its node ends. */
async function subscribed(node, user, channel) {
  const client = new Centrifuge(node.websocket, { websocket: WebSocket, token: token({ sub: user }), minReconnectDelay: 600_000, maxReconnectDelay: 600_000 });
  clients.push(client);
  const connected = new Promise((resolve) => client.once('connected', resolve));
  client.connect();
  const { client: id } = await connected;
  const subscription = client.newSubscription(channel);
  subscription.subscribe();
  await subscription.ready(PATIENCE);
  return id;
}

describe('durable events', () => {
  test('one of three nodes is killed, and the end of each of its clients is one event', LIMIT, async () => {
    const [postgres, nats, receiver] = [await Postgres.start(), await Nats.start(), await Receiver.start()];
    const change = {
      cluster: { engine: 'nats', name: 'events', nats_url: [nats.url], heartbeat_interval: '300ms', node_timeout: '5s' },
      store: { primary: { url: postgres.url } },
      events: receiver.events,
    };
    const nodes = await Promise.all([0, 1, 2].map(() => Server.start({ change })));
    const gone = [];
    for (let n = 0; n < 20; n++) gone.push(await subscribed(nodes[0], `only-${n}`, `alone:${n}`.replace(':', '-')));
    const shared = [await subscribed(nodes[0], 'ann', 'both'), await subscribed(nodes[1], 'ann', 'both')];
    await until(() => [...gone, ...shared].every((id) => receiver.of('client.connected', id).length === 1), 'all are told as connected');
    nodes[0].process.kill('SIGKILL');
    await until(() => gone.every((_, n) => receiver.of('user.offline', `only-${n}`).length && receiver.of('channel.vacated', `alone-${n}`).length), 'all are told as gone');
    await until(() => receiver.of('client.disconnected', shared[0]).length, 'the last one');
    for (const [n, id] of gone.entries()) {
      const [end, ...more] = receiver.of('client.disconnected', id);
      assert.deepEqual([end.data.cause, end.data.reason, more], ['node_down', 'node_lost', []]);
      assert.equal(receiver.of('user.offline', `only-${n}`).length, 1);
      assert.deepEqual(receiver.of('channel.vacated', `alone-${n}`).map(({ data }) => data.reason), ['node_down']);
    }
    assert.equal(receiver.of('client.disconnected', shared[1]).length, 0);
    assert.deepEqual([receiver.of('user.offline', 'ann'), receiver.of('channel.vacated', 'both')], [[], []]);
    // The rows of the dead node are deleted, and no event waits.
    await until(async () => (await postgres.sql('SELECT count(*) FROM touchline.event_outbox')) === '0', 'all are delivered');
    assert.equal(await postgres.sql('SELECT count(DISTINCT node) FROM touchline.event_node'), '2');
    receiver.check();
    for (const node of nodes.slice(1)) await node.stop();
    await nats.stop();
    await postgres.stop();
    receiver.stop();
  });

  test('a frozen node counts as gone, and its clients are reported again when it is back', LIMIT, async () => {
    const [postgres, nats, receiver] = [await Postgres.start(), await Nats.start(), await Receiver.start()];
    const change = {
      cluster: { engine: 'nats', name: 'events', nats_url: [nats.url], heartbeat_interval: '300ms', node_timeout: '5s' },
      store: { primary: { url: postgres.url } },
      events: receiver.events,
    };
    const nodes = await Promise.all([0, 1].map(() => Server.start({ change })));
    const id = await subscribed(nodes[1], 'bob', 'alone');
    const shared = [await subscribed(nodes[0], 'ann', 'both'), await subscribed(nodes[1], 'ann', 'both')];
    await until(() => [id, ...shared].every((one) => receiver.of('client.connected', one).length === 1), 'all are told as connected');
    nodes[1].process.kill('SIGSTOP');
    await until(() => receiver.of('user.offline', 'bob').length && receiver.of('channel.vacated', 'alone').length, 'its users are told as gone');
    nodes[1].process.kill('SIGCONT');
    // If a client stayed connected, the backend gets a new event for it. If not, the backend gets its end. In both cases the last event is
    // right.
    const online = async (user) => {
      const { result } = await nodes[0].api('get_user_status', { users: [user] });
      return result.statuses[0].is_online === true;
    };
    const last = (user) => receiver.sent.filter(({ partitionkey, generation }) => generation && partitionkey === `user:${user}`).at(-1)?.type === 'io.touchline.user.online';
    await until(async () => (await postgres.sql('SELECT count(DISTINCT node) FROM touchline.event_node WHERE lease_until_ms > touchline.now_ms()')) === '2', 'it is back');
    await until(async () => last('bob') === await online('bob') && last('ann') === await online('ann'), 'the last word is the truth');
    assert.deepEqual([receiver.of('user.offline', 'ann'), receiver.of('channel.vacated', 'both')], [[], []]);
    await until(async () => (await postgres.sql('SELECT count(*) FROM touchline.event_outbox')) === '0', 'all are delivered');
    receiver.check();
    for (const node of nodes) await node.stop();
    await nats.stop();
    await postgres.stop();
    receiver.stop();
  });

  test('a node that is killed closes its earlier life when it starts again', LIMIT, async () => {
    const receiver = await Receiver.start();
    const directory = mkdtempSync(join(tmpdir(), 'events-'));
    const change = { store: { primary: { url: `sqlite:${join(directory, 'primary.db')}` } }, events: receiver.events };
    let node = await Server.start({ change });
    const id = await subscribed(node, 'ann', 'news');
    await until(() => receiver.of('client.connected', id).length && receiver.of('user.online', 'ann').length, 'it is told');
    node.process.kill('SIGKILL');
    await node.exit;
    node = await Server.start({ change });
    await until(() => receiver.of('client.disconnected', id).length, 'the end is told');
    assert.deepEqual(receiver.of('client.disconnected', id).map(({ data }) => data.cause), ['restart']);
    const back = await subscribed(node, 'ann', 'news');
    await until(() => receiver.of('client.connected', back).length, 'it is told');
    assert.deepEqual([receiver.of('user.online', 'ann').length, receiver.of('user.offline', 'ann').length], [1, 0]);
    receiver.check();
    await node.stop();
    rmSync(directory, { recursive: true, force: true });
    receiver.stop();
  });
});
