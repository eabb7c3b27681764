// A real nginx in front of the server, with common but unsuitable settings: buffering on and off, HTTP/1.0 to the server, idle timeouts.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { Centrifuge } from 'centrifuge';
import { EventSource } from 'eventsource';
import WebSocket from 'ws';
import { LIMIT, PATIENCE, until } from './patience.mjs';
import { spawn } from './processes.mjs';
import { scenarios } from './scenarios.mjs';
import { freePort, Server, token } from './server.mjs';

const nginx = ['/usr/sbin/nginx', '/usr/bin/nginx', 'nginx'].find((path) => {
  try { execFileSync(path, ['-v'], { stdio: 'ignore' }); return true; } catch { return false; }
});
/** The module that forwards TCP connections. Debian has it in a separate package. */
const STREAM = '/usr/lib/nginx/modules/ngx_stream_module.so';
const CHOSEN = ['recovers exactly what it missed', 'publishes with its own name on it', 'follows a state by its changes', 'ends for good on a final code and comes back on any other'];

/** nginx in front of a server, with additional settings for all forwarded requests. */
function proxy(server, settings) {
  return serve(`
    location /connection/websocket {
      proxy_pass http://127.0.0.1:${server.port};
      proxy_http_version 1.1;
      proxy_set_header Upgrade $http_upgrade;
      proxy_set_header Connection $connection_upgrade;
      proxy_set_header Host $http_host;
      ${settings}
    }
    location / {
      proxy_pass http://127.0.0.1:${server.port};
      proxy_set_header Host $http_host;
      ${settings}
    }`);
}

/** nginx in front of a server, as in the page on security. */
function documented(server) {
  const page = readFileSync(new URL('../../docs/guides/security.md', import.meta.url), 'utf8');
  const [, block] = page.match(/```nginx\n([^`]*)```/);
  assert.ok(block.includes('127.0.0.1:8000'), block);
  return serve(`${block.replace('127.0.0.1:8000', `127.0.0.1:${server.port}`)} location / { proxy_pass http://127.0.0.1:${server.port}; }`);
}

/** nginx in front of a server, with the whole file of the page on proxies. */
async function site(server) {
  const page = readFileSync(new URL('../../docs/guides/proxy.md', import.meta.url), 'utf8');
  const [, block] = page.match(/```nginx\n([^`]*)```/);
  assert.ok(block.includes('server 127.0.0.1:8000;') && block.includes('listen 80;'), block);
  const port = await freePort();
  return start(port, block.replace('127.0.0.1:8000', `127.0.0.1:${server.port}`).replace('listen 80;', `listen 127.0.0.1:${port};`));
}

/** Starts nginx with a server block for HTTP. */
async function serve(locations) {
  const port = await freePort();
  return start(port, `
    map $http_upgrade $connection_upgrade { default upgrade; '' close; }
    server {
      listen 127.0.0.1:${port};
      ${locations}
    }`);
}

async function start(port, servers) {
  const directory = mkdtempSync(join(tmpdir(), 'touchline-nginx-'));
  const file = join(directory, 'nginx.conf');
  writeFileSync(file, `
    daemon off; master_process off; pid ${directory}/pid; error_log stderr warn;
    events { worker_connections 256; }
    http {
      access_log off;
      ${['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map((kind) => `${kind}_temp_path ${directory}/${kind};`).join(' ')}
      ${servers}
    }`);
  return run(directory, file, port);
}

/** nginx that forwards connections to a server, and sends the client's address with the PROXY protocol. */
async function relay(server) {
  const directory = mkdtempSync(join(tmpdir(), 'touchline-nginx-'));
  const port = await freePort();
  const file = join(directory, 'nginx.conf');
  writeFileSync(file, `
    load_module ${STREAM};
    daemon off; master_process off; pid ${directory}/pid; error_log stderr warn;
    events { worker_connections 256; }
    stream { server { listen 127.0.0.1:${port}; proxy_pass 127.0.0.1:${server.port}; proxy_protocol on; } }`);
  return run(directory, file, port);
}

/** WebSockets from other addresses of this machine that claim the address of another client. */
function visitors(port) {
  const sockets = [];
  const status = (localAddress, forged, more = {}) => new Promise((resolve, reject) => {
    const socket = new WebSocket(`ws://127.0.0.1:${port}/connection/websocket`, { localAddress, headers: { 'X-Forwarded-For': forged, ...more } });
    sockets.push(socket);
    socket.once('open', () => resolve(101));
    socket.once('unexpected-response', (request, response) => { request.destroy(); resolve(response.statusCode); });
    socket.on('error', reject);
  });
  return { status, end: () => sockets.forEach((socket) => socket.terminate()) };
}

