// Durable channels as clients of the official SDK see them: through a killed server, with everything they missed.
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { Centrifuge } from 'centrifuge';
import WebSocket from 'ws';
import { eventually } from './registry.mjs';
import { freePort, Server } from './server.mjs';

const CHANNEL = 'history:kept';
let directory;
let port;
let server;

const start = async () => {
  const change = { history: { durable: true }, store: { primary: { url: `sqlite:${join(directory, 'primary.db')}` } } };
  server = await Server.start({ port, change });
};
const publish = async (data, more = {}) => (await server.api('publish', { channel: CHANNEL, data, ...more })).result;

before(async () => {
  directory = mkdtempSync(join(tmpdir(), 'durable-'));
  port = await freePort();
  await start();
});
after(async () => {
  assert.equal(await server.stop(), 0, server.output);
  rmSync(directory, { recursive: true });
});

test('a client recovers what it missed while the server was dead, and a late one finds it all', { timeout: 180_000 }, async () => {
  const client = new Centrifuge(server.websocket, { websocket: WebSocket, minReconnectDelay: 50, maxReconnectDelay: 200 });
  const subscription = client.newSubscription(CHANNEL);
  const [seen, contexts] = [[], []];
  subscription.on('publication', ({ data, offset }) => seen.push([offset, data]));
  subscription.on('subscribed', (context) => contexts.push(context));
  subscription.subscribe();
  client.connect();
  await subscription.ready(30_000);
  const first = await publish(1);
  await publish(2, { idempotency_key: 'two' });
  await eventually(() => seen.length === 2, 'two publications');
  await server.stop('SIGKILL');
  await start();
  const again = await publish('never', { idempotency_key: 'two' });
  assert.deepEqual(again, { offset: 2, epoch: first.epoch });
  await publish(3);
  await eventually(() => seen.length === 3, 'the third', 60);
  assert.deepEqual(seen, [[1, 1], [2, 2], [3, 3]]);
  assert.ok(contexts.at(-1).wasRecovering && contexts.at(-1).recovered);
  assert.equal(contexts.at(-1).streamPosition.epoch, first.epoch);
  const { publications, offset } = await subscription.history({ limit: 10 });
  assert.deepEqual([publications.map(({ data }) => data), offset], [[1, 2, 3], 3]);
  client.disconnect();
  const late = new Centrifuge(server.websocket, { websocket: WebSocket });
  const whole = late.newSubscription(CHANNEL, { since: { offset: 0, epoch: first.epoch } });
  const recovered = [];
  whole.on('publication', ({ data }) => recovered.push(data));
  whole.subscribe();
  late.connect();
  await eventually(() => recovered.length === 3, 'all that was ever published');
  assert.deepEqual(recovered, [1, 2, 3]);
  late.disconnect();
});

test('a history that is removed stays removed, and the position goes on', { timeout: 180_000 }, async () => {
  const { offset, epoch } = await publish('before');
  await server.api('history_remove', { channel: CHANNEL });
  await eventually(async () => (await server.api('history', { channel: CHANNEL, limit: 10 })).result.publications.length === 0, 'an empty history');
  await server.stop();
  await start();
  const { publications, ...position } = (await server.api('history', { channel: CHANNEL, limit: 10 })).result;
  assert.deepEqual([publications, position], [[], { offset, epoch }]);
  assert.deepEqual(await publish('behind'), { offset: offset + 1, epoch });
});

test('the store is in the metrics', { timeout: 120_000 }, async () => {
  await publish('counted');
  const text = await (await fetch(`${server.http}/metrics`)).text();
  assert.match(text, /touchline_store_publications_total [1-9]/);
  assert.match(text, /touchline_store_healthy 1/);
});
