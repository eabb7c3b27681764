// The scenarios of the tests in Node, in a real browser. TOUCHLINE_FULL=1 runs all scenarios over each transport.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer, request } from 'node:http';
import { after, before, describe, test } from 'node:test';
import Socket from 'ws';
import { launch } from './browser.mjs';
import { LIMIT, PATIENCE } from './patience.mjs';
import { scenarios, SHORT } from './scenarios.mjs';
import { COMPRESSED, Server, token } from './server.mjs';

const files = {
  '/': ['text/html', () => '<!doctype html><title>scenarios</title><script src="/centrifuge.js"></script>'],
  '/centrifuge.js': ['text/javascript', () => readFileSync(new URL('node_modules/centrifuge/dist/centrifuge.js', import.meta.url))],
  '/centrifuge.protobuf.js': ['text/javascript', () => readFileSync(new URL('node_modules/centrifuge/dist/centrifuge.protobuf.js', import.meta.url))],
  '/protobuf': ['text/html', () => '<!doctype html><title>scenarios</title><script src="/centrifuge.protobuf.js"></script>'],
  '/scenarios.mjs': ['text/javascript', () => readFileSync(new URL('scenarios.mjs', import.meta.url))],
  '/patience.mjs': ['text/javascript', () => readFileSync(new URL('patience.mjs', import.meta.url))],
  '/payloads.mjs': ['text/javascript', () => readFileSync(new URL('payloads.mjs', import.meta.url))],
};

const ways = [
  ['WebSocket', '/', 'websocket'],
  ['WebSocket, Protobuf', '/protobuf', 'websocket'],
  ['HTTP streaming', '/', 'http_stream'],
  ['HTTP streaming, Protobuf', '/protobuf', 'http_stream'],
  ['server-sent events', '/', 'sse'],
  ['HTTP streaming, compressed', '/', 'http_stream', true],
  ['server-sent events, compressed', '/', 'sse', true],
];

/** A proxy in front of the server that lets only some transports through. */
async function blocking(server, blocked) {
  const to = (incoming) => request({ host: '127.0.0.1', port: server.port, path: incoming.url, method: incoming.method, headers: incoming.headers });
  const proxy = createServer((incoming, response) => {
    if (blocked.some((transport) => incoming.url.startsWith(`/connection/${transport}`))) return response.writeHead(403).end('blocked');
    const onward = to(incoming).on('response', (answer) => {
      response.writeHead(answer.statusCode, answer.headers);
      answer.pipe(response);
    }).on('error', () => response.destroy());
    response.on('close', () => onward.destroy());
    incoming.pipe(onward);
  });
  proxy.on('upgrade', (incoming, socket, head) => {
    if (blocked.includes('websocket')) return socket.end('HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n');
    to(incoming).on('upgrade', (answer, onward, early) => {
      const lines = Object.entries(answer.headers).map(([name, value]) => `${name}: ${value}\r\n`);
      socket.write(`HTTP/1.1 101 Switching Protocols\r\n${lines.join('')}\r\n`);
      onward.write(head);
      socket.write(early);
      onward.pipe(socket).pipe(onward);
      for (const end of [onward, socket]) end.on('error', () => { onward.destroy(); socket.destroy(); });
    }).end();
  });
  await new Promise((resolve) => proxy.listen(0, '127.0.0.1', resolve));
  return proxy;
}

