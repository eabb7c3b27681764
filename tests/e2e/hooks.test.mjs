// Hooks: the example backends in Node, Python and Go with the official SDK over every transport, and backends that fail.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { calls, lines, ONE_WAY, SDK_WAYS, sdkClient, serverFor, subscribe } from './hooks.mjs';
import { LIMIT, until } from './patience.mjs';
import { spawn } from './processes.mjs';
import { freePort, KEY, Server, token } from './server.mjs';

const root = new URL('../../', import.meta.url).pathname;
const example = (path) => join(root, 'examples/hooks', path);
const cookie = (user) => ({ cookie: `theme=dark; sid=${user}-secret` });

/** The example: its backend in one of the languages, and a server with its configuration. */
class Example {
  /** `seconds`: the time after which the server calls the backend again for a connection or a subscription. */
  static async start(words, directory, seconds) {
    const started = new Example();
    const port = await freePort();
    started.backend = spawn(words[0], [...words.slice(1), `${port}`, `${seconds}`]);
    started.said = '';
    for (const stream of [started.backend.stdout, started.backend.stderr]) stream.on('data', (data) => (started.said += data));
    await until(() => reachable(port), () => started.said);
    const file = join(directory, `${port}.toml`);
    writeFileSync(file, readFileSync(example('touchline.toml'), 'utf8').replaceAll('127.0.0.1:3001', `127.0.0.1:${port}`));
    started.tcp = await freePort();
    const on = ['uni_websocket', 'uni_http_stream', 'uni_sse', 'health', 'prometheus', 'tcp'].flatMap((section) => [`--${section}.enabled`, 'true']);
    const soon = ['--client.expired_close_delay', '1s', '--client.expired_sub_close_delay', '1s', '--shutdown.spread', '200ms'];
    started.server = await Server.start({
      args: (own) => ['serve', '--config', file, '--port', `${own}`, '--http_api.key', KEY, '--tcp.port', `${started.tcp}`, ...on, ...soon],
    });
    return started;
  }

  async stop() {
    this.backend.kill();
    assert.equal(await this.server.stop(), 0);
    assert.doesNotMatch(this.said, /Error|Traceback|panic/, this.said);
  }
}

function reachable(port) {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1', () => (socket.destroy(), resolve(true))).once('error', () => resolve(false));
  });
}

describe('the example of hooks', { concurrency: 4 }, () => {
  const directory = mkdtempSync(join(tmpdir(), 'touchline-hooks-'));
  after(() => rmSync(directory, { recursive: true, force: true }));
  execFileSync('go', ['build', '-o', join(directory, 'backend'), example('go/backend.go')], { cwd: directory });
  const backends = {
    'Node.js': [process.execPath, example('node/backend.mjs')],
    Python: ['python3', example('python/backend.py')],
    Go: [join(directory, 'backend')],
  };

  // A backend does not see the transport, so each language and each transport is in one pair. TOUCHLINE_FULL=1 runs all pairs.
  const isChosen = (n, of) => process.env.TOUCHLINE_FULL || n % Object.keys(backends).length === of;
  for (const [of, [language, words]] of Object.entries(backends).entries()) {
    const start = () => Example.start(words, directory, 2);
    for (const [n, way] of SDK_WAYS.entries()) if (isChosen(n, of)) describe(`in ${language}, over ${way[0]}`, { concurrency: 1 }, () => chat(start, way));
    if (isChosen(0, of)) describe(`in ${language}, without an SDK`, { concurrency: 1 }, () => plain(start));
  }
});

