// The things that users of Centrifugo already have: keys in the configuration, signals, the settings of the usual Helm chart, requests of
// server libraries, and event streams that are read by every parser in use.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import tls from 'node:tls';
import { Centrifuge } from 'centrifuge';
import { EventSource as EventSource4 } from 'eventsource';
import EventSource2 from 'eventsource2';
import { EventSource as EventSource3 } from 'eventsource3';
import WebSocket from 'ws';
import { Authority } from './certificates.mjs';
import { LIMIT, PATIENCE, until } from './patience.mjs';
import { freePort, KEY, Server } from './server.mjs';

describe('keys in the configuration', () => {
  const authority = new Authority();
  after(() => authority.destroy());
  const { cert, key } = authority.issue('server', '/O=Touchline/CN=inline');
  const packed = (text) => Buffer.from(text).toString('base64');
  const subject = (port) => new Promise((resolve, reject) => {
    const socket = tls.connect({ port, host: '127.0.0.1', servername: 'localhost', ca: authority.ca }, () => { resolve(socket.getPeerCertificate().subject.CN); socket.destroy(); });
    socket.once('error', reject);
  });

  for (const [name, form] of [['as they are', String], ['in base64', packed]]) {
    test(`certificates are read ${name}`, async () => {
      const port = await freePort();
      const pem = { enabled: true, cert_pem: form(cert.toString()), key_pem: form(key.toString()), client_ca_pem: form(authority.ca.toString()) };
      const server = await Server.start({ port, change: { http_server: { tls: pem } }, ready: async () => (await subject(port)) === 'inline' });
      assert.ok(!server.output.includes(key.toString().split('\n')[1]), 'the key is not shown');
      assert.equal(await server.stop(), 0);
    });
  }
});

describe('signals and ports', () => {
  test('the internal port of the usual chart takes its probes and its backends', async () => {
    const [inner, grpc] = [await freePort(), await freePort()];
    const server = await Server.start({
      args: (port) => ['serve', '--health.enabled', '--prometheus.enabled', '--http_server.port', `${port}`, '--http_server.internal_port', `${inner}`,
        '--grpc_api.enabled', '--grpc_api.port', `${grpc}`, '--http_api.key', KEY, '--client.allow_anonymous_connect_without_token', '--http_server.address=127.0.0.1'],
      ready: async () => (await fetch(`http://127.0.0.1:${inner}/health`)).ok,
    });
    const status = async (port, path) => (await fetch(`http://127.0.0.1:${port}${path}`, { method: path.startsWith('/api') ? 'POST' : 'GET', headers: { 'X-API-Key': KEY }, ...(path.startsWith('/api') && { body: '{}' }) })).status;
    for (const path of ['/health', '/livez', '/readyz', '/metrics', '/api/info']) {
      assert.deepEqual([await status(inner, path), await status(server.port, path)], [200, 404], path);
    }
    const client = new Centrifuge(server.websocket, { websocket: WebSocket });
    client.connect();
    await client.ready(PATIENCE);
    client.disconnect();
    assert.equal(await server.stop(), 0);
  });
});

describe('event streams', () => {
  let server;
  before(async () => { server = await Server.start(); });
  after(async () => assert.equal(await server.stop(), 0));

  for (const [version, EventSource] of [[2, EventSource2], [3, EventSource3], [4, EventSource4]]) {
    test(`eventsource ${version} hears every event`, LIMIT, async () => {
      const client = new Centrifuge([{ transport: 'sse', endpoint: `${server.http}/connection/sse` }], { eventsource: EventSource, fetch, emulationEndpoint: `${server.http}/emulation` });
      const subscription = client.newSubscription(`history:sse${version}`);
      const heard = [];
      subscription.on('publication', ({ data }) => heard.push(data));
      subscription.subscribe();
      client.connect();
      await subscription.ready(PATIENCE);
      await server.api('publish', { channel: `history:sse${version}`, data: 'ü' });
      await until(() => heard.length > 0);
      assert.deepEqual(heard, ['ü']);
      client.disconnect();
    });

    test(`eventsource ${version} that only listens hears the connect`, LIMIT, async () => {
      const source = new EventSource(`${server.http}/connection/uni_sse?cf_connect=${encodeURIComponent('{}')}`);
      const first = await new Promise((resolve, reject) => { source.onmessage = ({ data }) => resolve(JSON.parse(data)); source.onerror = reject; });
      assert.ok(first.connect.client);
      source.close();
    });
  }
});

describe('server libraries', () => {
  let server;
  before(async () => { server = await Server.start(); });
  after(async () => assert.equal(await server.stop(), 0));
  const { libraries } = JSON.parse(readFileSync(new URL('libraries.json', import.meta.url)));

  /** Whether an answer has the fields that a library reads from it. In `expected`, `null` stands for any value. */
  const holds = (found, expected) => {
    if (expected === null) return found !== undefined;
    if (Array.isArray(expected)) return Array.isArray(found) && found.length === expected.length && expected.every((item, index) => holds(found[index], item));
    if (typeof expected === 'object') return typeof found === 'object' && found !== null && Object.entries(expected).every(([name, value]) => holds(found[name], value));
    return found === expected;
  };

  for (const { name, headers, requests } of libraries) {
    test(`${name} is answered as it reads`, async () => {
      for (const { path, body, status = 200, reads, lines } of requests) {
        const sent = typeof body === 'string' ? body : JSON.stringify(body);
        const response = await fetch(`${server.http}${path.replace('$KEY', encodeURIComponent(KEY))}`, {
          method: 'POST', body: sent, headers: Object.fromEntries(Object.entries(headers).map(([field, value]) => [field, value.replace('$KEY', KEY)])),
        });
        const text = await response.text();
        assert.equal(response.status, status, `${path}: ${text}`);
        if (lines) assert.ok(holds(text.split('\n').filter(Boolean).map((line) => JSON.parse(line)), lines), `${path}: ${text}`);
        else if (reads !== undefined) assert.ok(holds(JSON.parse(text), reads), `${path}: ${text} has not ${JSON.stringify(reads)}`);
      }
    });
  }
});
