// The scenarios of the registry on one node.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { Centrifuge } from 'centrifuge';
import WebSocket from 'ws';
import { scenarios, SCOPES } from './registry.mjs';
import { Server, token } from './server.mjs';

describe('the registry on one node', () => {
  let server;
  const clients = [];
  before(async () => { server = await Server.start({ change: { registry: { scopes: SCOPES } } }); });
  after(async () => {
    for (const client of clients) client.disconnect();
    assert.equal(await server.stop(), 0, server.output);
  });
  for (const [name, run] of Object.entries(scenarios)) {
    test(name, { timeout: 120_000 }, async () => {
      const client = async (_, options = {}) => {
        const made = new Centrifuge(server.websocket, { websocket: WebSocket, ...options });
        clients.push(made);
        made.connect();
        await made.ready(30_000);
        return made;
      };
      await run({ client, token, api: (_, method, body) => server.api(method, body), equal: assert.deepEqual });
    });
  }
});
