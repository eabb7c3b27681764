// Clients whose link breaks silently, and clients that reconnect from another address. Each machine is a network namespace.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { isDeepStrictEqual } from 'node:util';
import { Centrifuge } from 'centrifuge';
import WebSocket from 'ws';
import { Network } from './network.mjs';
import { LIMIT, PATIENCE, until } from './patience.mjs';
import { spawn } from './processes.mjs';
import { Server } from './server.mjs';

describe('a link that dies without a word', () => {
  let network, server;
  before(async () => {
    network = new Network(2);
    // short: the server must find the dead link in a test.
    const change = { client: { ping_interval: '2s', pong_timeout: '1s' }, tcp: { enabled: true, address: network.address(0), port: 8001 } };
    server = await Server.start({ port: 8000, change, on: { address: network.address(0), words: network.on(0, []) } });
  });
  after(async () => {
    network.heal();
    assert.equal(await server.stop(), 0);
    network.destroy();
  });

  const open = async () => {
    return Object.fromEntries([...(await server.metrics()).matchAll(/touchline_transport_connections\{transport="(\w+)"\} (\d+)/g)].map(([, name, count]) => [name, Number(count)]));
  };

  test('is found by the pings, on every transport', LIMIT, async () => {
    const on = (...command) => { const [program, ...words] = network.on(1, command); return spawn(program, words, { stdio: ['pipe', 'ignore', 'ignore'] }); };
    const at = network.address(0);
    const lines = on('nc', at, '8001');
    lines.stdin.write('{"id":1,"connect":{}}\n');
    const programs = [
      lines,
      on('curl', '-sN', `http://${at}:8000/connection/uni_sse?cf_connect=%7B%7D`),
      on('curl', '-sN', `http://${at}:8000/connection/uni_http_stream`, '-d', '{}'),
      on('curl', '-sN', `http://${at}:8000/connection/http_stream`, '-d', '{"id":1,"connect":{}}'),
    ];
    const expected = { tcp: 1, uni_sse: 1, uni_http_stream: 1, http_stream: 1 };
    const chosen = async () => { const found = await open(); return Object.fromEntries(Object.keys(expected).map((name) => [name, found[name]])); };
    const reach = (wanted) => until(async () => isDeepStrictEqual(await chosen(), wanted), async () => `${JSON.stringify(wanted)}, not ${JSON.stringify(await chosen())}`);
    await reach(expected);
    network.cut(0, 1);
    await reach({ tcp: 0, uni_sse: 0, uni_http_stream: 0, http_stream: 0 });
    for (const program of programs) program.kill();
    network.heal();
  });
});

describe('another address', () => {
  test('a client goes on where it was', LIMIT, async () => {
    const server = await Server.start();
    let address = '127.0.0.2';
    class From extends WebSocket { constructor(url, protocols) { super(url, protocols, { localAddress: address }); } }
    const client = new Centrifuge(server.websocket, { websocket: From, minReconnectDelay: 10 });
    const subscription = client.newSubscription('history:roaming');
    const seen = [];
    subscription.on('publication', (event) => seen.push(event.data));
    subscription.subscribe();
    client.connect();
    await subscription.ready(PATIENCE);
    await server.api('publish', { channel: 'history:roaming', data: 1 });
    address = '127.0.0.3';
    client._transport._transport.terminate();
    await server.api('publish', { channel: 'history:roaming', data: 2 });
    await until(() => seen.length >= 2);
    assert.deepEqual(seen, [1, 2]);
    client.disconnect();
    await server.stop();
  });
});
