// Clients without an SDK: curl, nc, the browser's own EventSource, and incorrect requests.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect } from 'node:net';
import { after, before, describe, test } from 'node:test';
import { EventSource } from 'eventsource';
import WebSocket from 'ws';
import { LIMIT, until } from './patience.mjs';
import { spawn } from './processes.mjs';
import { freePort, Server, token } from './server.mjs';

/** A program whose output the test reads line by line. */
class Program {
  constructor(command, ...words) {
    this.process = spawn(command, words);
    this.lines = [];
    let rest = '';
    this.process.stdout.on('data', (data) => {
      const lines = (rest + data).split('\n');
      rest = lines.pop();
      this.lines.push(...lines);
    });
    this.exit = once(this.process, 'exit');
  }

  say(...lines) { for (const line of lines) this.process.stdin.write(`${typeof line === 'string' ? line : JSON.stringify(line)}\n`); }

  /** The first line that fits, parsed as JSON. */
  async line(fits) {
    let looked = 0;
    return until(() => {
      while (looked < this.lines.length) {
        const text = this.lines[looked++].replace(/^data: /, '');
        if (!text.startsWith('{')) continue;
        const value = JSON.parse(text);
        if (fits(value)) return value;
      }
    }, () => `a line that fits, among:\n${this.lines.join('\n')}`);
  }

  /** Closes the input of the program and waits until the program ends. */
  async end() {
    this.process.stdin.end();
    await this.exit;
  }

  stop() { this.process.kill(); }
}

describe('compressed streams', () => {
  let server;
  before(async () => { server = await Server.start({ change: { streams: { compression: true } } }); });
  after(async () => assert.equal(await server.stop(), 0));
  const body = JSON.stringify({ subs: { 'history:gzip': {} } });

  for (const [name, path, words] of [
    ['HTTP streaming', 'uni_http_stream', ['-d', body]],
    ['server-sent events', 'uni_sse', ['-d', body]],
    ['HTTP streaming over HTTP/2', 'uni_http_stream', ['-d', body, '--http2-prior-knowledge']],
  ]) {
    test(`${name} by curl: every event at once, and less than half of the bytes`, LIMIT, async () => {
      const url = `${server.http}/connection/${path}`;
      const curl = new Program('curl', '-sN', '--compressed', ...words, url);
      const raw = spawn('curl', ['-sN', '-H', 'Accept-Encoding: br, gzip;q=0.5', ...words, url]);
      const plain = new Program('curl', '-sN', '-H', 'Accept-Encoding: br, gzip;q=0', ...words, url);
      let bytes = 0;
      raw.stdout.on('data', (data) => (bytes += data.length));
      for (const program of [curl, plain]) await program.line((push) => push.connect);
      await until(() => bytes > 0);
      const connected = bytes;
      const data = { text: Array.from({ length: 40 }, (_, n) => `player ${n} of ${name}`) };
      await server.api('publish', { channel: 'history:gzip', data });
      for (const program of [curl, plain]) assert.deepEqual((await program.line((push) => push.pub)).pub.data, data);
      const length = JSON.stringify(data).length;
      await until(() => bytes !== connected);
      assert.ok(bytes > connected && bytes - connected < length / 2, `${bytes - connected} of ${length}`);
      for (const program of [curl, plain]) program.stop();
      raw.kill();
    });
  }

  test('a client that names its encodings gets the chosen one in the head', LIMIT, async () => {
    for (const [accepted, expected] of [['gzip', 'gzip'], ['identity', null], ['gzip;q=0, *', null]]) {
      const stop = new AbortController();
      const answer = await fetch(`${server.http}/connection/uni_http_stream`, { method: 'POST', body, headers: { 'accept-encoding': accepted }, signal: stop.signal });
      assert.deepEqual([answer.headers.get('content-encoding'), answer.headers.get('vary')], [expected, 'Accept-Encoding']);
      stop.abort();
    }
  });
});