async function run(directory, file, port) {
  const process = spawn(nginx, ['-c', file, '-e', 'stderr'], { stdio: ['ignore', 'ignore', 'pipe'] });
  let output = '';
  process.stderr.on('data', (data) => (output += data));
  const exit = new Promise((resolve) => process.once('exit', resolve));
  await until(() => fetch(`http://127.0.0.1:${port}/health`), () => output);
  return { port, stop: async () => { process.kill('SIGTERM'); await exit; rmSync(directory, { recursive: true, force: true }); } };
}

describe('behind nginx', () => {
  let server;
  const clients = [];
  before(async () => {
    assert.ok(nginx, 'the tests need nginx (Debian package nginx)');
    // short: the pings must be more frequent than the 5 s of nginx.
    server = await Server.start({ change: { client: { ping_interval: '1500ms', pong_timeout: '1400ms' } } });
  });
  after(async () => {
    for (const client of clients) client.disconnect();
    assert.equal(await server.stop(), 0);
  });
  const made = (port, transport, options = {}) => {
    const endpoint = transport === 'websocket' ? `ws://127.0.0.1:${port}/connection/websocket` : `http://127.0.0.1:${port}/connection/${transport}`;
    const client = new Centrifuge([{ transport, endpoint }], {
      websocket: WebSocket, eventsource: EventSource, fetch, readableStream: ReadableStream, emulationEndpoint: `http://127.0.0.1:${port}/emulation`, ...options,
    });
    clients.push(client);
    return client;
  };

  for (const [name, settings] of [['buffering', ''], ['not buffering', 'proxy_buffering off;']]) {
    for (const transport of ['websocket', 'http_stream', 'sse']) {
      test(`${transport}, ${name}`, LIMIT, async () => {
        const front = await proxy(server, settings);
        for (const scenario of CHOSEN) {
          await scenarios[scenario]({ client: (options) => made(front.port, transport, options), token, api: (method, body) => server.api(method, body), equal: assert.deepEqual });
        }
        await front.stop();
      });
    }
  }

  test('an idle timeout shorter than the pings: clients come back and miss nothing', LIMIT, async () => {
    const slow = await Server.start({ change: { client: { ping_interval: '25s' } } });
    const front = await proxy(slow, 'proxy_read_timeout 1s;');
    await Promise.all(['websocket', 'http_stream', 'sse'].map(async (transport) => {
      const client = made(front.port, transport, { minReconnectDelay: 10, maxReconnectDelay: 50 });
      const subscription = client.newSubscription(`history:idle-${transport}`);
      const seen = [];
      let connects = 0;
      client.on('connected', () => (connects += 1));
      subscription.on('publication', (event) => seen.push(event.data));
      subscription.subscribe();
      client.connect();
      await subscription.ready(PATIENCE);
      for (let n = 1; n <= 4; n += 1) {
        const before = connects;
        await until(() => connects > before, `${transport}: nginx ends connection ${n}`);
        await slow.api('publish', { channel: `history:idle-${transport}`, data: n });
      }
      await until(() => seen.length >= 4);
      assert.deepEqual(seen, [1, 2, 3, 4], transport);
      client.disconnect();
    }));
    await front.stop();
    await slow.stop();
  });

  test('pings keep a quiet connection open', LIMIT, async () => {
    const front = await proxy(server, 'proxy_read_timeout 5s;');
    await Promise.all(['websocket', 'http_stream', 'sse'].map(async (transport) => {
      const client = made(front.port, transport);
      let connects = 0;
      client.on('connected', () => (connects += 1));
      client.connect();
      await client.ready(PATIENCE);
      // waits: longer than nginx keeps a quiet connection.
      await sleep(8_000);
      assert.deepEqual([client.state, connects], ['connected', 1], transport);
      client.disconnect();
    }));
    await front.stop();
  });

  test('as the page on security has it, nothing that clients write of themselves counts', LIMIT, async () => {
    const limited = await Server.start({ change: { http_server: { trusted_proxies: ['127.0.0.1'] }, client: { connection_limit_by_address: 1 } } });
    const front = await documented(limited);
    const { status, end } = visitors(front.port);
    assert.equal(await status('127.0.0.2', '127.0.0.1', { Forwarded: 'for=203.0.113.1' }), 101);
    assert.equal(await status('127.0.0.2', '203.0.113.2', { Forwarded: 'for=203.0.113.3' }), 429);
    assert.equal(await status('127.0.0.3', '203.0.113.1'), 101);
    end();
    await front.stop();
    await limited.stop();
  });

  test('by the page on proxies: every transport, pages of the own host, and nothing that is not for clients', LIMIT, async () => {
    const strict = await Server.start({ change: { http_server: { trusted_proxies: ['127.0.0.1'] }, client: { allowed_origins: [] } } });
    const front = await site(strict);
    for (const path of ['/api/info', '/metrics', '/health', '/', '/emulation/x']) {
      assert.equal((await fetch(`http://127.0.0.1:${front.port}${path}`)).status, 404, path);
    }
    // A page from the address of nginx is a page of the server's own host.
    const own = `http://127.0.0.1:${front.port}`;
    const { status, end } = visitors(front.port);
    assert.equal(await status('127.0.0.2', '203.0.113.1', { Origin: own }), 101);
    assert.equal(await status('127.0.0.2', '203.0.113.1', { Origin: 'http://127.0.0.1' }), 403);
    end();
    const posted = (path, body) => fetch(`${own}${path}`, { method: 'POST', headers: { Origin: own }, body });
    const stream = await posted('/connection/http_stream', '{"id":1,"connect":{}}');
    assert.equal(stream.status, 200);
    await stream.body.cancel();
    assert.doesNotMatch(await (await posted('/emulation', '{}')).text(), /nginx/, 'it reaches the server');
    for (const transport of ['websocket', 'http_stream', 'sse']) {
      await scenarios[CHOSEN[0]]({ client: (options) => made(front.port, transport, options), token, api: (method, body) => strict.api(method, body), equal: assert.deepEqual });
    }
    await front.stop();
    await strict.stop();
  });

  test('limits apply to the address that nginx sends by the PROXY protocol', LIMIT, async () => {
    const change = { http_server: { trusted_proxies: ['127.0.0.1'], proxy_protocol: true }, client: { connection_limit_by_address: 1 } };
    const port = await freePort();
    const listens = () => new Promise((resolve, reject) => { const socket = connect(port, '127.0.0.1', () => { socket.destroy(); resolve(true); }).once('error', reject); });
    const limited = await Server.start({ change, port, ready: listens });
    const front = await relay(limited);
    const { status, end } = visitors(front.port);
    assert.equal(await status('127.0.0.2', '203.0.113.1'), 101);
    assert.equal(await status('127.0.0.2', '203.0.113.2'), 429);
    assert.equal(await status('127.0.0.3', '203.0.113.1'), 101);
    end();
    await front.stop();
    await limited.stop();
  });
});
