// The registry on one node. TOUCHLINE_FULL=1 runs all scenarios, as the tests of the cluster do.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { Centrifuge } from 'centrifuge';
import WebSocket from 'ws';
import { LIMIT, PATIENCE } from './patience.mjs';
import { scenarios, SCOPES, SHORT } from './registry.mjs';
import { Server, token } from './server.mjs';

describe('the registry on one node', () => {
  let server;
  const clients = [];
  before(async () => { server = await Server.start({ change: { registry: { scopes: SCOPES } } }); });
  after(async () => {
    for (const client of clients) client.disconnect();
    assert.equal(await server.stop(), 0, server.output);
  });
  for (const name of process.env.TOUCHLINE_FULL ? Object.keys(scenarios) : SHORT) {
    test(name, LIMIT, async () => {
      const client = async (_, options = {}) => {
        const made = new Centrifuge(server.websocket, { websocket: WebSocket, timeout: PATIENCE, ...options });
        clients.push(made);
        made.connect();
        await made.ready(PATIENCE);
        return made;
      };
      await scenarios[name]({ client, token, api: (_, method, body) => server.api(method, body), equal: assert.deepEqual });
    });
  }
});
