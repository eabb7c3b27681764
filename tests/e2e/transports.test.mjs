// The official SDK in Node: all scenarios over WebSocket, and a short list over each other transport and encoding. TOUCHLINE_FULL=1 runs
// all scenarios over each.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { Centrifuge as Json } from 'centrifuge';
import { Centrifuge as Protobuf } from 'centrifuge/build/protobuf';
import { EventSource } from 'eventsource';
import WebSocket from 'ws';
import { LIMIT, PATIENCE } from './patience.mjs';
import { withJsonPayloads } from './payloads.mjs';
import { scenarios, SHORT } from './scenarios.mjs';
import { COMPRESSED, Server, token } from './server.mjs';

const compressed = { websocket: COMPRESSED };
const all = Object.keys(scenarios);
const ways = [
  ['WebSocket', Json, 'websocket', {}, all],
  ['WebSocket, Protobuf', Protobuf, 'websocket', {}],
  ['WebSocket, compressed', Json, 'websocket', compressed],
  ['WebSocket, compressed Protobuf', Protobuf, 'websocket', compressed],
  ['HTTP streaming', Json, 'http_stream', {}],
  ['HTTP streaming, Protobuf', Protobuf, 'http_stream', {}],
  ['HTTP streaming, compressed Protobuf', Protobuf, 'http_stream', { streams: COMPRESSED }],
  ['server-sent events', Json, 'sse', {}],
  ['server-sent events, compressed', Json, 'sse', { streams: COMPRESSED }],
];

describe('centrifuge-js in Node over', { concurrency: 4 }, () => {
  for (const [way, Client, transport, change, names = process.env.TOUCHLINE_FULL ? all : SHORT] of ways) {
    describe(way, { concurrency: 1 }, () => {
      let server;
      const clients = [];
      before(async () => { server = await Server.start({ change }); });
      after(async () => {
        for (const client of clients) client.disconnect();
        assert.equal(await server.stop(), 0);
      });
      const client = (options = {}) => {
        const base = transport === 'websocket' ? server.websocket : `${server.http}/connection/${transport}`;
        const made = new Client([{ transport, endpoint: base }], {
          websocket: WebSocket, eventsource: EventSource, fetch, readableStream: ReadableStream, emulationEndpoint: `${server.http}/emulation`, timeout: PATIENCE, ...options,
        });
        clients.push(withJsonPayloads(made));
        return made;
      };
      for (const name of names) {
        test(name, LIMIT, () => scenarios[name]({ client, token, api: (method, body) => server.api(method, body), equal: assert.deepEqual }));
      }
    });
  }
});