/** The events of a chat user with the official SDK. */
function chat(start, way) {
  let started, ada, bob;
  const clients = [];
  const client = (options) => {
    clients.push(sdkClient(started.server, way, options));
    clients.at(-1).connect();
    return clients.at(-1);
  };
  before(async () => {
    started = await start();
    [ada, bob] = [client({ headers: cookie('ada') }), client({ headers: cookie('bob') })];
  });
  after(async () => {
    for (const one of clients) one.disconnect();
    await started.stop();
  });

  test('a cookie identifies the client, and the answer sets its permissions', LIMIT, async () => {
    const { data, client: id } = await ada.until('connected');
    assert.deepEqual(data.rooms.toSorted(), ['chat:board', 'chat:team']);
    assert.deepEqual((await bob.until('connected')).data.rooms, ['chat:team']);
    const { result } = await started.server.api('publish', { channel: 'news', data: { headline: 'Kick-off' } });
    assert.ok(result);
    assert.deepEqual((await ada.until('publication')).data, { headline: 'Kick-off' }, 'a channel that the backend has named');
    assert.match(id, /^[0-9a-f-]{36}$/);
  });

  test('a client without a cookie sends a field in the connect command', LIMIT, async () => {
    const claimed = client({ emulated: { Authorization: 'Bearer cid-secret' } });
    assert.deepEqual((await claimed.until('connected')).data.rooms, ['chat:team']);
    claimed.disconnect();
    const both = client({ headers: cookie('bob'), emulated: { Cookie: 'sid=ada-secret' } });
    assert.deepEqual((await both.until('connected')).data.rooms, ['chat:team'], 'a cookie cannot be claimed');
    both.disconnect();
  });

  test('an unknown client is refused with the number of the backend', LIMIT, async () => {
    for (const options of [{ headers: cookie('eve') }, {}, { emulated: { Authorization: 'Bearer eve-secret' } }]) {
      const { code, reason } = await client(options).until('disconnected');
      assert.deepEqual([code, reason], [401, 'log in first']);
    }
  });

  test('the backend decides about subscribes and publications', LIMIT, async () => {
    const [room, other] = [subscribe(ada, 'chat:team'), subscribe(bob, 'chat:team')];
    await Promise.all([room.until('subscribed'), other.until('subscribed')]);
    await other.publish({ text: 'hello', author: 'Ada' });
    for (const one of [room, other]) assert.deepEqual((await one.until('publication')).data, { text: 'hello', author: 'Bob' });
    await assert.rejects(other.publish({ text: 'buy SPAM' }), { code: 422, message: 'mind your words' });
    await assert.rejects(other.publish(['no text']), { code: 400, message: 'expected a text' });
    await assert.rejects(bob.publish('chat:board', { text: 'let me in' }), { code: 403, message: 'you are not a member' });
    const { code, reason } = await subscribe(bob, 'chat:board').until('unsubscribed');
    assert.deepEqual([code, reason], [403, 'you are not a member']);
    await subscribe(ada, 'chat:board').until('subscribed');
    const { publications } = await started.server.api('history', { channel: 'chat:team', limit: 10 }).then(({ result }) => result);
    assert.deepEqual(publications.map(({ data }) => data.text), ['hello'], 'what was refused was not published');
  });

  test('the backend answers an RPC, or refuses it', LIMIT, async () => {
    assert.deepEqual((await ada.rpc('price', { of: 'tea' })).data, { price: '2.40' });
    await assert.rejects(ada.rpc('price', { of: 'coal' }), { code: 404, message: 'not sold here' });
    await assert.rejects(ada.rpc('constructor', {}), { code: 404, message: 'no such method' });
  });

  test('what expires is prolonged, and the client notices nothing', LIMIT, async () => {
    for (const hook of ['refresh', 'sub_refresh']) {
      const { server } = started;
      // once: the count before.
      const asked = await calls(server, hook, 'answered');
      await until(async () => (await calls(server, hook, 'answered')) >= asked + 4, () => `${hook} is asked again`);
    }
    for (const one of [ada, bob]) assert.deepEqual(one.story(), ['connecting', 'connected']);
    const room = ada.getSubscription('chat:team').heard.all.map(({ name }) => name);
    assert.deepEqual(room, ['subscribing', 'subscribed', 'publication']);
  });

  test('a subscription that the backend does not prolong ends', LIMIT, async () => {
    const room = bob.getSubscription('chat:team');
    assert.ok(await bob.rpc('leave', { channel: 'chat:team' }));
    await room.until('subscribing');
    const { code } = await room.until('unsubscribed');
    assert.equal(code, 403, 'the SDK asks again, and is refused');
    assert.equal(bob.state, 'connected');
  });

  test('a disconnect of 4000 to 4499 brings the client back, one of 4500 to 4999 does not', LIMIT, async () => {
    const from = ada.heard.all.length;
    ada.rpc('reload', {}).catch(() => {});
    assert.equal((await ada.heard.first(({ name }) => name === 'connecting', from)).reason, 'something has changed');
    await ada.heard.first(({ name }) => name === 'connected', from);
    assert.deepEqual((await ada.rpc('price', { of: 'cake' })).data, { price: '3.10' });
    const second = client({ headers: cookie('bob') });
    await second.until('connected');
    const left = bob.heard.all.length;
    second.rpc('logout', {}).catch(() => {});
    const { code, reason } = await second.until('disconnected');
    assert.deepEqual([code, reason], [4501, 'logged out']);
    // The other connection of the same session ends when the server asks the backend about it. It cannot connect again.
    assert.equal((await bob.heard.first(({ name }) => name === 'connecting', left)).code, 3005);
    assert.equal((await bob.until('disconnected')).code, 401);
  });
}

