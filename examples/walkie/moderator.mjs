// Takes the floor from a client that keeps it too long: one second after its own page should have given it back.
// Usage: API_KEY=… node moderator.mjs http://HOST:PORT

import { setTimeout as sleep } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import { LIMIT_MS } from './floor.js';

const SCOPE = 'floor';
const GRACE_MS = 1_000;
const EACH_MS = 500;

/** @param {{http: string, key: string, log?: (line: string) => void, signal?: AbortSignal}} options */
export async function moderate({ http, key, log = () => {}, signal }) {
  const held = new Map(); // name → { client, sinceMs }
  let at = null;

  async function api(method, params = {}) {
    const headers = { 'X-API-Key': key, 'Content-Type': 'application/json' };
    const response = await fetch(`${http}/api/${method}`, { method: 'POST', headers, body: JSON.stringify({ scope: SCOPE, ...params }), signal });
    if (!response.ok) throw new Error(`${method}: HTTP ${response.status}`);
    const { result, error } = await response.json();
    if (error) throw Object.assign(new Error(`${method}: ${error.message}`), { code: error.code });
    return result;
  }

  /** The time of names that exist when this program starts counts from now on. */
  async function list() {
    at = await api('changes');
    held.clear();
    for (let cursor = 0, page; !page || cursor; cursor = page.cursor) {
      page = await api('names', { limit: 1000, cursor });
      page.names.forEach(({ name, client }) => held.set(name, { client, sinceMs: Date.now() }));
    }
  }

  function apply({ change, name, client }) {
    if (!name) return;
    if (change === 'registered') held.set(name, { client, sinceMs: Date.now() });
    if (change === 'unregistered' && held.get(name)?.client === client) held.delete(name);
  }

  async function follow() {
    if (!at) await list();
    for (let more = true; more;) {
      const page = await api('changes', { offset: at.offset, epoch: at.epoch });
      more = page.more;
      if (page.list) return list();
      page.changes.forEach(apply);
      at = page;
    }
  }

  async function enforce() {
    for (const [name, { client, sinceMs }] of held) {
      if (Date.now() - sinceMs < LIMIT_MS + GRACE_MS) continue;
      // If another client has the name by now, the answer is 4002.
      await api('unregister', { name, client }).catch((error) => { if (error.code !== 4002) throw error; });
      held.delete(name);
      log(`${name} was taken from ${client}`);
    }
  }

  while (!signal?.aborted) {
    await follow().then(enforce).catch((error) => signal?.aborted || log(error.message));
    await sleep(EACH_MS, undefined, { signal }).catch(() => {});
  }
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  await moderate({ http: process.argv[2], key: process.env.API_KEY, log: (line) => console.error(line) });
}