describe('one-way transports', () => {
  let server;
  before(async () => { server = await Server.start(); });
  after(async () => assert.equal(await server.stop(), 0));

  const request = (subs, claims) => JSON.stringify({ subs: Object.fromEntries(subs.map((channel) => [channel, {}])), ...(claims && { token: token(claims) }) });

  for (const [name, words] of [
    ['server-sent events', (body) => [`${server.http}/connection/uni_sse?cf_connect=${encodeURIComponent(body)}`]],
    ['server-sent events by POST', (body) => [`${server.http}/connection/uni_sse`, '-d', body]],
    ['HTTP streaming', (body) => [`${server.http}/connection/uni_http_stream`, '-d', body]],
  ]) {
    test(`${name} by curl`, LIMIT, async () => {
      const curl = new Program('curl', '-sN', ...words(request(['history:uni', 'closed:not-for-you'], { sub: 'ann' })));
      const { connect } = await curl.line((push) => push.connect);
      assert.deepEqual(Object.keys(connect.subs), ['history:uni'], 'what it may not have it does not get');
      assert.equal(connect.pong, undefined);
      const { result } = await server.api('publish', { channel: 'history:uni', data: { goal: name } });
      const { channel, pub } = await curl.line((push) => push.pub);
      assert.deepEqual([channel, pub.data, pub.offset], ['history:uni', { goal: name }, result.offset]);
      await server.api('disconnect', { user: 'ann' });
      assert.deepEqual((await curl.line((push) => push.disconnect)).disconnect, { code: 3503, reason: 'force disconnect' });
      assert.deepEqual(await curl.exit, [0, null], 'the answer ends in order');
    });
  }

  test('the EventSource of browsers, which comes back and recovers by hand', LIMIT, async () => {
    const listen = async (subs) => {
      const source = new EventSource(`${server.http}/connection/uni_sse?cf_connect=${encodeURIComponent(JSON.stringify({ subs }))}`);
      const messages = [];
      source.addEventListener('message', (event) => messages.push(JSON.parse(event.data)));
      await until(() => messages.length > 0);
      return { source, messages };
    };
    const first = await listen({ 'history:es': {} });
    const { epoch, offset = 0 } = first.messages[0].connect.subs['history:es'];
    first.source.close();
    await server.api('publish', { channel: 'history:es', data: 'missed' });
    const second = await listen({ 'history:es': { recover: true, epoch, offset } });
    const subscribed = second.messages[0].connect.subs['history:es'];
    assert.deepEqual([subscribed.recovered, subscribed.publications.map((p) => p.data)], [true, ['missed']]);
    second.source.close();
  });

  test('WebSocket', LIMIT, async () => {
    const socket = new WebSocket(`ws://127.0.0.1:${server.port}/connection/uni_websocket`);
    await once(socket, 'open');
    const messages = [];
    socket.on('message', (data) => messages.push(JSON.parse(data)));
    socket.send(request(['history:uniws'], { sub: 'bob' }));
    await until(() => messages.length >= 1);
    await server.api('publish', { channel: 'history:uniws', data: 7 });
    await until(() => messages.length >= 2);
    assert.ok(messages[0].connect.client);
    assert.equal(messages[1].pub.data, 7);
    const closed = once(socket, 'close');
    await server.api('disconnect', { user: 'bob' });
    assert.equal((await closed)[0], 3503);
  });

  test('an error arrives at once', LIMIT, async () => {
    const get = (path, options) => fetch(`${server.http}${path}`, options);
    const expect = async (path, options, status) => {
      const response = await get(path, options);
      assert.equal(response.status, status, `${path}: ${await response.text()}`);
    };
    await expect('/connection/uni_sse', {}, 400);
    await expect('/connection/sse', {}, 400);
    await expect('/connection/http_stream', { method: 'POST', body: '' }, 400);
    await expect('/connection/http_stream', {}, 405);
    await expect('/connection/http_stream', { method: 'POST', body: 'x'.repeat(70_000) }, 413);
    const foreign = { headers: { origin: 'https://evil.example' } };
    await expect('/connection/uni_sse?cf_connect=%7B%7D', foreign, 403);
    await expect('/emulation', { method: 'POST', body: '{}', ...foreign }, 403);
    const told = async (path, options) => (await (await get(path, options)).text()).split('\n').map((line) => line.replace(/^data: /, '')).filter((line) => line.startsWith('{')).map((line) => JSON.parse(line));
    const bad = await told('/connection/uni_http_stream', { method: 'POST', body: 'no json' });
    assert.equal(bad[0].disconnect.code, 3501);
    const expired = await told(`/connection/uni_sse?cf_connect=${encodeURIComponent(JSON.stringify({ token: token({ sub: 'x', exp: 1 }) }))}`);
    assert.deepEqual(expired[0].disconnect, { code: 3005, reason: 'connection expired', reconnect: true });
    const forged = await told('/connection/http_stream', { method: 'POST', body: JSON.stringify({ id: 1, connect: { token: 'forged' } }) });
    assert.equal(forged[0].push.disconnect.code, 3500);
    const unknown = await told('/connection/uni_http_stream', { method: 'POST', body: request(['nowhere:x']) });
    assert.equal(unknown[0].disconnect.code, 3501);
  });

  test('a page from elsewhere is let in by its origin', LIMIT, async () => {
    const origin = 'http://127.0.0.1:1';
    const preflight = await fetch(`${server.http}/emulation`, { method: 'OPTIONS', headers: { origin, 'access-control-request-method': 'POST', 'access-control-request-headers': 'content-type' } });
    assert.equal(preflight.status, 204);
    assert.equal(preflight.headers.get('access-control-allow-origin'), origin);
    assert.equal(preflight.headers.get('access-control-allow-headers'), 'content-type');
    const stream = await fetch(`${server.http}/connection/uni_sse?cf_connect=%7B%7D`, { headers: { origin } });
    assert.deepEqual([stream.status, stream.headers.get('access-control-allow-origin'), stream.headers.get('x-accel-buffering')], [200, origin, 'no']);
    await stream.body.cancel();
  });
});