/** The messages of a client without the SDK: one-way transports, and lines over TCP. */
function plain(start) {
  let started;
  before(async () => { started = await start(); });
  after(() => started.stop());

  for (const [transport, open] of Object.entries(ONE_WAY)) {
    test(`${transport}: the answer of the backend alone says what it hears, for as long as the backend says`, LIMIT, async () => {
      const { server } = started;
      const { heard, close } = open(server, { subs: { 'chat:team': {} } }, cookie('ada'));
      const { connect } = await heard.first((message) => message.connect);
      assert.deepEqual(Object.keys(connect.subs), ['news'], 'not what it wishes');
      assert.equal(connect.ttl, undefined, 'it need not refresh anything');
      // once: the count before.
      const asked = await calls(server, 'refresh', 'answered');
      await until(async () => (await calls(server, 'refresh', 'answered')) >= asked + 2, () => 'it is asked again');
      await server.api('publish', { channel: 'news', data: { by: transport } });
      assert.deepEqual((await heard.first((message) => message.pub)).pub.data, { by: transport });
      close();
      const stranger = open(server, {}, cookie('eve'));
      assert.equal((await stranger.heard.first((message) => message.disconnect)).disconnect.code, 3507);
    });
  }

  test('lines over TCP: what it claims when it connects is all that the backend knows', LIMIT, async () => {
    const device = lines(started.tcp);
    const { connect } = await device.ask({ id: 1, connect: { headers: { authorization: 'Bearer cid-secret', cookie: 'sid=ada-secret' } } });
    assert.deepEqual(connect.data.rooms, ['chat:team']);
    assert.ok((await device.ask({ id: 2, subscribe: { channel: 'chat:team' } })).subscribe);
    assert.equal((await device.ask({ id: 3, subscribe: { channel: 'chat:board' } })).error.code, 403);
    assert.ok((await device.ask({ id: 4, publish: { channel: 'chat:team', data: { text: '21.5' } } })).publish);
    assert.deepEqual((await device.heard.first((message) => message.push?.pub)).push.pub.data, { text: '21.5', author: 'Cid' });
    assert.deepEqual((await device.ask({ id: 5, rpc: { method: 'price', data: { of: 'tea' } } })).rpc.data, { price: '2.40' });
    device.say({ id: 6, rpc: { method: 'logout' } });
    assert.deepEqual((await device.heard.first((message) => message.push?.disconnect)).push.disconnect, { code: 4501, reason: 'logged out' });
    device.close();
  });
}

test('the guide holds the examples as they are', () => {
  const guide = readFileSync(join(root, 'docs/guides/hooks.md'), 'utf8');
  for (const [language, path] of [['toml', 'touchline.toml'], ['js', 'node/backend.mjs'], ['python', 'python/backend.py'], ['go', 'go/backend.go']]) {
    assert.ok(guide.includes(`\`\`\`${language}\n${readFileSync(example(path), 'utf8')}\`\`\`\n`), path);
  }
});

/** Accepts each connect as the user `ann`, and answers other requests with a function. */
const asAnn = (decide) => (question, response) => (question.path === '/connect' ? { result: { user: 'ann' } } : decide(question, response));

