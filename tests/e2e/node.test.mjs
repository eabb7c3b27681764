// The official SDK in Node.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { Centrifuge } from 'centrifuge';
import WebSocket from 'ws';
import { scenarios } from './scenarios.mjs';
import { Server, token } from './server.mjs';

describe('centrifuge-js in Node', () => {
  let server;
  const clients = [];
  before(async () => { server = await Server.start(); });
  after(async () => {
    for (const client of clients) client.disconnect();
    assert.equal(await server.stop(), 0);
  });
  for (const [name, run] of Object.entries(scenarios)) {
    test(name, { timeout: 120_000 }, async () => {
      const client = (options = {}) => {
        const made = new Centrifuge(server.websocket, { websocket: WebSocket, ...options });
        clients.push(made);
        return made;
      };
      await run({ client, token, api: (method, body) => server.api(method, body), equal: assert.deepEqual });
    });
  }
});

describe('a server that stops and starts', () => {
  test('tells its clients, finishes, and they come back to the next one', { timeout: 180_000 }, async () => {
    const first = await Server.start();
    const clients = Array.from({ length: 50 }, () => new Centrifuge(first.websocket, { websocket: WebSocket, minReconnectDelay: 100, maxReconnectDelay: 300 }));
    const codes = [];
    for (const client of clients) client.on('connecting', (event) => event.code >= 3000 && codes.push(event.code));
    await Promise.all(clients.map((client) => { client.connect(); return client.ready(30_000); }));
    assert.equal(await first.stop(), 0, first.output);
    assert.deepEqual([...new Set(codes)], [3001]);
    assert.equal(codes.length, 50);
    const second = await Server.start({ port: first.port });
    await Promise.all(clients.map((client) => client.ready(30_000)));
    for (const client of clients) client.disconnect();
    await second.stop();
  });

  test('answers every publish that it took, whatever comes', { timeout: 180_000 }, async () => {
    const server = await Server.start();
    const subscriber = new Centrifuge(server.websocket, { websocket: WebSocket });
    const subscription = subscriber.newSubscription('history:drain');
    const seen = [];
    subscription.on('publication', (event) => seen.push(event.data));
    subscription.subscribe();
    subscriber.connect();
    await subscription.ready(30_000);
    let acknowledged = 0;
    let isStopping = false;
    const publishers = Array.from({ length: 8 }, async () => {
      while (!isStopping) {
        try {
          const reply = await server.api('publish', { channel: 'history:drain', data: acknowledged });
          assert.ok(reply.result.offset > 0);
          acknowledged += 1;
        } catch (error) {
          // A refused connection is no acknowledgement; a reply that is not one would be a fault.
          if (error instanceof assert.AssertionError) throw error;
          isStopping = true;
        }
      }
    });
    for (const end = Date.now() + 60_000; Math.min(acknowledged, seen.length) <= 50 && Date.now() < end; ) await new Promise((resolve) => setTimeout(resolve, 100));
    assert.equal(await server.stop(), 0, server.output);
    isStopping = true;
    await Promise.all(publishers);
    subscriber.disconnect();
    assert.ok(acknowledged > 50, `${acknowledged} acknowledged`);
    assert.ok(seen.length > 50);
  });
});
