// The configuration changes while the server runs: some keys apply at once, some changes are refused, and some have no effect for clients.
import assert from 'node:assert/strict';
import { generateKeyPairSync, sign } from 'node:crypto';
import { createServer } from 'node:http';
import { after, describe, test } from 'node:test';
import tls from 'node:tls';
import WebSocket from 'ws';
import { Authority } from './certificates.mjs';
import { Backend, sdkClient, SDK_WAYS, subscribe, withHooks } from './hooks.mjs';
import { Nats } from './nats.mjs';
import { LIMIT, until } from './patience.mjs';
import { Postgres } from './postgres.mjs';
import { freePort, KEY, Server, token } from './server.mjs';

const open = { allow_subscribe_for_client: true, allow_subscribe_for_anonymous: true };
const kept = { history_size: 10, history_ttl: '60s', force_recovery: true };

const started = [];
const clients = [];
after(async () => {
  clients.forEach((client) => client.disconnect());
  for (const part of started.reverse()) await part.stop('SIGKILL');
});

async function start(change) {
  const server = await Server.start({ change });
  started.push(server);
  return server;
}

function client(server, options) {
  const made = sdkClient(server, SDK_WAYS[0], options);
  clients.push(made);
  made.connect();
  return made;
}

/** Requests a reload and returns the whole answer. */
async function reload(server, key = KEY) {
  const response = await fetch(`${server.http}/api/reload`, { method: 'POST', headers: { 'X-API-Key': key, 'Content-Type': 'application/json' }, body: '{}' });
  const text = await response.text();
  return { status: response.status, ...(text.startsWith('{') && JSON.parse(text)) };
}

/** Gives a server another configuration. The server must accept it. */
async function change(server, to, edit) {
  server.configure(to, edit);
  const { result, error, ...other } = await reload(server);
  assert.ok(result, JSON.stringify({ error, other }));
  return result;
}

const publish = (server, channel, data) => server.api('publish', { channel, data });