describe('header fields', { concurrency: 2 }, () => {
  const lists = { http_headers: ['x-http', 'X-BOTH'], emulated_headers: ['x-emulated', 'x-both'], http: { static_headers: { 'X-Static': 'static' } } };
  const names = ['x-neither', 'x-http', 'x-emulated', 'x-both', 'content-type', 'host'];
  const of = (value) => Object.fromEntries(names.slice(0, 4).map((name) => [name, value]));
  /** The fields of `names` that a backend received. */
  const seen = ({ headers }) => Object.fromEntries([...names.slice(0, 5), 'x-static'].filter((name) => headers[name] !== undefined).map((name) => [name, headers[name]]));
  const always = { 'content-type': 'application/json', 'x-static': 'static' };
  const cases = [
    ['by the transport', of('transport'), undefined, { ...always, 'x-http': 'transport', 'x-both': 'transport' }],
    ['claimed', {}, of('claimed'), { ...always, 'x-emulated': 'claimed', 'x-both': 'claimed' }],
    ['both', of('transport'), of('claimed'), { ...always, 'x-http': 'transport', 'x-emulated': 'claimed', 'x-both': 'transport' }],
    ['neither', {}, undefined, always],
  ];

  for (const way of SDK_WAYS) {
    test(`over ${way[0]}: each list, sent in each way`, LIMIT, async (t) => {
      const { backend, client } = await serverFor(t, asAnn(() => ({})), { '/connect': lists, '/rpc': lists, '/publish': { http_headers: ['x-http'] } });
      for (const [sent, headers, emulated, expected] of cases) {
        const one = client({ headers, emulated }, way);
        await one.until('connected');
        await one.rpc('any', {});
        await one.publish('chat:any', {});
        assert.deepEqual(seen(backend.of('/connect').at(-1)), expected, `sent ${sent}`);
        assert.deepEqual(seen(backend.of('/rpc').at(-1)), expected, `sent ${sent}: later hooks are told the same`);
        const alone = headers['x-http'] ? { 'x-http': 'transport' } : {};
        assert.deepEqual(seen(backend.of('/publish').at(-1)), { 'content-type': 'application/json', ...alone }, `sent ${sent}: lists are those of the hook`);
        one.disconnect();
      }
    });
  }

  test('over one-way transports and lines', LIMIT, async (t) => {
    const tcp = await freePort();
    const { backend, server } = await serverFor(t, asAnn(() => ({})), { '/connect': lists }, { tcp: { enabled: true, address: '127.0.0.1', port: tcp } });
    for (const [sent, headers, emulated, expected] of cases) {
      for (const open of Object.values(ONE_WAY)) {
        const { heard, close } = open(server, { headers: emulated }, headers);
        await heard.first((message) => message.connect);
        close();
        assert.deepEqual(seen(backend.of('/connect').at(-1)), expected, `sent ${sent}`);
      }
    }
    const device = lines(tcp);
    assert.ok((await device.ask({ id: 1, connect: { headers: of('claimed') } })).connect);
    device.close();
    assert.deepEqual(seen(backend.of('/connect').at(-1)), cases[1][3]);
  });
});

