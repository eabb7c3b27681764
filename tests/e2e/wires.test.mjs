// Clients without an SDK: curl, nc, the browser's own EventSource, and incorrect requests.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect } from 'node:net';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { EventSource } from 'eventsource';
import WebSocket from 'ws';
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
  async line(fits, seconds = 30) {
    let looked = 0;
    for (const end = Date.now() + seconds * 1000; Date.now() < end; await sleep(10)) {
      while (looked < this.lines.length) {
        const text = this.lines[looked++].replace(/^data: /, '');
        if (!text.startsWith('{')) continue;
        const value = JSON.parse(text);
        if (fits(value)) return value;
      }
    }
    throw new Error(`no such line among:\n${this.lines.join('\n')}`);
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
    test(`${name} by curl: every event at once, and less than half of the bytes`, { timeout: 120_000 }, async () => {
      const url = `${server.http}/connection/${path}`;
      const curl = new Program('curl', '-sN', '--compressed', ...words, url);
      const raw = spawn('curl', ['-sN', '-H', 'Accept-Encoding: br, gzip;q=0.5', ...words, url]);
      const plain = new Program('curl', '-sN', '-H', 'Accept-Encoding: br, gzip;q=0', ...words, url);
      let bytes = 0;
      raw.stdout.on('data', (data) => (bytes += data.length));
      for (const program of [curl, plain]) await program.line((push) => push.connect);
      for (const end = Date.now() + 30_000; bytes === 0 && Date.now() < end; ) await sleep(10);
      const connected = bytes;
      const data = { text: Array.from({ length: 40 }, (_, n) => `player ${n} of ${name}`) };
      await server.api('publish', { channel: 'history:gzip', data });
      for (const program of [curl, plain]) assert.deepEqual((await program.line((push) => push.pub)).pub.data, data);
      const length = JSON.stringify(data).length;
      for (const end = Date.now() + 30_000; bytes === connected && Date.now() < end; ) await sleep(10);
      assert.ok(bytes > connected && bytes - connected < length / 2, `${bytes - connected} of ${length}`);
      for (const program of [curl, plain]) program.stop();
      raw.kill();
    });
  }

  test('a client that names its encodings gets the chosen one in the head', { timeout: 120_000 }, async () => {
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
    test(`${name} by curl`, { timeout: 120_000 }, async () => {
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

  test('the EventSource of browsers, which comes back and recovers by hand', { timeout: 120_000 }, async () => {
    const listen = async (subs) => {
      const source = new EventSource(`${server.http}/connection/uni_sse?cf_connect=${encodeURIComponent(JSON.stringify({ subs }))}`);
      const messages = [];
      source.addEventListener('message', (event) => messages.push(JSON.parse(event.data)));
      for (const end = Date.now() + 30_000; messages.length === 0 && Date.now() < end; ) await sleep(10);
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

  test('WebSocket', { timeout: 120_000 }, async () => {
    const socket = new WebSocket(`ws://127.0.0.1:${server.port}/connection/uni_websocket`);
    await once(socket, 'open');
    const messages = [];
    socket.on('message', (data) => messages.push(JSON.parse(data)));
    socket.send(request(['history:uniws'], { sub: 'bob' }));
    for (const end = Date.now() + 30_000; messages.length < 1 && Date.now() < end; ) await sleep(10);
    await server.api('publish', { channel: 'history:uniws', data: 7 });
    for (const end = Date.now() + 30_000; messages.length < 2 && Date.now() < end; ) await sleep(10);
    assert.ok(messages[0].connect.client);
    assert.equal(messages[1].pub.data, 7);
    const closed = once(socket, 'close');
    await server.api('disconnect', { user: 'bob' });
    assert.equal((await closed)[0], 3503);
  });

  test('an error arrives at once', { timeout: 120_000 }, async () => {
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

  test('a page from elsewhere is let in by its origin', { timeout: 120_000 }, async () => {
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

  test('commands reach their session, and no other client can send to it', { timeout: 120_000 }, async () => {
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
    server = await Server.start({ change: { tcp: { enabled: true, address: '127.0.0.1', port, idle_timeout: '4s' }, client: { ping_interval: '2s', pong_timeout: '1500ms' } } });
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

  test('a device connects with its token, subscribes, hears and publishes', { timeout: 120_000 }, async () => {
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

  test('a person who types lines gets the expected form, and may try again', { timeout: 120_000 }, async () => {
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

  test('its program, version and transport are in the metrics', { timeout: 120_000 }, async () => {
    const device = nc();
    device.say({ id: 1, connect: { name: 'lamp', version: '1.2' } });
    await device.line((reply) => reply.connect);
    const metrics = async () => (await fetch(`${server.http}/metrics`)).text();
    assert.match(await metrics(), /touchline_client_connections\{client_name="lamp",client_version="1.2"\} 1\n/);
    assert.match(await metrics(), /touchline_transport_connections\{transport="tcp"\} [1-9]/);
    await device.end();
    for (const end = Date.now() + 30_000; !/client_version="1.2"\} 0\n/.test(await metrics()) && Date.now() < end; ) await sleep(20);
    assert.match(await metrics(), /client_name="lamp",client_version="1.2"\} 0\n/);
  });

  test('what breaks the protocol or a limit ends the connection with its number', { timeout: 120_000 }, async () => {
    for (const [line, code] of [[{ id: 1, subscribe: { channel: 'x' } }, 3501], [{ id: 1, connect: { token: 'forged' } }, 3500], ['x'.repeat(70_000), 3501]]) {
      const program = nc();
      program.say(line);
      assert.equal((await program.line((message) => message.push?.disconnect)).push.disconnect.code, code);
      await program.end();
    }
  });

  test('pings need no answer, but silence has an end', { timeout: 120_000 }, async () => {
    const [silent, awake] = [nc(), nc()];
    for (const program of [silent, awake]) program.say({ id: 1, connect: {} });
    const answers = setInterval(() => awake.say({}), 300);
    assert.deepEqual((await silent.line((message) => message.push?.disconnect)).push.disconnect, { code: 4000, reason: 'idle', reconnect: true });
    assert.ok(silent.lines.includes('{}'), 'it was pinged');
    await sleep(3_000);
    clearInterval(answers);
    assert.ok(!awake.lines.some((line) => line.includes('disconnect')), awake.lines.join('\n'));
  });

  test('a client that closes its side gets its replies first', { timeout: 120_000 }, async () => {
    const once = nc('-N');
    once.say({ id: 1, connect: {} });
    await once.end();
    await once.line((reply) => reply.connect);
  });
});

test('every transport may have pings of its own', { timeout: 120_000 }, async () => {
  const port = await freePort();
  const change = { client: { ping_interval: '20s', pong_timeout: '200ms' }, streams: { ping_interval: '30s' }, tcp: { enabled: true, address: '127.0.0.1', port, ping_interval: '500ms' } };
  const server = await Server.start({ change });
  const device = new Program('nc', '127.0.0.1', `${port}`);
  device.say({ id: 1, connect: {} });
  const stream = new Program('curl', '-sN', `${server.http}/connection/uni_http_stream`, '-d', '{"subs":{}}');
  assert.equal((await device.line((reply) => reply.connect)).connect.ping, 1, 'seconds, rounded up');
  assert.equal((await stream.line((push) => push.connect)).connect.ping, 30);
  for (const end = Date.now() + 30_000; device.lines.filter((line) => line === '{}').length < 3 && Date.now() < end; ) await sleep(20);
  assert.ok(device.lines.filter((line) => line === '{}').length >= 3, device.lines.join('\n'));
  assert.ok(!stream.lines.includes('{}'));
  for (const program of [device, stream]) program.stop();
  assert.equal(await server.stop(), 0);
});

describe('a client that sends more than it may', () => {
  test('is read more slowly: nothing is lost, and neighbours are served', { timeout: 180_000 }, async (t) => {
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
    const began = Date.now();
    for (let id = 2; id < count + 2; id += 1) noisy.say({ id, rpc: { method: 'none' } });
    neighbour.say({ id: 2, rpc: { method: 'none' } });
    assert.equal((await neighbour.line((reply) => reply.id === 2)).error.code, 108);
    assert.ok(noisy.lines.length < count, 'the neighbour has not waited for it');
    await noisy.line((reply) => reply.id === count + 1, 90);
    assert.ok(Date.now() - began > 4_000, `its rate is a rate: ${Date.now() - began} ms`);
    const ids = noisy.lines.map((line) => JSON.parse(line).id).filter((id) => id > 1);
    assert.deepEqual(ids, Array.from({ length: count }, (_, n) => n + 2), 'all, and in order');
    assert.match(await (await fetch(`${server.http}/metrics`)).text(), /touchline_throttled_total [1-9]/);
  });

  test('over emulation gets the time to come back', { timeout: 120_000 }, async (t) => {
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

  test('are neither recovered nor in the history', { timeout: 120_000 }, async () => {
    const channel = 'history:expiring';
    const { result: first } = await server.api('publish', { channel, data: 'first' });
    await server.api('publish', { channel, data: 'stale', expires_in: 5 });
    await server.api('publish', { channel, data: 'fresh', expires_in: 60 });
    const recover = async () => {
      const program = new Program('nc', '127.0.0.1', `${port}`);
      program.say({ id: 1, connect: {} }, { id: 2, subscribe: { channel, recover: true, ...first } });
      const { subscribe } = await program.line((reply) => reply.subscribe);
      program.stop();
      return [subscribe.recovered, subscribe.publications.map((p) => p.data)];
    };
    assert.deepEqual(await recover(), [true, ['stale', 'fresh']]);
    await sleep(5_200);
    assert.deepEqual(await recover(), [true, ['fresh']]);
    const { result } = await server.api('history', { channel, limit: 10 });
    assert.deepEqual([result.publications.map((p) => p.data), result.offset], [['first', 'fresh'], 3]);
  });

  test('are not given to a client that sleeps while they wait for it', { timeout: 120_000 }, async () => {
    const channel = 'news-expiring';
    const socket = connect(port, '127.0.0.1');
    socket.write(`{"id":1,"connect":{}}\n{"id":2,"subscribe":{"channel":"${channel}"}}\n`);
    let text = '';
    socket.on('data', (data) => (text += data));
    for (const end = Date.now() + 30_000; !text.includes('"id":2') && Date.now() < end; ) await sleep(10);
    socket.pause();
    const queued = async () => Number((await (await fetch(`${server.http}/metrics`)).text()).match(/touchline_queued_bytes (\d+)/)[1]);
    const filler = 'x'.repeat(60_000);
    for (let n = 0; n < 400 && (await queued()) < 200_000; n += 1) await server.api('publish', { channel, data: filler });
    await server.api('publish', { channel, data: 'stale', expires_in: 1 });
    await server.api('publish', { channel, data: 'lasting', expires_in: 60 });
    await sleep(1_300);
    await server.api('publish', { channel, data: 'last' });
    socket.resume();
    for (const end = Date.now() + 30_000; !text.includes('"last"') && Date.now() < end; ) await sleep(20);
    assert.ok(text.includes('"lasting"') && text.includes('"last"'));
    assert.ok(!text.includes('"stale"'), 'it has expired meanwhile');
    socket.destroy();
  });
});
