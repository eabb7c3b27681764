// A server that stops and starts, with the official SDK in Node.
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { Agent, request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { Centrifuge } from 'centrifuge';
import WebSocket from 'ws';
import { LIMIT, PATIENCE, until } from './patience.mjs';
import { KEY, Server } from './server.mjs';

describe('a server that stops and starts', () => {
  test('asks its clients to leave, ends, and they connect to the next process', LIMIT, async () => {
    const first = await Server.start();
    const clients = Array.from({ length: 50 }, () => new Centrifuge(first.websocket, { websocket: WebSocket, minReconnectDelay: 100, maxReconnectDelay: 300 }));
    const codes = [];
    for (const client of clients) client.on('connecting', (event) => event.code >= 3000 && codes.push(event.code));
    await Promise.all(clients.map((client) => { client.connect(); return client.ready(PATIENCE); }));
    assert.equal(await first.stop(), 0, first.output);
    // The process may end before the test has read its last lines.
    await until(() => codes.length >= 50, 'all clients to be told');
    assert.deepEqual(codes, Array(50).fill(3001));
    const second = await Server.start({ port: first.port });
    await Promise.all(clients.map((client) => client.ready(PATIENCE)));
    for (const client of clients) client.disconnect();
    await second.stop();
  });

  test('answers every publish that it took, and all that it acknowledged is there when it is back', LIMIT, async (t) => {
    const directory = mkdtempSync(join(tmpdir(), 'stopped-'));
    t.after(() => rmSync(directory, { recursive: true }));
    const change = { history: { durable: true, history_size: 100_000 }, client: { recovery_max_publication_limit: 100_000 }, store: { primary: { url: `sqlite:${join(directory, 'primary.db')}` } } };
    const first = await Server.start({ change });
    // The subscriber stays connected until the end, and reconnects to the next server.
    const subscriber = new Centrifuge(first.websocket, { websocket: WebSocket, minReconnectDelay: 100, maxReconnectDelay: 300 });
    const subscription = subscriber.newSubscription('history:drain');
    const seen = [];
    subscription.on('publication', ({ offset, data }) => seen.push([offset, data]));
    subscription.subscribe();
    subscriber.connect();
    await subscription.ready(PATIENCE);
    const goodbye = new Promise((resolve) => subscriber.on('connecting', resolve));
    const acknowledged = [];
    const agent = new Agent({ keepAlive: true });
    const send = async (data, held) => {
      const offset = await publishTaken(first, agent, data, held);
      if (offset) acknowledged.push([offset, data]);
      return offset !== undefined;
    };
    const publishers = Array.from({ length: 8 }, async (_, number) => {
      for (let n = 0; await send(`${number}-${n}`); n += 1);
    });
    await until(() => acknowledged.length > 50 && seen.length > 50, 'publications under way');
    // The last byte of each request is sent when the server drains and its clients have disconnected.
    let release;
    const held = { until: new Promise((resolve) => (release = resolve)), taken: 0 };
    const late = Array.from({ length: 10 }, (_, n) => send(`late-${n}`, held));
    await until(() => held.taken === late.length, 'requests whose heads have been read');
    const stopped = first.stop();
    assert.equal((await goodbye).code, 3001);
    // waits: the server could end here, if it did not wait for the requests. Nothing shows that it waits.
    await sleep(500);
    release();
    assert.deepEqual(await Promise.all(late), late.map(() => true), 'what it took it answers');
    await Promise.all(publishers);
    assert.equal(await stopped, 0, first.output);
    const second = await Server.start({ port: first.port, change });
    await until(() => seen.length >= acknowledged.length, 'all that was acknowledged');
    acknowledged.sort(([one], [other]) => one - other);
    assert.deepEqual(seen, acknowledged, 'what was acknowledged, once and in order, and nothing else');
    subscriber.disconnect();
    agent.destroy();
    assert.equal(await second.stop(), 0, second.output);
  });
});

/**
 * Publishes and returns the offset. A request is accepted when the server answers "100 Continue": it has read the head. Before that, the
 * server may refuse the request or close the connection, and the function returns nothing. After that, only an acknowledgement is correct.
 * `held` counts the request as accepted, and decides when the last byte is sent.
 */
const publishTaken = (server, agent, data, held) => new Promise((resolve, reject) => {
  const body = JSON.stringify({ channel: 'history:drain', data });
  const headers = { 'X-API-Key': KEY, 'Content-Type': 'application/json', 'Content-Length': body.length, Expect: '100-continue' };
  const message = request(`${server.http}/api/publish`, { method: 'POST', agent, headers });
  let isTaken = false;
  const fail = (error) => (isTaken ? reject(new Error(`${data} was taken, and not answered: ${error.message}`)) : resolve());
  message.on('error', fail);
  message.on('continue', async () => {
    isTaken = true;
    message.write(body.slice(0, -1));
    if (held) held.taken += 1;
    await held?.until;
    message.end(body.slice(-1));
  });
  message.on('response', async (response) => {
    if (!isTaken && response.statusCode === 503) {
      response.resume();
      return resolve();
    }
    try {
      const { result } = JSON.parse(await text(response));
      assert.ok(isTaken && response.statusCode === 200 && result.offset > 0, `HTTP ${response.statusCode}`);
      resolve(result.offset);
    } catch (error) {
      isTaken = true;
      fail(error);
    }
  });
});
