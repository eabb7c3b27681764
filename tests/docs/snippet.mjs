// snippet.mjs PART...: runs parts of programs from a page, one after the other. A part is the name of a file, or JavaScript.
// It has what the page says that the reader has: `client`, connected with the token of the variable TOKEN; `show`, `play` and `handle` keep
// what they are given in the list `seen`; `until(condition)` waits for a condition; `api(operation, request)` calls the server API.
import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { PATIENCE, until as patiently } from '../e2e/patience.mjs';

const modules = createRequire(`${process.env.E2E_MODULES}/`);
const text = process.argv.slice(2).map((part) => (existsSync(part) ? readFileSync(part, 'utf8') : part)).join('\n;\n');
// As in a browser: cookies of the page go with the request.
globalThis.document = { cookie: '' };
const { WebSocket } = modules('ws');
globalThis.WebSocket = class extends WebSocket {
  constructor(url, protocols) { super(url, protocols, { origin: 'http://localhost:3000', headers: { Cookie: document.cookie } }); }
};
const { Centrifuge, UnauthorizedError } = modules(text.includes('centrifuge/build/protobuf') ? 'centrifuge/build/protobuf' : 'centrifuge');
const seen = [];
const keep = (data) => { seen.push(data); };
const until = (condition) => patiently(condition, () => `${condition}\nseen: ${JSON.stringify(seen)}`);
const api = async (operation, request) => {
  const answer = await fetch(`http://localhost:8000/api/${operation}`, { method: 'POST', headers: { 'X-API-Key': process.env.KEY }, body: JSON.stringify(request) });
  const { result, error } = await answer.json();
  if (error) throw new Error(`${operation}: ${JSON.stringify(error)}`);
  return result;
};
const isWhole = /new Centrifuge/.test(text);
const client = new Centrifuge('ws://localhost:8000/connection/websocket', { token: process.env.TOKEN });
const names = { Centrifuge, UnauthorizedError, show: keep, play: keep, handle: keep, seen, until, api, ...(isWhole ? {} : { client }) };
if (!isWhole) {
  client.connect();
  await client.ready(PATIENCE);
}
const AsyncFunction = (async () => {}).constructor;
await new AsyncFunction(...Object.keys(names), text.replace(/^import .*$/gm, ''))(...Object.values(names));
process.exit(0);
