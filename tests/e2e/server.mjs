// Starts the real binary on a free port, and calls its server API.
import { createHmac } from 'node:crypto';
import { mkdirSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { until } from './patience.mjs';
import { spawn } from './processes.mjs';

export const SECRET = 'end-to-end-secret';
export const KEY = 'end-to-end-key';
const binary = process.env.TOUCHLINE_BIN ?? new URL('../../target/debug/touchline', import.meta.url).pathname;

const open = { allow_subscribe_for_client: true, allow_subscribe_for_anonymous: true };
const history = { history_size: 100, history_ttl: '60s', force_recovery: true, allow_history_for_subscriber: true, allow_history_for_anonymous: true };

/** For `change.streams`: HTTP streams are compressed, even with short messages. */
export const COMPRESSED = { compression: true, compression_min_size: 1 };

export function config(port, change = {}, address = '127.0.0.1') {
  return {
    http_server: { address, port, ...change.http_server },
    http_api: { key: KEY },
    client: {
      token: { hmac_secret_key: SECRET },
      allow_anonymous_connect_without_token: true,
      allowed_origins: ['http://127.0.0.1:*'],
      ...change.client,
    },
    channel: {
      without_namespace: open,
      namespaces: [
        { name: 'history', ...open, ...history, ...change.history, allow_publish_for_subscriber: true, allow_publish_for_anonymous: true },
        { name: 'cache', ...open, history_size: 1, history_ttl: '60s', force_recovery: true, force_recovery_mode: 'cache' },
        { name: 'room', ...open, presence: true, join_leave: true, force_push_join_leave: true, allow_presence_for_subscriber: true, allow_presence_for_anonymous: true, allow_publish_for_client: true },
        { name: 'state', ...open, ...history, allowed_delta_types: ['fossil'] },
        { name: 'tagged', ...open, ...history, allow_tags_filter: true },
        { name: 'closed' },
        { name: 'dialog', allow_user_limited_channels: true },
        ...(change.namespaces ?? []),
      ],
      ...(change.channel_proxy && { proxy: change.channel_proxy }),
    },
    http_stream: { enabled: true, ...change.streams },
    sse: { enabled: true, ...change.streams },
    uni_websocket: { enabled: true },
    uni_http_stream: { enabled: true, ...change.streams },
    uni_sse: { enabled: true, ...change.streams },
    ...(change.websocket && { websocket: change.websocket }),
    ...(change.tcp && { tcp: change.tcp }),
    ...(change.rpc && { rpc: change.rpc }),
    ...(change.hooks && { hooks: change.hooks }),
    ...(change.registry && { registry: change.registry }),
    ...(change.cluster && { cluster: change.cluster }),
    ...(change.store && { store: change.store }),
    ...(change.node && { node: change.node }),
    ...(change.admin && { admin: change.admin }),
    ...(change.events && { events: change.events }),
    ...(change.consumers && { consumers: change.consumers }),
    ...(change.opentelemetry && { opentelemetry: change.opentelemetry }),
    health: { enabled: true },
    prometheus: { enabled: true },
    log: { level: 'warn' },
    shutdown: { spread: '200ms', timeout: '5s' },
  };
}

/** A directory with the ports that tests on this machine have reserved. */
const PROMISED = join(tmpdir(), 'touchline-ports');
const PROMISE_MS = 600_000;

/** Reserves a port for ten minutes: of two tests that both find it free, only one gets it. */
function promise(port) {
  const file = join(PROMISED, String(port));
  mkdirSync(PROMISED, { recursive: true });
  try {
    if (Date.now() - statSync(file).mtimeMs > PROMISE_MS) rmSync(file, { force: true });
  } catch { /* it is not promised */ }
  try {
    writeFileSync(file, '', { flag: 'wx' });
    return true;
  } catch {
    return false;
  }
}

/** The ports of these tests. Each suite has a range of its own below the kernel's range for outgoing connections (CONTRIBUTING.md). */
const PORTS = [10_000, 17_999];

/** A free port of the range. */
export function freePort() {
  const port = PORTS[0] + Math.floor(Math.random() * (PORTS[1] - PORTS[0] + 1));
  if (!promise(port)) return freePort();
  return new Promise((resolve) => {
    const probe = createServer().once('error', () => resolve(freePort()));
    probe.listen(port, '127.0.0.1', () => probe.close(() => resolve(port)));
  });
}

export class Server {
  /** `ready`: a function that gets the server and tests whether it can be used. `on`: the server's address, and the command that runs a program at that address. */
  static async start({ args, change, port, ready, on = { address: '127.0.0.1', words: [] } } = {}) {
    const server = new Server();
    server.address = on.address;
    server.port = port ?? (await freePort());
    server.directory = mkdtempSync(join(tmpdir(), 'touchline-'));
    const file = join(server.directory, 'config.json');
    server.file = file;
    server.configure(change);
    server.output = '';
    const [program, ...words] = [...on.words, binary, ...(args?.(server.port) ?? ['serve', '--config', file])];
    server.process = spawn(program, words, { stdio: ['ignore', 'pipe', 'pipe'] });
    for (const stream of [server.process.stdout, server.process.stderr]) stream.on('data', (data) => (server.output += data));
    server.exit = new Promise((resolve) => server.process.once('exit', (code, signal) => resolve(code ?? signal)));
    try {
      await server.until(async () => (ready ? ready(server) : (await fetch(`${server.http}/health`)).ok));
    } catch (error) {
      await server.stop('SIGKILL');
      throw error;
    }
    return server;
  }

  /** Writes the configuration again, as `start` does. `edit`: a function that changes it before. */
  configure(change, edit = () => {}) {
    const written = config(this.port, change, this.address);
    edit(written);
    writeFileSync(this.file, JSON.stringify(written));
  }

  get http() { return `http://${this.address}:${this.port}`; }
  get websocket() { return `ws://${this.address}:${this.port}/connection/websocket`; }

  /** Waits until a condition holds. Fails at once if the server has ended. */
  async until(condition) {
    const hasEnded = () => this.process.exitCode !== null || this.process.signalCode !== null;
    await until(async () => hasEnded() || await condition(), () => `${condition}; the server said:\n${this.output}`);
    if (hasEnded()) throw new Error(`the server has ended; it said:\n${this.output}`);
  }

  /** The text of `/metrics`. */
  async metrics() { return (await fetch(`${this.http}/metrics`)).text(); }

  /** The value of a metric, or NaN. `labels`: its first labels, such as `consumer="a"`. */
  async metric(name, labels = '') {
    return Number((await this.metrics()).match(new RegExp(`^touchline_${name}(?:_total)?${labels && `\\{${labels}[^}]*\\}`} (\\S+)$`, 'm'))?.[1]);
  }

  async api(method, body = {}) {
    const headers = { 'X-API-Key': KEY, 'Content-Type': 'application/json' };
    const response = await fetch(`${this.http}/api/${method}`, { method: 'POST', headers, body: JSON.stringify(body) });
    if (!response.ok) throw new Error(`${method}: HTTP ${response.status} ${await response.text()}`);
    return response.json();
  }

  /** Stops the server and returns its exit code. A running server that gets SIGTERM must end with code 0 in every test. */
  async stop(signal = 'SIGTERM') {
    const wasRunning = this.process.exitCode === null && this.process.signalCode === null;
    this.process.kill(signal);
    const code = await this.exit;
    rmSync(this.directory, { recursive: true, force: true });
    if (wasRunning && signal === 'SIGTERM' && code !== 0) throw new Error(`the server did not stop in order: ${code}; it said:\n${this.output}`);
    return code;
  }
}

const base64 = (value) => Buffer.from(value).toString('base64url');

export function token(claims, secret = SECRET) {
  const head = `${base64(JSON.stringify({ alg: 'HS256', typ: 'JWT' }))}.${base64(JSON.stringify(claims))}`;
  return `${head}.${createHmac('sha256', secret).update(head).digest('base64url')}`;
}