describe('emulation', () => {
  let server;
  before(async () => { server = await Server.start(); });
  after(async () => assert.equal(await server.stop(), 0));
  const post = async (body, headers = {}) => (await fetch(`${server.http}/emulation`, { method: 'POST', body: typeof body === 'string' ? body : JSON.stringify(body), headers })).status;

  test('commands reach their session, and no other client can send to it', LIMIT, async () => {
    const curl = new Program('curl', '-sN', `${server.http}/connection/http_stream`, '-d', JSON.stringify({ id: 1, connect: {} }));
    const { connect: { session, node, client } } = await curl.line((reply) => reply.connect);
    const subscribe = (id) => JSON.stringify({ id, subscribe: { channel: `news-${id}` } });
    assert.equal(await post({ session, node, data: `${subscribe(2)}\n${subscribe(3)}` }), 204);
    await curl.line((reply) => reply.id === 3 && reply.subscribe);
    assert.equal(await post({ session, node: '0'.repeat(32), data: subscribe(4) }), 404, 'there is no such node');
    assert.equal(await post({ session: session.slice(0, -2) + (session.endsWith('AA') ? 'BB' : 'AA'), node, data: subscribe(5) }), 204, 'a session that is none is as one that has gone');
    assert.equal(await post({ session: Buffer.concat([Buffer.from(client.replaceAll('-', ''), 'hex'), Buffer.alloc(16)]).toString('base64url'), node, data: subscribe(6) }), 204);
    assert.equal(await post('{'), 400);
    assert.equal(await post('\xff', { 'content-type': 'application/octet-stream' }), 400);
    assert.equal(await post({ session, node, data: 'x'.repeat(70_000) }), 413);
    assert.equal(await post({ session, node, data: subscribe(7) }), 204);
    await curl.line((reply) => reply.id === 7 && reply.subscribe);
    assert.ok(!curl.lines.some((line) => /"id":[456]\b/.test(line)), curl.lines.join('\n'));
    assert.equal(await post({ session, node, data: 'no command' }), 204);
    assert.equal((await curl.line((reply) => reply.push?.disconnect)).push.disconnect.code, 3501);
    await curl.exit;
    assert.equal(await post({ session, node, data: subscribe(8) }), 204, 'it has gone');
  });
});

