// Requirements of NATS servers (TLS with certificates, passwords, tokens), and their losses (streams in memory, small streams).
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { Centrifuge } from 'centrifuge';
import WebSocket from 'ws';
import { Nats } from './nats.mjs';
import { LIMIT, PATIENCE, until } from './patience.mjs';
import { Server } from './server.mjs';

const PASSWORD = 'a word for NATS';
let serial = 0;

const cluster = (nats, settings) => ({ cluster: { engine: 'nats', name: `nats${++serial}`, nats_url: [nats.url], ...settings } });
const node = (nats, settings) => Server.start({ change: cluster(nats, settings) });
const isReady = async ({ http }) => (await fetch(`${http}/health`)).ok;
const works = async (server) => {
  assert.ok((await server.api('publish', { channel: 'history:a', data: 1 })).result.offset > 0);
  assert.equal((await server.api('history', { channel: 'history:a', limit: 10 })).result.publications.length, 1);
};

/** Subscribes to a channel, and records the offsets in order and the epochs of its subscribe replies. */
async function follow(server, channel) {
  const client = new Centrifuge(server.websocket, { websocket: WebSocket, minReconnectDelay: 50, maxReconnectDelay: 300 });
  const subscription = client.newSubscription(channel, { minResubscribeDelay: 50, maxResubscribeDelay: 300 });
  const [offsets, epochs] = [[], []];
  subscription.on('publication', (event) => offsets.push(event.offset));
  subscription.on('subscribed', (event) => epochs.push(event.streamPosition.epoch));
  subscription.subscribe();
  client.connect();
  await subscription.ready(PATIENCE);
  return { client, subscription, offsets, epochs };
}