describe('a reload', () => {
  test('applies a valid configuration, and of an invalid one reports the error and applies nothing', LIMIT, async () => {
    const server = await start();
    assert.deepEqual((await reload(server)).result, { generation: 1, changed: [] });
    const { result: { nodes: [before] } } = await server.api('info');
    assert.equal(before.config_generation, 1);

    server.configure({ namespaces: [{ name: 'new', ...open }] }, (written) => { written.client.ping_interval = 'nonsense'; });
    let { error } = await reload(server);
    assert.equal(error.code, 4017);
    assert.match(error.message, /ping_interval/);
    assert.equal((await server.api('publish', { channel: 'new:a', data: 1 })).error.code, 102);

    server.configure({ namespaces: [{ name: 'new', ...open }], http_server: { port: server.port + 1 } }, (written) => { written.node = { shards: 7 }; });
    ({ error } = await reload(server));
    assert.equal(error.code, 4017);
    assert.match(error.message, /http_server\.port, node\.shards/);

    assert.deepEqual(await change(server, { namespaces: [{ name: 'new', ...open }] }), {
      generation: 2, changed: ['channel.namespaces[new].allow_subscribe_for_anonymous', 'channel.namespaces[new].allow_subscribe_for_client', 'channel.namespaces[new].name'],
    });
    assert.ok((await server.api('publish', { channel: 'new:a', data: 1 })).result);
    await until(async () => (await server.metric('config_generation')) === 2);
  });

  test('comes by SIGHUP too', LIMIT, async () => {
    const server = await start();
    server.configure({}, (written) => { written.http_api.key = ''; written.client.token.hmac_secret_key = 7; });
    server.process.kill('SIGHUP');
    await server.until(() => /SIGHUP: .*hmac_secret_key/.test(server.output));
    server.configure({}, (written) => { written.http_api.key = 'another-key'; written.log.level = 'info'; });
    server.process.kill('SIGHUP');
    await server.until(async () => (await reload(server, 'another-key')).result?.generation === 2);
    assert.equal((await reload(server)).status, 401, 'the key before is none any more');
    server.configure({}, (written) => { written.http_api.key = KEY; written.log.level = 'info'; });
    await reload(server, 'another-key');
    await server.until(() => /works with the configuration/.test(server.output));
  });

  test('changes keys of tokens, origins and limits for new clients; connected clients stay', LIMIT, async () => {
    const server = await start();
    const [ann, early] = [client(server, { token: token({ sub: 'ann' }) }), subscribe(client(server, { token: token({ sub: 'eve' }) }), 'history:a')];
    await ann.until('connected');
    await early.until('subscribed');
    await change(server, {}, (written) => {
      written.client.token.hmac_secret_key = 'another secret';
      written.client.allowed_origins = ['https://other.example'];
      written.client.channel_limit = 1;
    });
    const late = client(server, { token: token({ sub: 'bob' }, 'another secret') });
    await late.until('connected');
    await subscribe(late, 'history:a').until('subscribed');
    await subscribe(late, 'history:b').until('unsubscribed').catch(() => {});
    const old = client(server, { token: token({ sub: 'bob' }) });
    await old.until('disconnected');
    const page = (origin) => new Promise((resolve) => {
      const socket = new WebSocket(server.websocket, { origin });
      socket.once('open', () => { socket.close(); resolve(101); }).once('unexpected-response', (_, { statusCode }) => resolve(statusCode)).once('error', () => {});
    });
    assert.equal(await page('https://other.example'), 101);
    assert.equal(await page('http://127.0.0.1:1'), 403);
    await server.api('publish', { channel: 'history:a', data: { n: 1 } });
    await early.until('publication');
    assert.equal(ann.heard.all.filter(({ name }) => name === 'disconnected').length, 0);
  });

  test('asks anew what subscribers are permitted', LIMIT, async () => {
    const rooms = (more) => ({ namespaces: [{ name: 'aa', ...open, ...kept, ...more }, { name: 'bb', ...open }] });
    const server = await start(rooms({}));
    const fans = await Promise.all([0, 1, 2].map(async () => {
      const fan = client(server);
      const [a, b] = [subscribe(fan, 'aa:1'), subscribe(fan, 'bb:1')];
      await Promise.all([a.until('subscribed'), b.until('subscribed')]);
      return { a, b };
    }));
    await change(server, rooms({ allow_subscribe_for_anonymous: false, allow_subscribe_for_client: false }));
    for (const { a } of fans) await a.until('unsubscribed');
    await server.api('publish', { channel: 'bb:1', data: 1 });
    for (const { b } of fans) {
      await b.until('publication');
      assert.equal(b.heard.all.filter(({ name }) => name === 'unsubscribed').length, 0);
    }
  });

  test('gives a history to channels that are in use, and takes it away', LIMIT, async () => {
    const rooms = (more) => ({ namespaces: [{ name: 'aa', ...open, ...more }] });
    const server = await start(rooms({}));
    const fan = subscribe(client(server), 'aa:1');
    await fan.until('subscribed');
    await server.api('publish', { channel: 'aa:1', data: { n: 1 } });
    await fan.until('publication');
    await change(server, rooms(kept));
    await server.api('publish', { channel: 'aa:1', data: { n: 2 } });
    await fan.heard.first((event) => event.name === 'publication' && event.data.n === 2);
    await server.api('publish', { channel: 'aa:2', data: { n: 0 } });
    await change(server, rooms({ ...kept, history_ttl: '1s' })); // short: the history must expire.
    await until(async () => (await server.api('history', { channel: 'aa:2', limit: 10 })).result.publications.length === 0, () => 'what is too old goes');
    await change(server, rooms(kept));
    await server.api('publish', { channel: 'aa:1', data: { n: 2 } });
    const { result } = await server.api('history', { channel: 'aa:1', limit: 10 });
    assert.deepEqual(result.publications.map(({ data }) => data.n).at(-1), 2);
    const late = subscribe(client(server), 'aa:1', { positioned: true });
    await late.until('subscribed');
    await change(server, rooms({}));
    await late.until('subscribing');
    await until(() => late.heard.all.filter(({ name }) => name === 'subscribed').length === 2, () => 'it subscribes anew');
    await server.api('publish', { channel: 'aa:1', data: { n: 3 } });
    for (const one of [fan, late]) await one.heard.first((event) => event.name === 'publication' && event.data.n === 3);
    assert.equal((await server.api('history', { channel: 'aa:1', limit: 10 })).error.code, 108);
  });

  test('asks another backend; what the one before was asked, it answers', LIMIT, async () => {
    let answer;
    const first = await Backend.start(({ path }) => path === '/connect' ? { result: { user: 'ann' } } : new Promise((resolve) => { answer = () => resolve({ result: { data: { by: 'first' } } }); }));
    const second = await Backend.start(() => ({ result: { user: 'bob', data: { by: 'second' } } }));
    started.push(first, second);
    const server = await start(withHooks(first));
    const ann = client(server);
    await ann.until('connected');
    const asked = ann.rpc('any', {});
    await until(() => answer, () => 'the first backend is asked');
    await change(server, withHooks(second));
    const bob = client(server);
    await bob.until('connected');
    assert.equal((await bob.rpc('any', {})).data.by, 'second');
    answer();
    assert.equal((await asked).data.by, 'first');
    assert.equal((await ann.rpc('any', {})).data.by, 'second');
    const { ping_interval, pong_timeout } = withHooks(second).client;
    await change(server, { client: { ping_interval, pong_timeout } });
    const code = await ann.rpc('any', {}).catch((error) => error.code);
    assert.equal(code, 108, 'nobody is asked any more');
  });

  test('sends events to other endpoints', LIMIT, async () => {
    const [first, second] = [await receiver(), await receiver()];
    const told = (to, types) => ({ events: [{ name: 'crm', endpoint: to.url, types, batch_wait: '0s', delay: '0s' }] });
    const server = await start();
    const [early] = [client(server, { token: token({ sub: 'ann' }) })];
    await subscribe(early, 'history:a').until('subscribed');
    await change(server, told(first, ['occupied', 'vacated', 'user_online', 'user_offline']));
    await first.has('state.reset', undefined);
    await first.has('channel.occupied', 'history:a');
    await first.has('user.online', 'ann');
    await subscribe(early, 'history:b').until('subscribed');
    await first.has('channel.occupied', 'history:b');

    await change(server, told(second, ['connected', 'occupied', 'vacated', 'user_online', 'user_offline']));
    const late = client(server, { token: token({ sub: 'bob' }) });
    await second.has('client.connected', undefined, ({ data }) => data.user === 'bob');
    await second.has('user.online', 'bob');
    assert.equal(first.sent.filter(({ subject }) => subject === 'bob').length, 0);
    late.disconnect();
    await second.has('user.offline', 'bob');

    server.configure({ events: [{ ...told(second, ['connected']).events[0], lanes: 9 }] });
    assert.match((await reload(server)).error.message, /events\[crm\]\.lanes/);
    await change(server, {});
    const after = second.sent.length;
    await client(server, { token: token({ sub: 'eve' }) }).until('connected');
    await change(server, told(second, ['user_online']));
    await second.has('user.online', 'eve');
    assert.equal(second.sent.slice(after).filter(({ type }) => type === 'io.touchline.client.connected').length, 0);
  });

  test('sends the present clients to an endpoint that is added, or that asks for more events', LIMIT, async () => {
    const STATES = ['occupied', 'vacated', 'user_online', 'user_offline'];
    const [first, second, third] = [await receiver(), await receiver(), await receiver()];
    const endpoint = (name, to, types, more = {}) => ({ name, endpoint: to.url, types, batch_wait: '0s', delay: '0s', ...more });
    const old = endpoint('old', first, STATES, { namespaces: ['room'] });
    const server = await start({ events: [old, endpoint('some', third, ['connected'])] });
    const ann = client(server, { token: token({ sub: 'ann' }) });
    for (const channel of ['history:a', 'room:a']) await subscribe(ann, channel).until('subscribed');
    await first.has('channel.occupied', 'room:a');
    await change(server, { events: [old, endpoint('new', second, STATES), endpoint('some', third, ['connected', ...STATES])] });
    for (const told of [second, third]) {
      await told.has('state.reset');
      for (const channel of ['history:a', 'room:a']) await told.has('channel.occupied', channel);
      await told.has('user.online', 'ann');
    }
    await change(server, {});
    const bob = client(server, { token: token({ sub: 'bob' }) });
    await subscribe(bob, 'history:b').until('subscribed');
    ann.disconnect();
    await until(async () => Object.keys((await server.api('channels')).result.channels).join() === 'history:b', () => 'ann has gone');
    const again = await receiver();
    await change(server, { events: [endpoint('again', again, STATES)] });
    await again.has('channel.occupied', 'history:b');
    await again.has('user.online', 'bob');
    // The node may notice a moment later that Ann has disconnected.
    const last = () => again.sent.filter(({ subject }) => subject === 'ann').at(-1)?.type;
    await until(() => last() !== 'io.touchline.user.online', () => 'nobody takes ann for online');
  });

  test('keeps the keys of issuers that it has, and refuses new ones that are not there', LIMIT, async () => {
    const { publicKey, privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
    let [hangs, requests] = [false, 0];
    const issuer = createServer((_, response) => {
      requests += 1;
      if (!hangs) response.end(JSON.stringify({ keys: [{ ...publicKey.export({ format: 'jwk' }), kid: 'k', alg: 'RS256', use: 'sig' }] }));
    });
    await new Promise((resolve) => issuer.listen(0, '127.0.0.1', resolve));
    started.push({ stop: async () => { issuer.close(); issuer.closeAllConnections(); } });
    const url = `http://127.0.0.1:${issuer.address().port}/`;
    const signed = (sub) => {
      const head = [{ alg: 'RS256', typ: 'JWT', kid: 'k' }, { sub }].map((part) => Buffer.from(JSON.stringify(part)).toString('base64url')).join('.');
      return `${head}.${sign('RSA-SHA256', Buffer.from(head), privateKey).toString('base64url')}`;
    };
    const server = await start({ client: { token: { jwks_public_endpoint: url } } });
    await client(server, { token: signed('ann') }).until('connected');
    hangs = true;
    await change(server, { client: { token: { jwks_public_endpoint: url }, ping_interval: '20s' } });
    await client(server, { token: signed('bob') }).until('connected');
    server.configure({ client: { token: { jwks_public_endpoint: `${url}other` } } });
    assert.match((await reload(server)).error.message, /client\.token: its keys cannot be fetched/);
    const eve = client(server, { token: signed('eve') });
    await eve.until('connected');
    const before = requests;
    // While a reload waits for the issuer, the node still stops as usual.
    server.process.kill('SIGHUP');
    await until(() => requests > before, () => 'a request for the keys');
    server.process.kill('SIGTERM');
    await eve.heard.first(({ name, code }) => name === 'connecting' && code === 3001);
    assert.equal(await server.exit, 0);
  });

  test('reads other tables', LIMIT, async () => {
    const postgres = await Postgres.start();
    started.push(postgres);
    const make = (table) => postgres.sql(`CREATE TABLE ${table} (id bigserial PRIMARY KEY, method text NOT NULL, payload jsonb NOT NULL,
      partition integer NOT NULL DEFAULT 0, created_at timestamptz NOT NULL DEFAULT now())`);
    const of = (table) => ({ consumers: [{ name: table, enabled: true, type: 'postgresql', postgresql: { dsn: postgres.url, outbox_table_name: table, partition_poll_interval: '50ms' } }] });
    const insert = (table, n) => postgres.sql(`INSERT INTO ${table} (method, payload) VALUES ('publish', '{"channel": "history:t", "data": ${n}}')`);
    await make('one');
    await make('two');
    const server = await start(of('one'));
    const seen = async (...numbers) => until(async () => {
      const { result } = await server.api('history', { channel: 'history:t', limit: 100 });
      return JSON.stringify(result.publications.map(({ data }) => data)) === JSON.stringify(numbers);
    }, () => `${numbers} in the history`);
    await insert('one', 1);
    await seen(1);
    await insert('two', 2);
    await change(server, of('two'));
    await seen(1, 2);
    await insert('one', 3);
    await insert('two', 4);
    await seen(1, 2, 4);
    await change(server, of('one'));
    await seen(1, 2, 4, 3);
  });

  test('takes certificates of other files', LIMIT, async () => {
    const authority = new Authority();
    for (const name of ['first', 'second']) authority.issue(name, `/O=Touchline/CN=${name}`);
    const files = (name) => ({ http_server: { tls: { enabled: true, cert_pem: authority.path(`${name}.pem`), key_pem: authority.path(`${name}.key`) } } });
    const subject = (port) => new Promise((resolve, reject) => {
      const socket = tls.connect({ port, host: '127.0.0.1', rejectUnauthorized: false }, () => {
        resolve(socket.getPeerCertificate().subject.CN);
        socket.destroy();
      }).once('error', reject);
    });
    const port = await freePort();
    const server = await Server.start({ port, change: files('first'), ready: async () => (await subject(port)) !== undefined });
    started.push(server);
    assert.equal(await subject(server.port), 'first');
    server.configure(files('none'));
    server.process.kill('SIGHUP');
    await server.until(() => /SIGHUP: .*none\.(pem|key)/.test(server.output));
    assert.equal(await subject(server.port), 'first');
    server.configure(files('second'));
    server.process.kill('SIGHUP');
    await server.until(async () => (await subject(server.port)) === 'second');
    authority.destroy();
  });

  test('loses nothing while publications come', LIMIT, async () => {
    const rooms = (n) => ({ namespaces: [{ name: 'aa', ...open, history_size: 5_000 + n, history_ttl: '60s', force_recovery: true }, { name: `only${n}`, ...open }] });
    const server = await start(rooms(0));
    const fans = await Promise.all(Array.from({ length: 20 }, async () => {
      const fan = subscribe(client(server), 'aa:1');
      await fan.until('subscribed');
      return fan;
    }));
    let [sent, isOver] = [0, false];
    const publishing = (async () => {
      while (!isOver) {
        const { error } = await server.api('publish', { channel: 'aa:1', data: { n: ++sent } });
        assert.equal(error, undefined);
      }
    })();
    for (let n = 1; n <= 20; n++) {
      assert.equal((await change(server, rooms(n))).generation, n + 1);
      // The answer came after the last shard had the new configuration.
      const answers = await Promise.all(Array.from({ length: 8 }, () => server.api('publish', { channel: `only${n}:x`, data: 1 })));
      assert.ok(answers.every(({ result }) => result), JSON.stringify(answers));
    }
    isOver = true;
    await publishing;
    for (const fan of fans) {
      await fan.heard.first((event) => event.name === 'publication' && event.data.n === sent);
      const numbers = fan.heard.all.filter(({ name }) => name === 'publication').map(({ data }) => data.n);
      assert.deepEqual(numbers, Array.from({ length: sent }, (_, index) => index + 1));
      assert.equal(fan.heard.all.filter(({ name }) => name !== 'publication' && name !== 'subscribing').length, 1, 'it stays subscribed');
    }
  });

  test('gives every node of a cluster its histories; a node that has not been reloaded is named', LIMIT, async () => {
    const nats = await Nats.start();
    started.push(nats);
    const of = (namespaces) => ({ cluster: { engine: 'nats', name: 'reload', nats_url: [nats.url] }, namespaces });
    const [a, b] = [await start(of([])), await start(of([]))];
    for (const node of [a, b]) await node.until(async () => (await node.api('info')).result.nodes.length === 2 && (await fetch(`${node.http}/readyz`)).ok);
    const now = of([{ name: 'new', ...open, ...kept }]);
    await change(a, now);
    const others = async (node) => (await (await fetch(`${node.http}/readyz`)).json()).nodes_with_other_configuration ?? [];
    await until(async () => (await others(a)).length === 1 && (await others(b)).length === 1, () => 'the other node is named');
    await until(async () => (await a.metric('config_differing_nodes')) === 1);
    assert.ok((await publish(a, 'new:1', { n: 1 })).result);
    await change(b, now);
    await until(async () => (await others(a)).length === 0 && (await others(b)).length === 0, () => 'both are alike');
    const fan = subscribe(client(b), 'new:1', { since: undefined });
    await fan.until('subscribed');
    assert.ok((await publish(a, 'new:1', { n: 2 })).result);
    await fan.heard.first((event) => event.name === 'publication' && event.data.n === 2);
    const { result } = await b.api('history', { channel: 'new:1', limit: 10 });
    assert.deepEqual(result.publications.map(({ data }) => data.n), [1, 2]);

    const longer = of([{ name: 'new', ...open, ...kept, history_size: 1 }]);
    for (const node of [a, b]) await change(node, longer);
    assert.ok((await publish(b, 'new:1', { n: 3 })).result);
    await until(async () => JSON.stringify((await a.api('history', { channel: 'new:1', limit: 10 })).result.publications.map(({ data }) => data.n)) === '[3]', () => 'the history is shorter');
    await nats.kill();
    const told = await receiver();
    const events = [{ name: 'crm', endpoint: told.url, types: ['connected'], batch_wait: '0s' }];
    a.configure({ ...of([{ name: 'new', ...open, ...kept }, { name: 'later', ...open, ...kept }]), events });
    assert.match((await reload(a)).error.message, /histories cannot be made/);
    await client(a, { token: token({ sub: 'ann' }) }).until('connected');
    await nats.run();
    await a.until(async () => (await reload(a)).result?.generation > 0);
    await client(a, { token: token({ sub: 'bob' }) }).until('connected');
    await told.has('client.connected', undefined, ({ data }) => data.user === 'bob');
    assert.ok(!told.sent.some(({ data }) => data.user === 'ann'), 'an endpoint that was refused gets no event');
  });
});

/** A backend that stores the events that it receives. */
async function receiver() {
  const sent = [];
  const server = createServer(async (request, response) => {
    let body = '';
    for await (const data of request) body += data;
    sent.push(...JSON.parse(body));
    response.writeHead(204).end();
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const has = (type, subject, fits = () => true) => until(
    () => sent.some((event) => event.type === `io.touchline.${type}` && (subject === undefined || event.subject === subject) && fits(event)),
    () => `${type} ${subject} among ${JSON.stringify(sent.map((event) => [event.type, event.subject]))}`,
  );
  started.push({ stop: async () => { server.close(); server.closeAllConnections(); } });
  return { sent, has, url: `http://127.0.0.1:${server.address().port}/` };
}