describe('centrifuge-js in Chromium', () => {
  let server, compressing, pages, browser;
  before(async () => {
    server = await Server.start();
    compressing = await Server.start({ change: { streams: COMPRESSED } });
    pages = createServer((request, response) => {
      const [type, body] = files[request.url] ?? ['text/plain', () => ''];
      response.writeHead(200, { 'content-type': type }).end(body());
    });
    await new Promise((resolve) => pages.listen(0, '127.0.0.1', resolve));
    browser = await launch();
  });
  after(async () => {
    await browser?.close();
    pages?.close();
    await server?.stop();
    await compressing?.stop();
  });

  /** A page that can request tokens, call the server API and compare values. */
  const open = async (server, path) => {
    const page = await browser.newPage();
    await page.exposeFunction('token', token);
    await page.exposeFunction('api', (method, body) => server.api(method, body));
    await page.exposeFunction('equal', (found, expected) => {
      try { assert.deepEqual(found, expected); return null; } catch (error) { return error.message; }
    });
    await page.goto(`http://127.0.0.1:${pages.address().port}${path}`);
    return page;
  };

  /** Runs a scenario in a page, and ends its clients: a browser allows few connections to one server. */
  const inPage = async ([name, transport, endpoint, emulationEndpoint, timeout]) => {
    const { scenarios } = await import('/scenarios.mjs');
    const { withJsonPayloads } = await import('/payloads.mjs');
    const [clients, pending] = [[], []];
    const equal = (found, expected) => pending.push(window.equal(JSON.parse(JSON.stringify(found)), expected));
    const client = (options = {}) => {
      clients.push(withJsonPayloads(new Centrifuge([{ transport, endpoint }], { emulationEndpoint, timeout, ...options })));
      return clients.at(-1);
    };
    try {
      await scenarios[name]({ client, token: window.token, api: window.api, equal });
    } finally {
      clients.forEach((client) => client.disconnect());
    }
    const failures = (await Promise.all(pending)).filter(Boolean);
    if (failures.length) throw new Error(failures.join('\n'));
  };

  // One page for each transport: opening a page takes longer than most scenarios.
  describe('the scenarios', { concurrency: 3 }, () => {
    // Without TOUCHLINE_FULL: both encodings over WebSocket, and one transport with emulation.
    for (const [way, path, transport, isCompressed] of ways.filter((_, at) => process.env.TOUCHLINE_FULL || [0, 1, 4].includes(at))) {
      describe(way, { concurrency: 1 }, () => {
        let page, of;
        before(async () => {
          of = isCompressed ? compressing : server;
          page = await open(of, path);
        });
        after(() => page?.close());
        for (const name of process.env.TOUCHLINE_FULL ? Object.keys(scenarios) : SHORT) {
          test(name, LIMIT, async () => {
            const endpoint = transport === 'websocket' ? of.websocket : `${of.http}/connection/${transport}`;
            await page.evaluate(inPage, [name, transport, endpoint, `${of.http}/emulation`, PATIENCE]);
          });
        }
      });
    }
  });

  test('falls back from one transport to the next when a proxy blocks it', LIMIT, async () => {
    for (const [blocked, expected] of [[[], 'websocket'], [['websocket'], 'http_stream'], [['websocket', 'http_stream'], 'sse']]) {
      const proxy = await blocking(server, blocked);
      const at = `127.0.0.1:${proxy.address().port}`;
      const page = await open(server, '/');
      const found = await page.evaluate(async ([at]) => {
        const transports = [['websocket', `ws://${at}/connection/websocket`], ['http_stream', `http://${at}/connection/http_stream`], ['sse', `http://${at}/connection/sse`]];
        const client = new Centrifuge(transports.map(([transport, endpoint]) => ({ transport, endpoint })), { emulationEndpoint: `http://${at}/emulation`, minReconnectDelay: 10 });
        const connected = new Promise((resolve) => client.on('connected', resolve));
        const subscription = client.newSubscription('history:fallback');
        const heard = new Promise((resolve) => subscription.on('publication', (event) => resolve(event.data)));
        subscription.subscribe();
        client.connect();
        const { transport } = await connected;
        await subscription.ready();
        await window.api('publish', { channel: 'history:fallback', data: 'through' });
        const data = await heard;
        client.disconnect();
        return [transport, data];
      }, [at]);
      await page.close();
      proxy.closeAllConnections();
      proxy.close();
      assert.deepEqual(found, [expected, 'through'], `without ${blocked}`);
    }
  });

  test('a page from a foreign origin is refused', LIMIT, async () => {
    const strict = await Server.start({ change: { client: { allowed_origins: ['https://example.com'] } } });
    const page = await browser.newPage();
    await page.goto(`http://127.0.0.1:${pages.address().port}/`);
    const outcome = (url) => page.evaluate((url) => new Promise((resolve) => {
      const socket = new WebSocket(url);
      socket.onopen = () => resolve('open');
      socket.onerror = () => resolve('refused');
    }), url);
    assert.deepEqual([await outcome(server.websocket), await outcome(strict.websocket)], ['open', 'refused'], 'the same page is let in where its origin is allowed');
    await page.close();
    const allowed = new Socket(strict.websocket, { origin: 'https://example.com' });
    await once(allowed, 'open');
    allowed.terminate();
    await strict.stop();
  });
});
