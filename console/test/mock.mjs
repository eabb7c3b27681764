// A mock of the server's side of the console, for development and tests: `node mock.mjs [port]`, password "mock" or "view".
// POST /mock {"slow":ms,"error":true,"cut":true,"missing":true,"empty":true,"hostile":true,"socket":false,"quiet":true,"unknown":true,"trace":ms,"changed":true} switches.
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { extname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { answers, CHANGES, openapi } from './mock_data.mjs';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const PREFIX = '/admin';
const TYPES = { '.js': 'text/javascript', '.css': 'text/css', '.svg': 'image/svg+xml' };
const RULES = {
  'Content-Security-Policy': "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
  'X-Content-Type-Options': 'nosniff', 'Referrer-Policy': 'no-referrer', 'X-Frame-Options': 'DENY', 'Cross-Origin-Opener-Policy': 'same-origin', 'Cross-Origin-Resource-Policy': 'same-origin',
};
const PASSWORDS = { mock: 'operator', view: 'viewer' };
const DEFAULTS = { slow: 0, error: false, cut: false, missing: false, empty: false, hostile: false, socket: true, quiet: false, unknown: false, trace: 60_000, changed: false };

export const assets = () => readdirSync(ROOT, { recursive: true, withFileTypes: true })
  .filter((entry) => entry.isFile() && !(entry.parentPath ?? entry.path).includes('test'))
  .map((entry) => join(entry.parentPath ?? entry.path, entry.name)).sort();

function treeHash() {
  const hash = createHash('sha256');
  for (const file of assets()) hash.update(readFileSync(file));
  return hash.digest('hex').slice(0, 12);
}

/** The raw JSON that the server writes inside an answer: numbers that a double cannot represent. */
const encoded = (value) => JSON.stringify(value).replace(/\{"raw":("(?:[^"\\]|\\.)*")\}/g, (_, text) => JSON.parse(text));

export async function start(port = 0) {
  const hash = treeHash();
  const sockets = new Set();
  const sessions = new Map();
  let switches = { ...DEFAULTS };
  let tries = 5;

  const sessionOf = (request) => sessions.get(/touchline_console=(\w+)/.exec(request.headers.cookie ?? '')?.[1]) ?? null;
  const body = async (request) => {
    let text = '';
    for await (const chunk of request) text += chunk;
    return text ? JSON.parse(text) : {};
  };
  const send = (response, status, value, headers = {}) => {
    response.writeHead(status, { 'Content-Type': 'application/json', 'X-Request-ID': `01J9${Math.random().toString(36).slice(2, 8)}`, ...RULES, ...headers });
    response.end(typeof value === 'string' ? value : encoded(value));
  };
  const described = (role) => ({ signed_in: Boolean(role), role, insecure: false, label: 'production', node: { id: '5f0c1a', name: 'node-1', version: '0.4.0' }, now_ms: Date.now() });

  /** The answer of an operation as `{status, body}`. */
  function run(operation, params, role) {
    if (!role) return { status: 401, body: { error: { code: 101, message: 'signed out' } } };
    if (role === 'viewer' && CHANGES.has(operation)) return { status: 403, body: { error: { code: 103, message: 'your role is viewer; an operator may do this' } } };
    if (switches.error) return { status: 500, body: { error: { code: 100, message: 'internal server error' } } };
    const known = answers({ ...switches, role }, Date.now()).operations[operation];
    if (!known || switches.unknown) return { status: 404, body: { error: { code: 104, message: 'method not found' } } };
    const result = known(params);
    return { status: 200, body: result.error ? result : { result } };
  }

  async function login(request, response) {
    const { password } = await body(request);
    const role = PASSWORDS[password];
    if (!role) {
      tries -= 1;
      if (tries < 0) return send(response, 429, { error: { code: 111, message: 'too many requests', retry_after: 41 } });
      return send(response, 401, { error: { code: 101, message: 'wrong password', tries_left: tries } });
    }
    tries = 5;
    const id = Math.random().toString(36).slice(2);
    sessions.set(id, role);
    return send(response, 200, described(role), { 'Set-Cookie': `touchline_console=${id}; HttpOnly; SameSite=Strict; Path=${PREFIX}` });
  }

  async function handle(request, response) {
    const path = new URL(request.url, 'http://mock').pathname;
    if (path === '/mock') {
      switches = { ...DEFAULTS, ...(await body(request)) };
      if (switches.cut || !switches.socket) for (const socket of sockets) socket.destroy();
      return send(response, 200, switches);
    }
    if (switches.cut) return request.socket.destroy();
    if (!path.startsWith(PREFIX)) return send(response, 404, {});
    const below = path.slice(PREFIX.length + 1);
    const role = sessionOf(request);
    if (below.startsWith('assets/')) return asset(below, response);
    if (below === 'session') return send(response, 200, described(role));
    if (below === 'op-openapi.json') return send(response, role ? 200 : 401, openapi());
    if (request.method === 'GET') return page(response);
    if (request.headers['x-touchline-console'] !== '1') return send(response, 403, { error: { code: 103, message: 'not from the console' } });
    if (below === 'login') return login(request, response);
    if (below === 'logout') {
      sessions.clear();
      return send(response, 200, {});
    }
    if (below === 'token') return role ? send(response, 200, { token: role, ttl: 300 }) : send(response, 401, {});
    // waits: the test decides how slow the answer is.
    if (switches.slow) await new Promise((go) => setTimeout(go, switches.slow));
    const answer = run(below.slice('op/'.length), await body(request), role);
    return send(response, answer.status, answer.body);
  }

  function page(response) {
    response.writeHead(200, { 'Content-Type': 'text/html; charset=utf-8', 'Cache-Control': 'no-store', ...RULES });
    response.end(readFileSync(join(ROOT, 'index.html'), 'utf8').replaceAll('__ASSETS__', `${PREFIX}/assets/${hash}`));
  }

  function asset(below, response) {
    const [, given, ...path] = below.split('/');
    const file = join(ROOT, ...path);
    if (given !== hash || !assets().includes(file)) return send(response, 404, {});
    response.writeHead(200, { 'Content-Type': TYPES[extname(file)] ?? 'text/plain', 'Cache-Control': 'public, max-age=31536000, immutable', ...RULES });
    return response.end(readFileSync(file));
  }

  const server = createServer((request, response) => handle(request, response).catch((error) => send(response, 400, { error: { code: 107, message: error.message } })));
  server.on('upgrade', (request, socket) => {
    if (switches.cut || !switches.socket || !request.url.endsWith('/connection/websocket')) return socket.destroy();
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket));
    socket.on('error', () => socket.destroy());
    const accept = createHash('sha1').update(`${request.headers['sec-websocket-key']}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest('base64');
    socket.write(`HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${accept}\r\n\r\n`);
    return live(socket, run, () => switches);
  });
  await new Promise((go) => server.listen(port, '127.0.0.1', go));
  const url = `http://127.0.0.1:${server.address().port}`;
  return {
    url, prefix: PREFIX,
    switch: (next = {}) => fetch(`${url}/mock`, { method: 'POST', body: JSON.stringify(next) }),
    signOutAll: () => sessions.clear(),
    close() {
      for (const socket of sockets) socket.destroy();
      server.closeAllConnections();
      return new Promise((go) => server.close(go));
    },
  };
}

/** Speaks the client protocol on one WebSocket. */
function live(socket, run, switches) {
  const timers = new Map();
  let role = null;
  const reply = (value) => socket.write(frame(encoded(value)));
  const push = (channel, data) => reply({ push: { channel, pub: { data } } });
  const end = (channel) => {
    clearInterval(timers.get(channel));
    timers.delete(channel);
  };

  function follow(channel) {
    const [, kind, ...rest] = channel.split(':');
    const params = JSON.parse(Buffer.from(rest.at(-1), 'base64url'));
    const began = Date.now();
    let offset = 8_120_411;
    let last = '';
    let repeated = 0;
    const turn = () => {
      const { tick, hidden, client } = answers({ ...switches(), role }, Date.now());
      const of = (fields) => ({ at_ms: Date.now(), node: 'node-1', size: 41, ...(!hidden && { payload: tick }), ...fields });
      const tell = (frames, leftOut) => push(channel, { at_ms: Date.now(), frames, left_out: leftOut });
      if (kind === 'trace' && params.channel) tell([1, 2, 3].map(() => of({ kind: 'publication', channel: params.channel, offset: (offset += 1) })), 3);
      else if (kind === 'trace') {
        tell([of({ client, user: '42', direction: 'out', kind: 'publication', channel: 'market:ticks' }), of({ client, user: '42', direction: 'in', kind: 'command', channel: 'x', error: 103 })], 0);
        if (Date.now() < began + switches().trace) return;
        push(channel, { ended: true });
        end(channel);
      } else {
        const answer = run(rest[0], params, role).body;
        const text = encoded(answer);
        if (switches().quiet) return;
        if (text === last && (repeated += 1) < 10) return;
        repeated = 0;
        last = text;
        push(channel, { at_ms: Date.now(), ...answer });
      }
    };
    timers.set(channel, setInterval(turn, kind === 'live' ? 1000 : 250));
  }

  function take(command) {
    if (command.connect) {
      role = command.connect.token;
      reply({ id: command.id, connect: { client: 'console', version: '0.4.0', ping: 25, pong: true } });
    } else if (command.subscribe) {
      follow(command.subscribe.channel);
      reply({ id: command.id, subscribe: {} });
    } else if (command.unsubscribe) {
      end(command.unsubscribe.channel);
      reply({ id: command.id, unsubscribe: {} });
    } else if (command.refresh) reply({ id: command.id, refresh: {} });
  }

  let pending = Buffer.alloc(0);
  socket.on('data', (chunk) => {
    pending = Buffer.concat([pending, chunk]);
    for (let found; (found = unframe(pending));) {
      pending = found.rest;
      if (found.opcode === 8) socket.end();
      else if (found.opcode === 1) for (const line of found.text.split('\n')) if (line) take(JSON.parse(line));
    }
  });
  const pings = setInterval(() => reply({}), 25_000);
  socket.on('close', () => {
    clearInterval(pings);
    for (const channel of [...timers.keys()]) end(channel);
  });
}

function frame(text) {
  const payload = Buffer.from(text);
  const head = payload.length < 126 ? Buffer.from([0x81, payload.length])
    : payload.length < 65_536 ? Buffer.from([0x81, 126, payload.length >> 8, payload.length & 255])
      : Buffer.concat([Buffer.from([0x81, 127, 0, 0, 0, 0]), Buffer.from(Uint32Array.of(payload.length).buffer).reverse()]);
  return Buffer.concat([head, payload]);
}

function unframe(bytes) {
  if (bytes.length < 6) return null;
  let length = bytes[1] & 127;
  let at = 2;
  if (length === 126) {
    length = bytes.readUInt16BE(2);
    at = 4;
  } else if (length === 127) {
    length = Number(bytes.readBigUInt64BE(2));
    at = 10;
  }
  if (bytes.length < at + 4 + length) return null;
  const mask = bytes.subarray(at, at + 4);
  const text = Buffer.from(bytes.subarray(at + 4, at + 4 + length).map((byte, index) => byte ^ mask[index % 4])).toString();
  return { opcode: bytes[0] & 15, text, rest: bytes.subarray(at + 4 + length) };
}

// `node --test console/test` runs each file of the folder, also this file.
if (process.argv[1] === fileURLToPath(import.meta.url) && !process.env.NODE_TEST_CONTEXT) {
  const mock = await start(Number(process.argv[2] ?? 8090));
  console.log(`${mock.url}${mock.prefix}/`);
}
