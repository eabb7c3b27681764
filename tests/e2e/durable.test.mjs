// Durable channels with clients of the official SDK: after a server is killed, they recover everything that they missed.
import assert from 'node:assert/strict';
import { copyFileSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { Centrifuge } from 'centrifuge';
import WebSocket from 'ws';
import { LIMIT, PATIENCE, until } from './patience.mjs';
import { freePort, Server } from './server.mjs';

const CHANNEL = 'history:kept';
let directory;
let port;
let server;

const start = async () => {
  const change = { history: { durable: true }, store: { primary: { url: `sqlite:${join(directory, 'primary.db')}` } } };
  server = await Server.start({ port, change });
};
/** An epoch names the life of the channel and the run that assigned the offset. Each start of a node is a run. */
const life = (epoch) => epoch.split('.')[0];
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

test('a client recovers what it missed while the server was dead, and a late one finds it all', LIMIT, async () => {
  const client = new Centrifuge(server.websocket, { websocket: WebSocket, minReconnectDelay: 50, maxReconnectDelay: 200 });
  const subscription = client.newSubscription(CHANNEL);
  const [seen, contexts] = [[], []];
  subscription.on('publication', ({ data, offset }) => seen.push([offset, data]));
  subscription.on('subscribed', (context) => contexts.push(context));
  subscription.subscribe();
  client.connect();
  await subscription.ready(PATIENCE);
  const first = await publish(1);
  await publish(2, { idempotency_key: 'two' });
  await until(() => seen.length === 2, 'two publications');
  await server.stop('SIGKILL');
  await start();
  const again = await publish('never', { idempotency_key: 'two' });
  assert.deepEqual([again.offset, life(again.epoch)], [2, life(first.epoch)]);
  assert.notEqual(again.epoch, first.epoch, 'another run');
  await publish(3);
  await until(() => seen.length === 3, 'the third');
  assert.deepEqual(seen, [[1, 1], [2, 2], [3, 3]]);
  assert.ok(contexts.at(-1).wasRecovering && contexts.at(-1).recovered);
  // A recovered reply names the new run. The SDK continues from the new run.
  assert.equal(contexts.at(-1).streamPosition.epoch, again.epoch);
  await server.stop('SIGKILL');
  await start();
  await until(() => contexts.length >= 3, 'the client to be back');
  assert.ok(contexts.at(-1).recovered, 'from a position of the second run');
  const { publications, offset } = await subscription.history({ limit: 10 });
  assert.deepEqual([publications.map(({ data }) => data), offset], [[1, 2, 3], 3]);
  client.disconnect();
  const late = new Centrifuge(server.websocket, { websocket: WebSocket });
  const whole = late.newSubscription(CHANNEL, { since: { offset: 0, epoch: first.epoch } });
  const recovered = [];
  whole.on('publication', ({ data }) => recovered.push(data));
  whole.subscribe();
  late.connect();
  await until(() => recovered.length === 3, 'all that was ever published');
  assert.deepEqual(recovered, [1, 2, 3]);
  late.disconnect();
});

test('a history that is removed stays removed, and the position goes on', LIMIT, async () => {
  const { offset, epoch } = await publish('before');
  await server.api('history_remove', { channel: CHANNEL });
  await until(async () => (await server.api('history', { channel: CHANNEL, limit: 10 })).result.publications.length === 0, 'an empty history');
  await server.stop();
  await start();
  const { publications, ...position } = (await server.api('history', { channel: CHANNEL, limit: 10 })).result;
  assert.deepEqual([publications, position.offset, life(position.epoch)], [[], offset, life(epoch)]);
  const behind = await publish('behind');
  assert.deepEqual([behind.offset, life(behind.epoch)], [offset + 1, life(epoch)]);
});

test('only a client that saw more than a restored backup has gets another epoch', LIMIT, async () => {
  const files = ['primary.db', 'primary.db-wal'].map((name) => join(directory, name));
  const { offset, epoch } = await publish('in the backup');
  // No client publishes during the copy, so a copy of both files is a backup.
  await server.stop();
  files.slice(0, 1).forEach((file) => copyFileSync(file, `${file}.copy`));
  await start();
  const lost = [];
  for (let n = 0; n < 3; n++) lost.push(await publish(`lost ${n}`));
  await server.stop('SIGKILL');
  copyFileSync(`${files[0]}.copy`, files[0]);
  rmSync(files[1], { force: true });
  await start();
  const kept = [];
  for (let n = 0; n < 5; n++) kept.push(await publish(`kept ${n}`));
  assert.equal(kept[0].offset, lost[0].offset, 'offsets are given once more');
  const recover = async (since) => {
    const client = new Centrifuge(server.websocket, { websocket: WebSocket });
    const subscription = client.newSubscription(CHANNEL, { since });
    const got = [];
    subscription.on('publication', ({ data }) => got.push(data));
    const subscribed = new Promise((resolve) => subscription.once('subscribed', resolve));
    subscription.subscribe();
    client.connect();
    const { recovered } = await subscribed;
    client.disconnect();
    return [recovered, got];
  };
  const all = kept.map((_, n) => `kept ${n}`);
  assert.deepEqual(await recover({ offset, epoch }), [true, all], 'a client that saw nothing of what is lost');
  for (const seen of lost) assert.deepEqual(await recover(seen), [false, []], `a client at ${seen.offset}`);
  assert.deepEqual(await recover(kept[1]), [true, all.slice(2)], 'a client of the new run');
});