describe('a backend that fails', { concurrency: 2 }, () => {
  const faults = {
    // short: the hook must time out.
    'hangs beyond the time of the hook': { more: { '/subscribe': { timeout: '2s' } }, answer: () => undefined },
    'answers with members of its own': { answer: () => ({ detail: 'forbidden' }) },
    'is dead': { more: { '/subscribe': { endpoint: 'http://127.0.0.1:1/subscribe' } }, answer: () => ({}) },
  };
  for (const [fault, { more, answer }] of Object.entries(faults)) {
    test(`${fault}: the subscribe gets error 100, and all else of its connection goes on`, LIMIT, async (t) => {
      const { server, client } = await serverFor(t, asAnn(({ path, channel }, response) => (path === '/subscribe' && channel === 'chat:bad' ? answer(response) : {})), more);
      const ann = client();
      await ann.until('connected');
      const open = subscribe(ann, 'history:open');
      await open.until('subscribed');
      const bad = subscribe(ann, 'chat:bad');
      await server.api('publish', { channel: 'history:open', data: 'during' });
      assert.equal((await open.until('publication')).data, 'during');
      assert.ok(await ann.rpc('other', {}));
      if (!fault.includes('dead')) await subscribe(ann, 'chat:good').until('subscribed');
      const { code, temporary } = await bad.until('error');
      assert.deepEqual([code, temporary], [100, true]);
      // The SDK tries again, and the backend again permits nothing.
      await bad.heard.first(({ name }) => name === 'error', bad.heard.all.length);
      await server.api('publish', { channel: 'history:open', data: 'after' });
      await open.heard.first(({ data }) => data === 'after');
      assert.ok(!bad.heard.all.some(({ name }) => name === 'subscribed'));
      assert.deepEqual(ann.story(), ['connecting', 'connected'], 'the same connection');
      assert.ok(!server.output.includes('forbidden'), 'the log holds nothing of an answer');
    });
  }

  test('hangs at a publish, an RPC and a subscribe: pings, deliveries and other channels do not wait', LIMIT, async (t) => {
    const held = [];
    const answers = asAnn(({ path, channel }, response) => (path === '/rpc' || channel === 'chat:held' ? void held.push(response) : {}));
    const { backend, server, client } = await serverFor(t, answers);
    const ann = client();
    await ann.until('connected');
    const open = subscribe(ann, 'history:open');
    await open.until('subscribed');
    const waiting = [ann.rpc('slow', {}), ann.publish('chat:held', { n: 1 })];
    await until(() => held.length === 2, () => `${held.length} questions`);
    // This call waits behind the publish: the node has one call about a channel at a time.
    waiting.push(subscribe(ann, 'chat:held').until('subscribed'));
    for (let n = 0; n < 3; n += 1) await server.api('publish', { channel: 'history:open', data: n });
    await open.heard.first(({ data }) => data === 2);
    await subscribe(ann, 'chat:other').until('subscribed');
    assert.ok(await ann.publish('chat:other', { n: 2 }));
    // The connection lives through pings and their answers.
    let pings = 0;
    ann._transport._transport.on('message', (data) => { pings += String(data) === '{}'; });
    await until(() => pings > 2);
    assert.deepEqual([held.length, ann.state], [2, 'connected']);
    const release = (response) => response.writeHead(200).end('{"result":{"data":{"answer":1}}}');
    held.splice(0).forEach(release);
    assert.deepEqual((await waiting[0]).data, { answer: 1 });
    await waiting[1];
    await until(() => held.length === 1, () => 'now the subscribe is asked about');
    held.splice(0).forEach(release);
    await waiting[2];
    assert.deepEqual(backend.of('/subscribe').map(({ channel }) => channel), ['chat:other', 'chat:held']);
    assert.deepEqual(ann.story(), ['connecting', 'connected']);
  });

  test('hangs at a subscribe that the client takes back: the unsubscribe counts', LIMIT, async (t) => {
    const held = [];
    const { client } = await serverFor(t, asAnn(({ channel }, response) => (channel === 'chat:held' && held.length === 0 ? void held.push(response) : {})));
    const ann = client();
    await ann.until('connected');
    const room = subscribe(ann, 'chat:held');
    await until(() => held.length === 1, () => 'the question');
    room.unsubscribe();
    await room.until('unsubscribed');
    room.subscribe();
    await room.until('subscribed');
    assert.ok(await ann.publish('chat:held', {}));
    assert.equal(held.length, 1, 'the first question never got an answer');
  });

  test('is dead when clients connect: they try again, and are let in when it is back', LIMIT, async (t) => {
    const { backend, client } = await serverFor(t, asAnn(() => ({})));
    await backend.stop();
    const [ann, expected] = [client(), { code: 100, temporary: true }];
    const { code, temporary } = await ann.until('error');
    assert.deepEqual({ code, temporary }, expected);
    await backend.listen();
    await ann.until('connected');
  });

  test('is dead when a connection expires: it lives on, and ends when the backend is back and says so', LIMIT, async (t) => {
    // The times are short: what the backend permits must expire.
    const expire = (seconds) => Math.floor(Date.now() / 1000) + seconds;
    const { backend, server, client } = await serverFor(t, ({ path }) => {
      if (path === '/connect') return { result: { user: 'ann', expire_at: expire(2) } };
      return path === '/refresh' ? { result: { expired: true } } : { result: { expire_at: expire(2) } };
    });
    const ann = client();
    const room = subscribe(ann, 'chat:room');
    await room.until('subscribed');
    await backend.stop();
    for (const hook of ['refresh', 'sub_refresh']) await until(async () => (await calls(server, hook, 'failed')) >= 2, () => `${hook} has failed`);
    assert.deepEqual([ann.state, room.state], ['connected', 'subscribed']);
    await backend.listen();
    assert.equal((await ann.heard.first(({ name }) => name === 'connecting', 1)).code, 3005);
  });

  test('answers too seldom: it is not asked for a moment, others are, and it is asked again when it is back', LIMIT, async (t) => {
    const { backend, server, client } = await serverFor(t, asAnn(({ path }, response) => (path === '/rpc' && backend.isDown ? void response.writeHead(503).end() : { result: { data: 1 } })));
    backend.isDown = true;
    const ann = client();
    await ann.until('connected');
    const notAsked = async () => (await (await fetch(`${server.http}/readyz`)).json()).backends_not_asked;
    for (let n = 0; n < 30; n += 1) await assert.rejects(ann.rpc('any', {}), { code: 100 });
    await until(async () => (await notAsked())?.join() === 'rpc.proxy');
    assert.ok(backend.of('/rpc').length < 30, 'it was not asked thirty times');
    await until(async () => (await calls(server, 'rpc', 'open')) > 0);
    await subscribe(ann, 'chat:room').until('subscribed');
    backend.isDown = false;
    await until(() => ann.rpc('any', {}).then(({ data }) => data === 1, () => false), () => 'an answer');
    await until(async () => (await notAsked()) === undefined, () => 'it is asked again');
  });
});

