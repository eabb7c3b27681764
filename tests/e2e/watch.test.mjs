// The code of docs/guides/registry.md that lists and follows a scope, run as it is: during a mass change, and when the log is too short.
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { readFileSync } from 'node:fs';
import { Centrifuge } from 'centrifuge';
import WebSocket from 'ws';
import { LIMIT, PATIENCE, until } from './patience.mjs';
import { Server, token } from './server.mjs';

const page = readFileSync(new URL('../../docs/guides/registry.md', import.meta.url), 'utf8');
const [, example] = page.match(/```js\n(\/\/ Calls onTable[^]*?)```/);
const watch = new Function(`${example}; return watch;`)();

const NAMES = 20_000;
const open = { allow_register: ['*'], allow_lookup_for_client: true, allow_watch_for_client: true, client_entries_limit: 1_000_000 };

describe('a client that watches a scope', () => {
  let server;
  const clients = [];
  before(async () => {
    const scopes = [{ name: 'wide', ...open }, { name: 'narrow', ...open, watch_log_size: 100_000 }];
    server = await Server.start({ change: { registry: { scopes } } });
  });
  after(async () => {
    for (const client of clients) client.disconnect();
    assert.equal(await server.stop(), 0, server.output);
  });

  async function connected(sub) {
    const client = new Centrifuge(server.websocket, { websocket: WebSocket, token: token({ sub }), timeout: PATIENCE });
    clients.push(client);
    client.connect();
    await client.ready(PATIENCE);
    return client;
  }

  async function register(client, scope, count, prefix = '') {
    for (let from = 0; from < count; from += 500) {
      const batch = Array.from({ length: Math.min(500, count - from) }, (_, at) => from + at);
      await Promise.all(batch.map((n) => client.rpc('registry.register', { scope, name: `${prefix}name-${n}`, meta: { text: 'x'.repeat(100) } })));
    }
  }

  /** A watcher and the changes that it received. */
  async function watching(scope) {
    const client = await connected('watcher');
    const told = { client, table: undefined, lists: 0, changes: [], ends: [] };
    for (const event of ['disconnected', 'connecting']) client.on(event, (context) => told.ends.push(context));
    const onChange = (change) => {
      told.changes.push(`${change.change} ${change.name} ${change.client}`);
      if (change.change === 'unregistered') told.table.delete(change.name);
      else told.table.set(change.name, change);
    };
    watch(client, scope, { onTable: (names) => { told.table = names; told.lists += 1; }, onChange });
    await until(() => told.table, 'the list');
    return told;
  }

  test('gets each change of a mass change once, and stays connected', LIMIT, async () => {
    const holder = await connected('holder');
    await register(holder, 'wide', NAMES);
    const told = await watching('wide');
    assert.equal(told.table.size, NAMES);
    const other = await connected('other');
    await register(other, 'wide', 3, 'other-');
    await until(() => told.table.size === NAMES + 3, 'three more');
    holder.disconnect();
    await until(() => told.table.size === 3, 'all of the holder to be gone');
    await register(other, 'wide', 1, 'last-');
    await until(() => told.table.has('last-name-0'), 'the last one');
    assert.equal(new Set(told.changes).size, told.changes.length, 'each change once');
    assert.deepEqual([told.changes.length, told.lists, told.ends], [NAMES + 4, 1, []]);
  });

  test('and is behind its log lists again, and stays', LIMIT, async () => {
    const holder = await connected('holder');
    await register(holder, 'narrow', 5_000);
    const told = await watching('narrow');
    assert.equal(told.table.size, 5_000);
    holder.disconnect();
    await until(() => told.table.size === 0, 'all to be gone');
    assert.ok(told.lists >= 2 && told.changes.length < 5_000, `${told.lists} lists, ${told.changes.length} changes`);
    assert.deepEqual(told.ends, []);
  });

  test('finds its place again when it comes back', LIMIT, async () => {
    const told = await watching('wide');
    const [holder, lists] = [await connected('holder'), told.lists];
    const before = told.table.size;
    told.client.disconnect();
    await register(holder, 'wide', 2_000, 'meanwhile-');
    told.client.connect();
    await until(() => told.table.size === before + 2_000, 'what it has missed');
    assert.deepEqual([told.lists, new Set(told.changes).size], [lists, 2_000]);
  });
});