/** Starts a node that NATS must refuse, and waits until the node says so. Returns what it has said. */
async function refused(nats, settings) {
  const server = await Server.start({ change: cluster(nats, settings), ready: ({ output }) => /NATS can't be reached/.test(output) });
  assert.equal(await isReady(server).catch(() => false), false, server.output);
  await server.stop('SIGKILL');
  return server.output;
}

describe('a NATS server that asks for certificates and a password', () => {
  let directory;
  let file;
  let nats;
  before(async () => {
    directory = mkdtempSync(join(tmpdir(), 'certificates-'));
    file = (name) => join(directory, name);
    const openssl = (...words) => execFileSync('openssl', words, { stdio: 'pipe' });
    const key = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'];
    openssl('req', '-x509', ...key, '-keyout', file('ca.key'), '-out', file('ca.pem'), '-days', '1', '-subj', '/CN=test authority');
    for (const [name, usage] of [['server', 'serverAuth'], ['client', 'clientAuth']]) {
      openssl('req', ...key, '-keyout', file(`${name}.key`), '-out', file(`${name}.csr`), '-subj', `/CN=${name}`);
      writeFileSync(file(`${name}.ext`), `subjectAltName=IP:127.0.0.1\nextendedKeyUsage=${usage}\n`);
      openssl('x509', '-req', '-in', file(`${name}.csr`), '-CA', file('ca.pem'), '-CAkey', file('ca.key'), '-CAcreateserial', '-days', '1', '-extfile', file(`${name}.ext`), '-out', file(`${name}.pem`));
    }
    const tls = `tls { cert_file: "${file('server.pem')}", key_file: "${file('server.key')}", ca_file: "${file('ca.pem')}", verify: true }`;
    nats = await Nats.start({ scheme: 'tls', more: `${tls}\nauthorization { user: touchline, password: "${PASSWORD}" }\n` });
  });
  after(async () => {
    await nats.stop();
    rmSync(directory, { recursive: true });
  });
  const settings = () => ({ nats_user: 'touchline', nats_password: PASSWORD, nats_tls_ca: file('ca.pem'), nats_tls_cert: file('client.pem'), nats_tls_key: file('client.key') });

  test('a node that has both works, and says neither', LIMIT, async () => {
    const server = await node(nats, settings());
    await works(server);
    assert.ok(!server.output.includes(PASSWORD), server.output);
    assert.equal(await server.stop(), 0);
  });

  test('without a certificate, without its authority or with a wrong password a node is not ready', LIMIT, async () => {
    for (const without of [{ nats_tls_cert: '', nats_tls_key: '' }, { nats_tls_ca: '' }, { nats_password: 'a wrong one' }]) {
      const said = await refused(nats, { ...settings(), ...without });
      assert.ok(!said.includes(PASSWORD) && !said.includes('a wrong one'), said);
    }
  });

  test('a file that is not there is said at once', LIMIT, async () => {
    await assert.rejects(node(nats, { ...settings(), nats_tls_ca: file('nothing.pem') }), /nothing\.pem/);
  });
});

test('a token lets a node in, another does not', LIMIT, async () => {
  const nats = await Nats.start({ more: 'authorization { token: "a token for NATS" }\n' });
  const server = await node(nats, { nats_token: 'a token for NATS' });
  await works(server);
  assert.equal(await server.stop(), 0);
  await refused(nats, { nats_token: 'another' });
  await nats.stop();
});

test('streams in memory end with their server: the node makes them again, and subscribers get another epoch', LIMIT, async () => {
  const nats = await Nats.start();
  const server = await node(nats, { stream_storage: 'memory' });
  const client = new Centrifuge(server.websocket, { websocket: WebSocket, minReconnectDelay: 50, maxReconnectDelay: 300 });
  const subscription = client.newSubscription('history:b');
  const [seen, contexts] = [[], []];
  subscription.on('publication', (event) => seen.push(event.data));
  subscription.on('subscribed', (event) => contexts.push(event));
  subscription.subscribe();
  client.connect();
  await subscription.ready(PATIENCE);
  const publish = (data) => server.api('publish', { channel: 'history:b', data });
  await publish('before');
  await until(() => seen.length === 1, 'the first publication');
  await nats.kill();
  await until(async () => !(await isReady(server)), 'the node to say that NATS is gone');
  await nats.run();
  await until(() => contexts.at(-1).streamPosition.epoch !== contexts[0].streamPosition.epoch, 'a new epoch');
  assert.ok(contexts.at(-1).wasRecovering && !contexts.at(-1).recovered, 'what was before is gone, and the client knows');
  await until(async () => (await publish('after')).result, 'the stream to take publications');
  await until(() => seen.includes('after'), 'a publication of the new stream');
  client.disconnect();
  await server.stop();
  await nats.stop();
});

test('publications that are stored and never handed on reach their subscribers all the same', LIMIT, async () => {
  // NATS sends this user everything except republished messages of streams. A lost leader or a broken route can have the same effect.
  const users = `{ user: hears, password: "${PASSWORD}" }, { user: misses, password: "${PASSWORD}", permissions: { subscribe: { deny: ["touchline.*.happening.stored.>"] } } }`;
  const nats = await Nats.start({ more: `authorization { users: [${users}] }\n` });
  const { cluster: settings } = cluster(nats);
  const as = (user) => Server.start({ change: { cluster: { ...settings, nats_user: user, nats_password: PASSWORD }, client: { channel_position_check_delay: '1s' } } });
  const [hears, misses] = await Promise.all(['hears', 'misses'].map(as));
  const seen = await Promise.all([hears, misses].map((server) => follow(server, 'history:e')));
  const published = [];
  for (let round = 0; round < 3; round++) {
    for (const server of [hears, misses]) {
      for (let n = 0; n < 5; n++) {
        const { result } = await server.api('publish', { channel: 'history:e', data: n });
        published.push(result.offset);
      }
    }
    await until(() => seen.every(({ offsets }) => offsets.length === published.length), 'both to have them all');
  }
  for (const { offsets, client } of seen) {
    assert.deepEqual(offsets, published);
    client.disconnect();
  }
  assert.deepEqual(await Promise.all([hears, misses].map((server) => server.stop())), [0, 0]);
  await nats.stop();
});

test('a deleted stream is made again, and subscribers get another epoch', LIMIT, async () => {
  const nats = await Nats.start();
  const change = { ...cluster(nats), client: { channel_position_check_delay: '1s' } };
  const server = await Server.start({ change });
  const { client, subscription, epochs } = await follow(server, 'history:f');
  const before = (await server.api('publish', { channel: 'history:f', data: 1 })).result;
  const token = (name) => Buffer.from(name).toString('base64url');
  await nats.command(`PUB $JS.API.STREAM.DELETE.touchline_${token(change.cluster.name)}_${token('history')} deleted 0\r\n\r\n`);
  await until(() => epochs.length === 2, 'the subscriber to begin anew');
  const after = await until(async () => (await server.api('publish', { channel: 'history:f', data: 2 })).result, 'a publication');
  assert.notEqual(after.epoch, before.epoch);
  assert.equal(epochs[1], after.epoch);
  subscription.unsubscribe();
  client.disconnect();
  await server.stop();
  await nats.stop();
});

test('a stream that is full drops its oldest, and says what it has no more', LIMIT, async () => {
  const nats = await Nats.start();
  const server = await node(nats, { stream_max_bytes: 20_000 });
  const first = (await server.api('publish', { channel: 'history:c', data: 'x'.repeat(1_000) })).result;
  for (let n = 0; n < 40; n++) await server.api('publish', { channel: 'history:d', data: 'x'.repeat(1_000) });
  await until(async () => (await server.api('history', { channel: 'history:c', limit: 10 })).result.publications.length === 0);
  const kept = (await server.api('history', { channel: 'history:d', limit: 100 })).result.publications;
  assert.ok(kept.length > 5 && kept.length < 20, `${kept.length} are kept`);
  const late = new Centrifuge(server.websocket, { websocket: WebSocket });
  const subscription = late.newSubscription('history:d', { since: { offset: first.offset, epoch: first.epoch } });
  const subscribed = new Promise((resolve) => subscription.once('subscribed', resolve));
  subscription.subscribe();
  late.connect();
  assert.equal((await subscribed).recovered, false);
  late.disconnect();
  await server.stop();
  await nats.stop();
});

test('an epoch lasts as long as its stream: through NATS and nodes that are killed, and settings that change', LIMIT, async () => {
  const nats = await Nats.start();
  const change = cluster(nats);
  let server = await Server.start({ change });
  const publish = async (data) => (await until(async () => (await server.api('publish', { channel: 'history:g', data })).result, 'a publication'));
  const first = await publish('first');
  const again = async () => {
    assert.equal(await server.stop(), 0);
    server = await Server.start({ change });
    await until(() => isReady(server), 'the node to be ready');
  };
  const nothing = async () => {};
  const larger = async () => Object.assign(change, { history: { history_size: 5_000 } });
  for (const step of [nothing, again, again, larger, again]) {
    await step();
    await nats.kill();
    await nats.run();
    assert.equal((await publish('again')).epoch, first.epoch);
  }
  const { publications } = (await server.api('history', { channel: 'history:g', limit: 100 })).result;
  assert.equal(publications.length, 6, 'and nothing was lost');
  await server.stop();
  await nats.stop();
});

test('a history that is removed is so on every node, in the order of its publications', LIMIT, async () => {
  const nats = await Nats.start();
  const change = cluster(nats);
  const [one, two] = await Promise.all([Server.start({ change }), Server.start({ change })]);
  const publish = async (server, data) => (await server.api('publish', { channel: 'history:h', data })).result;
  const before = await publish(one, 'before');
  const last = await publish(one, 'last');
  const { client, subscription } = await follow(two, 'history:h');
  await one.api('history_remove', { channel: 'history:h' });
  const after = await publish(one, 'after');
  const data = async (server) => (await server.api('history', { channel: 'history:h', limit: 10 })).result.publications.map((publication) => publication.data);
  await until(async () => (await data(two)).length === 1, 'the removal to come');
  assert.deepEqual([await data(one), await data(two)], [['after'], ['after']]);
  subscription.unsubscribe();
  const three = await Server.start({ change });
  const recover = async (server, { offset, epoch }) => {
    const late = new Centrifuge(server.websocket, { websocket: WebSocket });
    const back = late.newSubscription('history:h', { since: { offset, epoch } });
    const subscribed = new Promise((resolve) => back.once('subscribed', resolve));
    back.subscribe();
    late.connect();
    const { recovered } = await subscribed;
    late.disconnect();
    return recovered;
  };
  for (const server of [one, two, three]) {
    assert.deepEqual([await recover(server, before), await recover(server, last), await recover(server, after)], [false, true, true]);
  }
  client.disconnect();
  await Promise.all([one, two, three].map((server) => server.stop()));
  await nats.stop();
});

test('a client that moves to another node never learns a position before its newest publication', LIMIT, async () => {
  const nats = await Nats.start();
  const change = cluster(nats);
  const [one, two] = await Promise.all([Server.start({ change }), Server.start({ change })]);
  const { client } = await follow(two, 'history:i');
  const other = new Centrifuge(two.websocket, { websocket: WebSocket });
  other.connect();
  await other.ready(PATIENCE);
  for (let n = 0; n < 300; n++) {
    const { offset, epoch } = (await one.api('publish', { channel: 'history:i', data: n })).result;
    const subscription = other.newSubscription('history:i', { since: { offset, epoch } });
    const subscribed = new Promise((resolve) => subscription.once('subscribed', resolve));
    subscription.subscribe();
    const context = await subscribed;
    assert.ok(context.recovered && context.streamPosition.offset >= offset, `${n}: ${JSON.stringify([offset, context])}`);
    subscription.unsubscribe();
    other.removeSubscription(subscription);
  }
  // A position that no node has assigned is refused in the same case.
  const { offset, epoch } = (await one.api('history', { channel: 'history:i', limit: 0 })).result;
  const subscription = other.newSubscription('history:i', { since: { offset: offset + 1_000, epoch } });
  const subscribed = new Promise((resolve) => subscription.once('subscribed', resolve));
  subscription.subscribe();
  assert.equal((await subscribed).recovered, false);
  [client, other].forEach((each) => each.disconnect());
  await Promise.all([one, two].map((server) => server.stop()));
  await nats.stop();
});

describe('commands by emulation that reach another node', () => {
  test('are handed on to their session', LIMIT, async () => {
    const nats = await Nats.start();
    const settings = cluster(nats);
    const nodes = await Promise.all([Server.start({ change: settings }), Server.start({ change: settings })]);
    for (const node of nodes) await until(async () => (await node.api('info')).result.nodes.length === 2, 'both nodes');
    const stream = await fetch(`${nodes[0].http}/connection/http_stream`, { method: 'POST', body: '{"id":1,"connect":{}}' });
    const reader = stream.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = '';
    const has = async (part) => { while (!text.includes(part)) text += (await reader.read()).value; };
    await has('"session"');
    const { connect: { session, node } } = JSON.parse(text.split('\n')[0]);
    const send = (to, data) => fetch(`${to.http}/emulation`, { method: 'POST', body: JSON.stringify({ session, node, data }) });
    assert.equal((await send(nodes[1], '{"id":2,"subscribe":{"channel":"history:emulated"}}')).status, 204);
    await has('"id":2');
    await nodes[1].api('publish', { channel: 'history:emulated', data: 'from the other node' });
    await has('from the other node');
    await reader.cancel();
    assert.deepEqual(await Promise.all(nodes.map((server) => server.stop())), [0, 0]);
    await nats.stop();
  });
});
