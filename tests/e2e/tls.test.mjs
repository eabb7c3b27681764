// TLS on every port, certificates that change, certificates of clients, and HTTP/2 with all transports in its streams.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import http2 from 'node:http2';
import https from 'node:https';
import { after, before, describe, test } from 'node:test';
import tls from 'node:tls';
import { Centrifuge } from 'centrifuge';
import WebSocket from 'ws';
import { Authority } from './certificates.mjs';
import { LIMIT, PATIENCE, until } from './patience.mjs';
import { spawn } from './processes.mjs';
import { freePort, KEY, Server, token } from './server.mjs';

const authority = new Authority();
after(() => authority.destroy());

async function secured(change = {}) {
  authority.issue('server', '/O=Touchline/CN=first');
  const files = { enabled: true, cert_pem: authority.path('server.pem'), key_pem: authority.path('server.key') };
  const tcp_port = await freePort();
  const port = await freePort();
  const server = await Server.start({
    port,
    change: {
      http_server: { tls: { ...files, client_ca_pem: authority.path('ca.pem'), client_user: 'common_name', ...change } },
      tcp: { enabled: true, address: '127.0.0.1', port: tcp_port, tls: files },
    },
    ready: () => new Promise((resolve, reject) => {
      const socket = tls.connect({ port, host: '127.0.0.1', rejectUnauthorized: false }, () => { socket.destroy(); resolve(true); }).once('error', reject);
    }),
  });
  return Object.assign(server, { tcp_port });
}

const request = (server, options, body) => new Promise((resolve, reject) => {
  const asked = https.request({ host: 'localhost', port: server.port, ca: authority.ca, agent: false, ...options }, (response) => {
    let text = '';
    response.on('data', (data) => (text += data)).once('end', () => resolve({ status: response.statusCode, text, subject: response.socket.getPeerCertificate().subject }));
  });
  asked.once('error', reject).end(body);
});
const ask = (server, method, body) => request(server, { method: 'POST', path: `/api/${method}`, headers: { 'x-api-key': KEY } }, JSON.stringify(body));
const publish = (server, channel, data) => ask(server, 'publish', { channel, data });

describe('TLS', () => {
  let server;
  const clients = [];
  before(async () => { server = await secured(); });
  after(async () => {
    for (const client of clients) client.disconnect();
    assert.equal(await server.stop(), 0);
  });

  const fan = async (channel, options = {}) => {
    class Secure extends WebSocket { constructor(url, protocols) { super(url, protocols, { ca: authority.ca, ...options }); } }
    const client = new Centrifuge(`wss://localhost:${server.port}/connection/websocket`, { websocket: Secure, timeout: PATIENCE, minReconnectDelay: 10 });
    clients.push(client);
    const subscription = client.newSubscription(channel);
    const seen = [];
    subscription.on('publication', (event) => seen.push(event.data));
    subscription.subscribe();
    client.connect();
    await subscription.ready(PATIENCE);
    return { client, subscription, seen };
  };
  const arrives = async (seen, count) => {
    await until(() => seen.length >= count);
    assert.equal(seen.length, count);
  };

  test('WebSocket, and large messages both ways', LIMIT, async () => {
    const { subscription, seen } = await fan('history:tls');
    const large = 'x'.repeat(60_000);
    await subscription.publish(large);
    for (let n = 0; n < 40; n += 1) await publish(server, 'history:tls', large);
    await arrives(seen, 41);
    assert.ok(seen.every((data) => data === large));
  });

  test("a client's certificate is its user", LIMIT, async () => {
    const lamp = await fan('room:tls', authority.issue('lamp', '/O=Lamps/CN=lamp-7'));
    const presence = await lamp.subscription.presence();
    assert.deepEqual(Object.values(presence.clients).map((info) => info.user), ['lamp-7']);
  });

  test("a certificate of somebody else's authority is refused", LIMIT, async () => {
    const others = new Authority();
    await assert.rejects(request(server, { path: '/health', ...others.issue('eve', '/CN=lamp-7') }));
    others.destroy();
  });

  test('lines over TCP', LIMIT, async () => {
    const socket = tls.connect({ port: server.tcp_port, host: '127.0.0.1', ca: authority.ca });
    let text = '';
    socket.on('data', (data) => (text += data));
    socket.write('{"id":1,"connect":{}}\n{"id":2,"subscribe":{"channel":"news-tls"}}\n');
    await until(() => text.includes('"subscribe"'));
    await publish(server, 'news-tls', { n: 1 });
    await until(() => text.includes('"pub"'));
    assert.match(text, /"pub":\{"data":\{"n":1\}\}/);
    socket.destroy();
  });

  test('certificates are read again when they change, and connections stay', LIMIT, async () => {
    const { seen } = await fan('history:reload');
    assert.equal((await request(server, { path: '/health' })).subject.CN, 'first');
    authority.issue('server', '/O=Touchline/CN=second');
    await until(async () => (await request(server, { path: '/health' })).subject.CN === 'second', 'the second certificate');
    await publish(server, 'history:reload', 1);
    await arrives(seen, 1);
  });

  test('an endless answer that ends says goodbye', LIMIT, async () => {
    // Python's library distinguishes an orderly end from a cut link.
    const script = `
import socket, ssl, sys
context = ssl.create_default_context(cafile=sys.argv[1])
link = context.wrap_socket(socket.create_connection(("127.0.0.1", int(sys.argv[2]))), server_hostname="localhost", suppress_ragged_eofs=False)
link.sendall(f"GET /connection/uni_sse?cf_connect={sys.argv[3]} HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n".encode())
while part := link.recv(4096):
    print(part.decode(), flush=True)
`;
    const request = encodeURIComponent(JSON.stringify({ token: token({ sub: 'leaver' }) }));
    const listener = spawn('python3', ['-c', script, authority.path('ca.pem'), `${server.port}`, request]);
    let text = '';
    for (const stream of [listener.stdout, listener.stderr]) stream.on('data', (data) => (text += data));
    await until(() => text.includes('"connect"'));
    await ask(server, 'disconnect', { user: 'leaver' });
    assert.deepEqual(await once(listener, 'exit'), [0, null], text);
    assert.match(text, /"code":3503/);
  });

  test('plain HTTP on such a port is refused, without an effect on other clients', LIMIT, async () => {
    await assert.rejects(fetch(`http://127.0.0.1:${server.port}/health`));
    assert.equal((await request(server, { path: '/health' })).status, 200);
  });

  test('a port may demand certificates', LIMIT, async () => {
    const strict = await secured({ client_auth: 'require' });
    await assert.rejects(request(strict, { path: '/health' }));
    assert.equal((await request(strict, { path: '/health', ...authority.issue('ann', '/CN=ann') })).status, 200);
    await strict.stop();
  });
});