describe('a node with hooks', { concurrency: 2 }, () => {
  test('that stops waits for what the backend has been asked', LIMIT, async (t) => {
    const held = [];
    const { server, client } = await serverFor(t, asAnn((question, response) => void held.push(response)));
    const ann = client();
    await ann.until('connected');
    const answer = ann.rpc('pay', {});
    await until(() => held.length === 1, () => 'the question');
    const stopped = server.stop();
    await until(() => fetch(`${server.http}/readyz`).then(({ status }) => status === 503, () => false), () => server.output);
    held[0].writeHead(200).end('{"result":{"data":"paid"}}');
    assert.equal((await answer).data, 'paid');
    assert.equal((await ann.heard.first(({ name }) => name === 'connecting', 1)).code, 3001);
    ann.disconnect();
    assert.equal(await stopped, 0);
  });

  test('keeps an answer that says so, until the backend ends what it permits', LIMIT, async (t) => {
    let isMember = true;
    const { backend, server, client } = await serverFor(t, asAnn(() => (isMember ? { result: { cache_for: 300 } } : { error: { code: 403, message: 'no' } })));
    const rooms = [];
    for (let n = 0; n < 3; n += 1) {
      rooms.push(subscribe(client(), 'chat:room'));
      await rooms[n].until('subscribed');
    }
    assert.equal(backend.of('/subscribe').length, 1, 'one question for three connections of the same user');
    isMember = false;
    await server.api('unsubscribe', { user: 'ann', channel: 'chat:room' });
    for (const room of rooms) await room.until('unsubscribed');
    rooms[0].subscribe();
    assert.equal((await rooms[0].heard.first(({ name, code }) => name === 'unsubscribed' && code === 403)).code, 403);
    assert.equal(backend.of('/subscribe').length, 2);
  });

  test('asks about the channels of a one-way client with a token, and leaves out refused channels', LIMIT, async (t) => {
    const { server } = await serverFor(t, ({ channel }) => (channel === 'chat:yes' ? {} : { error: { code: 403, message: 'no' } }));
    for (const open of Object.values(ONE_WAY)) {
      const { heard, close } = open(server, { token: token({ sub: 'ann' }), subs: { 'chat:yes': {}, 'chat:no': {} } }, {});
      assert.deepEqual(Object.keys((await heard.first((message) => message.connect)).connect.subs), ['chat:yes']);
      close();
    }
  });

  test('refuses with 111 what waits for too long', LIMIT, async (t) => {
    const held = [];
    // short: the second call must wait for too long.
    const { server, client } = await serverFor(t, asAnn((question, response) => void held.push(response)), {}, { hooks: { calls_max: 1, queue_timeout: '1s' } });
    const ann = client();
    await ann.until('connected');
    const first = ann.rpc('first', {});
    await until(() => held.length === 1, () => 'the question');
    await assert.rejects(ann.rpc('second', {}), { code: 111, temporary: true });
    await until(async () => (await calls(server, 'rpc', 'busy')) === 1);
    held[0].writeHead(200).end('{}');
    await first;
    assert.equal(held.length, 1, 'the backend was asked one question');
  });

  test('turns statuses into refusals, as its configuration says', LIMIT, async (t) => {
    const status_to_code_transforms = [
      { status_code: 401, to_disconnect: { code: 4501, reason: 'log in first' } },
      { status_code: 403, to_error: { code: 403, message: 'permission denied' } },
    ];
    const { client } = await serverFor(t, asAnn(({ method }, response) => void response.writeHead(Number(method)).end()), { '/rpc': { http: { status_to_code_transforms } } });
    const ann = client();
    await ann.until('connected');
    await assert.rejects(ann.rpc('403', {}), { code: 403, message: 'permission denied' });
    await assert.rejects(ann.rpc('404', {}), { code: 100 });
    ann.rpc('401', {}).catch(() => {});
    assert.equal((await ann.until('disconnected')).code, 4501);
  });
});