describe('bare TCP', () => {
  let server, port;
  const programs = [];
  before(async () => {
    port = await freePort();
    server = await Server.start({ change: { tcp: { enabled: true, address: '127.0.0.1', port } } });
  });
  after(async () => {
    for (const program of programs) program.stop();
    assert.equal(await server.stop(), 0);
  });
  const nc = (...words) => {
    const program = new Program('nc', ...words, '127.0.0.1', `${port}`);
    programs.push(program);
    return program;
  };

  test('a device connects with its token, subscribes, hears and publishes', LIMIT, async () => {
    const device = nc();
    device.say({ id: 1, connect: { token: token({ sub: 'lamp' }) } }, { id: 2, subscribe: { channel: 'room:tcp' } });
    await device.line((reply) => reply.id === 2 && reply.subscribe);
    const other = nc();
    other.say('', { id: 1, connect: { token: token({ sub: 'switch' }) } }, '', { id: 2, publish: { channel: 'room:tcp', data: { on: true } } });
    const { push: { pub } } = await device.line((message) => message.push?.pub);
    assert.deepEqual([pub.data, pub.info.user], [{ on: true }, 'switch']);
    device.say({ id: 3, presence: { channel: 'room:tcp' } });
    const { presence } = await device.line((reply) => reply.id === 3);
    assert.deepEqual(Object.values(presence.presence).map((info) => info.user), ['lamp']);
  });

  test('a person who types lines gets the expected form, and may try again', LIMIT, async () => {
    const typist = nc();
    typist.say('hello', 'help');
    const { error } = await typist.line((reply) => reply.error);
    assert.equal(error.code, 4013);
    assert.match(error.message, /one JSON command a line/);
    typist.say({ id: 1, connect: {} });
    assert.ok((await typist.line((reply) => reply.connect)).connect.client);
    // The server may send its error and end the connection before the client has sent all lines.
    typist.process.stdin.on('error', () => {});
    typist.say(...Array.from({ length: 10 }, () => 'no'));
    assert.deepEqual((await typist.line((message) => message.push?.disconnect)).push.disconnect, { code: 3509, reason: 'too many errors' });
    await typist.end();
  });

  test('its program, version and transport are in the metrics', LIMIT, async () => {
    const device = nc();
    device.say({ id: 1, connect: { name: 'lamp', version: '1.2' } });
    await device.line((reply) => reply.connect);
    const shows = (pattern) => until(async () => pattern.test(await server.metrics()));
    await shows(/touchline_client_connections\{client_name="lamp",client_version="1.2"\} 1\n/);
    await shows(/touchline_transport_connections\{transport="tcp"\} [1-9]/);
    device.stop();
    await shows(/client_name="lamp",client_version="1.2"\} 0\n/);
  });

  test('what breaks the protocol or a limit ends the connection with its number', LIMIT, async () => {
    for (const [line, code] of [[{ id: 1, subscribe: { channel: 'x' } }, 3501], [{ id: 1, connect: { token: 'forged' } }, 3500], ['x'.repeat(70_000), 3501]]) {
      const program = nc();
      program.say(line);
      assert.equal((await program.line((message) => message.push?.disconnect)).push.disconnect.code, code);
      await program.end();
    }
  });

  test('pings need no answer, but silence has an end', LIMIT, async () => {
    const own = await freePort();
    // short: the silent connection must end.
    const strict = await Server.start({ change: { tcp: { enabled: true, address: '127.0.0.1', port: own, idle_timeout: '4s' }, client: { ping_interval: '2s', pong_timeout: '1500ms' } } });
    const [silent, awake] = [0, 1].map(() => new Program('nc', '127.0.0.1', `${own}`));
    for (const program of [silent, awake]) program.say({ id: 1, connect: {} });
    const answers = setInterval(() => awake.say({}), 300);
    assert.deepEqual((await silent.line((message) => message.push?.disconnect)).push.disconnect, { code: 4000, reason: 'idle', reconnect: true });
    assert.ok(silent.lines.includes('{}'), 'it was pinged');
    const pings = () => awake.lines.filter((line) => line === '{}').length;
    const before = pings();
    await until(() => pings() > before + 2, () => awake.lines.join('\n'));
    clearInterval(answers);
    for (const program of [silent, awake]) program.stop();
    assert.equal(await strict.stop(), 0);
  });

  test('a client that closes its side gets its replies first', LIMIT, async () => {
    const once = nc('-N');
    once.say({ id: 1, connect: {} });
    await once.end();
    await once.line((reply) => reply.connect);
  });
});

test('every transport may have pings of its own', LIMIT, async () => {
  const port = await freePort();
  // short: an interval of 500 ms needs a shorter time for the answer.
  const change = { client: { ping_interval: '20s', pong_timeout: '200ms' }, streams: { ping_interval: '30s' }, tcp: { enabled: true, address: '127.0.0.1', port, ping_interval: '500ms' } };
  const server = await Server.start({ change });
  const device = new Program('nc', '127.0.0.1', `${port}`);
  device.say({ id: 1, connect: {} });
  const stream = new Program('curl', '-sN', `${server.http}/connection/uni_http_stream`, '-d', '{"subs":{}}');
  assert.equal((await device.line((reply) => reply.connect)).connect.ping, 1, 'seconds, rounded up');
  assert.equal((await stream.line((push) => push.connect)).connect.ping, 30);
  await until(() => device.lines.filter((line) => line === '{}').length >= 3);
  assert.ok(!stream.lines.includes('{}'));
  for (const program of [device, stream]) program.stop();
  assert.equal(await server.stop(), 0);
});