describe('HTTP/2', () => {
  let server, plain;
  before(async () => { [server, plain] = await Promise.all([secured(), Server.start()]); });
  after(async () => assert.deepEqual(await Promise.all([server.stop(), plain.stop()]), [0, 0]));

  /** Sends a request and collects the answer. */
  const open = (session, headers, body) => {
    const stream = session.request(headers, { endStream: false });
    const got = { stream, text: '', headers: once(stream, 'response').then(([headers]) => headers) };
    stream.on('data', (data) => (got.text += data));
    got.has = async (text) => {
      await until(() => got.text.includes(text));
      assert.ok(got.text.includes(text), `${text} in ${got.text}`);
    };
    if (body !== null) stream.end(body);
    return got;
  };
  const sessions = () => [
    ['TLS', () => http2.connect(`https://localhost:${server.port}`, { ca: authority.ca })],
    ['plain text', () => http2.connect(`http://127.0.0.1:${plain.port}`)],
  ];

  test('every transport shares one socket', LIMIT, async () => {
    for (const [name, start] of sessions()) {
      const session = start();
      await once(session, 'remoteSettings');
      assert.equal(session.remoteSettings.enableConnectProtocol, true, name);
      const sse = open(session, { ':path': `/connection/uni_sse?cf_connect=${encodeURIComponent('{"subs":{"history:h2":{}}}')}` });
      assert.equal((await sse.headers)['content-type'], 'text/event-stream; charset=utf-8');
      await sse.has('"connect"');
      const stream = open(session, { ':method': 'POST', ':path': '/connection/http_stream' }, '{"id":1,"connect":{}}');
      await stream.has('"session"');
      const { connect } = JSON.parse(stream.text.split('\n')[0]);
      const emulated = open(session, { ':method': 'POST', ':path': '/emulation' }, JSON.stringify({ session: connect.session, node: connect.node, data: '{"id":2,"subscribe":{"channel":"history:h2"}}' }));
      assert.equal((await emulated.headers)[':status'], 204);
      await stream.has('"id":2');

      const socket = open(session, { ':method': 'CONNECT', ':protocol': 'websocket', ':path': '/connection/websocket', 'sec-websocket-version': '13', 'sec-websocket-protocol': 'centrifuge-json' }, null);
      const accepted = await socket.headers;
      assert.deepEqual([accepted[':status'], accepted['sec-websocket-protocol']], [200, 'centrifuge-json']);
      const say = (text) => socket.stream.write(Buffer.concat([Buffer.from([0x81, 0x80 | text.length, 0, 0, 0, 0]), Buffer.from(text)]));
      say('{"id":1,"connect":{}}');
      say('{"id":2,"subscribe":{"channel":"history:h2"}}');
      await socket.has('"id":2');

      const answer = open(session, { ':method': 'POST', ':path': '/api/publish', 'x-api-key': KEY }, JSON.stringify({ channel: 'history:h2', data: { over: name } }));
      await answer.has('"offset"');
      for (const listener of [sse, stream, socket]) await listener.has(`"over":"${name}"`);
      assert.equal((await open(session, { ':path': '/nothing' }).headers)[':status'], 404);
      session.destroy();
    }
  });

  test('a reset stream ends its client and no other', LIMIT, async () => {
    const session = sessions()[1][1]();
    const connect = `/connection/uni_sse?cf_connect=${encodeURIComponent('{"subs":{"room:h2":{}}}')}`;
    const [first, second] = [open(session, { ':path': connect }), open(session, { ':path': connect })];
    await first.has('"connect"');
    await second.has('"connect"');
    first.stream.close(http2.constants.NGHTTP2_CANCEL);
    await second.has('"leave"');
    const { result } = await plain.api('presence_stats', { channel: 'room:h2' });
    assert.equal(result.num_clients, 1);
    session.destroy();
  });
});