describe('a client that sends more than it may', () => {
  test('is read more slowly: nothing is lost, and neighbours are served', LIMIT, async (t) => {
    const port = await freePort();
    const server = await Server.start({ change: { tcp: { enabled: true, address: '127.0.0.1', port }, client: { command_rate_limit: 500 } } });
    const [noisy, neighbour] = [new Program('nc', '127.0.0.1', `${port}`), new Program('nc', '127.0.0.1', `${port}`)];
    t.after(async () => {
      for (const program of [noisy, neighbour]) program.stop();
      await server.stop();
    });
    for (const program of [noisy, neighbour]) program.say({ id: 1, connect: {} });
    await neighbour.line((reply) => reply.connect);
    const count = 3_000;
    for (let id = 2; id < count + 2; id += 1) noisy.say({ id, rpc: { method: 'none' } });
    neighbour.say({ id: 2, rpc: { method: 'none' } });
    assert.equal((await neighbour.line((reply) => reply.id === 2)).error.code, 108);
    assert.ok(noisy.lines.length < count, 'the neighbour has not waited for it');
    await noisy.line((reply) => reply.id === count + 1);
    const ids = noisy.lines.map((line) => JSON.parse(line).id).filter((id) => id > 1);
    assert.deepEqual(ids, Array.from({ length: count }, (_, n) => n + 2), 'all, and in order');
    await until(async () => /touchline_throttled_total [1-9]/.test(await server.metrics()));
  });

  test('over emulation gets the time to come back', LIMIT, async (t) => {
    // With this limit even a slow machine can send more, and the waiting commands exceed the time for which the server keeps them.
    const server = await Server.start({ change: { client: { command_rate_limit: 10 } } });
    t.after(() => server.stop());
    const curl = new Program('curl', '-sN', `${server.http}/connection/http_stream`, '-d', JSON.stringify({ id: 1, connect: {} }));
    const { connect: { session, node } } = await curl.line((reply) => reply.connect);
    const data = Array.from({ length: 1_000 }, (_, n) => JSON.stringify({ id: n + 2, rpc: { method: 'none' } })).join('\n');
    for (let n = 0; n < 10; n += 1) await fetch(`${server.http}/emulation`, { method: 'POST', body: JSON.stringify({ session, node, data }) });
    assert.equal((await curl.line((message) => message.push?.disconnect)).push.disconnect.code, 3013);
  });
});

describe('publications that expire', () => {
  let server, port;
  before(async () => {
    port = await freePort();
    server = await Server.start({ change: { tcp: { enabled: true, address: '127.0.0.1', port } } });
  });
  after(async () => assert.equal(await server.stop(), 0));

  test('are neither recovered nor in the history', LIMIT, async () => {
    const channel = 'history:expiring';
    const { result: first } = await server.api('publish', { channel, data: 'first' });
    await server.api('publish', { channel, data: 'stale', expires_in: 10 });
    await server.api('publish', { channel, data: 'fresh', expires_in: 600 });
    const recover = async () => {
      const program = new Program('nc', '127.0.0.1', `${port}`);
      program.say({ id: 1, connect: {} }, { id: 2, subscribe: { channel, recover: true, ...first } });
      const { subscribe } = await program.line((reply) => reply.subscribe);
      program.stop();
      return [subscribe.recovered, subscribe.publications.map((p) => p.data)];
    };
    assert.deepEqual(await recover(), [true, ['stale', 'fresh']]);
    const kept = async () => (await server.api('history', { channel, limit: 10 })).result;
    await until(async () => (await kept()).publications.length === 2);
    assert.deepEqual(await recover(), [true, ['fresh']]);
    const { publications, offset } = await kept();
    assert.deepEqual([publications.map((p) => p.data), offset], [['first', 'fresh'], 3]);
  });

  test('are not given to a client that sleeps while they wait for it', LIMIT, async () => {
    const channel = 'news-expiring';
    const socket = connect(port, '127.0.0.1');
    socket.write(`{"id":1,"connect":{}}\n{"id":2,"subscribe":{"channel":"${channel}"}}\n`);
    let text = '';
    socket.on('data', (data) => (text += data));
    await until(() => text.includes('"id":2'));
    socket.pause();
    const filler = 'x'.repeat(60_000);
    // The kernel takes the first megabytes, and the rest waits in the server. Several at a time: a client that sleeps sends no pong.
    await until(async () => {
      await Promise.all(Array.from({ length: 5 }, () => server.api('publish', { channel, data: filler })));
      return Number((await server.metrics()).match(/touchline_queued_bytes (\d+)/)[1]) >= 200_000;
    });
    // short: it must expire, and so must a witness that is published after it.
    for (const to of [channel, 'history:witness']) await server.api('publish', { channel: to, data: 'stale', expires_in: 1 });
    await server.api('publish', { channel, data: 'lasting', expires_in: 600 });
    await until(async () => (await server.api('history', { channel: 'history:witness', limit: 1 })).result.publications.length === 0);
    await server.api('publish', { channel, data: 'last' });
    socket.resume();
    await until(() => text.includes('"last"'));
    assert.ok(text.includes('"lasting"'));
    assert.ok(!text.includes('"stale"'), 'it has expired meanwhile');
    socket.destroy();
  });
});
