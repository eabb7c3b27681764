// Parts for the test of monitoring: a server that uses every function a little, and a real Prometheus that scrapes it.
import { generateKeyPairSync } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Authority } from './certificates.mjs';
import { Backend, sdkClient, SDK_WAYS, subscribe } from './hooks.mjs';
import { Nats } from './nats.mjs';
import { until } from './patience.mjs';
import { spawn } from './processes.mjs';
import { freePort, Server, token } from './server.mjs';

/** The binary of Prometheus. promtool is in the same archive. */
const prometheus = process.env.PROMETHEUS_BIN ?? 'prometheus';
const SECRET = 'whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=';

const ISSUED = { ...generateKeyPairSync('ec', { namedCurve: 'P-256' }).publicKey.export({ format: 'jwk' }), kid: 'first', use: 'sig', alg: 'ES256' };
const ANSWERS = { '/keys': { keys: [ISSUED] }, '/events': {} };

/** A server with namespaces, a hook, an endpoint of events, a consumer, databases, rates and TLS, its clients, and a node of a cluster. */
export class Watched {
  constructor() {
    this.clients = [];
    this.authority = new Authority();
    this.authority.issue('lines', '/CN=localhost');
    this.directory = mkdtempSync(join(tmpdir(), 'watched-'));
  }

  /** `stop` ends all started parts, also if this function fails. */
  async start() {
    this.backend = await Backend.start(({ path }) => ANSWERS[path] ?? { result: {} });
    this.nats = await Nats.start();
    this.server = await Server.start({ change: await this.change() });
    const client = { token: { jwks_public_endpoint: this.backend.url('/keys') } };
    const store = { primary: { url: `sqlite:${join(this.directory, 'node.db')}` } };
    this.node = await Server.start({ change: { client, store, cluster: { engine: 'nats', nats_url: [this.nats.url] } } });
  }

  get servers() { return [this.server, this.node]; }

  async change() {
    const database = (name) => `sqlite:${join(this.directory, name)}`;
    const lines = { cert_pem: this.authority.path('lines.pem'), key_pem: this.authority.path('lines.key') };
    const rate = { enabled: true, buckets: [{ interval: '60s', rate: 1 }] };
    return {
      client: { rate_limit: { client_command: { enabled: true, rpc: rate } } },
      namespaces: [
        { name: 'asked', subscribe_proxy_enabled: true },
        { name: 'kept', durable: true, history_size: 10, history_ttl: '60s', allow_subscribe_for_client: true, allow_subscribe_for_anonymous: true },
      ],
      channel_proxy: { subscribe: { endpoint: this.backend.url('/subscribe') } },
      events: [{ name: 'billing', endpoint: this.backend.url('/events'), types: ['connected', 'disconnected'], secret: SECRET }],
      // This address has no listener, so the consumer waits for its database.
      consumers: [{ name: 'shop', enabled: true, type: 'postgresql', postgresql: { dsn: `postgres://nobody@127.0.0.1:${await freePort()}/none`, outbox_table_name: 'outbox' } }],
      node: { buffer_max_size: 268_435_456 },
      store: { primary: { url: database('primary.db') }, stats: { enabled: true, url: database('stats.db') } },
      registry: { scopes: [{ name: 'devices', allow_register: ['*'] }] },
      tcp: { enabled: true, port: await freePort(), tls: { enabled: true, ...lines } },
    };
  }

  /** Clients connect over several transports, subscribe, are refused, recover and disconnect. */
  async act(round) {
    const { server } = this;
    const fans = SDK_WAYS.map((way, n) => sdkClient(server, way, { token: token({ sub: `fan-${n}` }), name: 'watched', version: '1' }));
    this.clients.push(...fans);
    for (const fan of fans) fan.connect();
    for (const fan of fans) await fan.until('connected');
    const seen = fans.flatMap((fan) => ['plain', 'history:1', 'asked:1', 'kept:1'].map((channel) => subscribe(fan, channel)));
    for (const one of seen) await one.until('subscribed');
    for (const channel of ['plain', 'history:1', 'asked:1', 'kept:1']) await server.api('publish', { channel, data: { round } });
    for (const one of seen) await one.until('publication');
    const [first, second] = fans;
    await subscribe(first, 'closed:1').until('unsubscribed');
    for (let n = 0; n < 3; n++) await first.rpc('stats.track', { event: 'seen' }).catch(() => {});
    const left = seen.find((one) => one.channel === 'history:1');
    left.unsubscribe();
    await server.api('publish', { channel: 'history:1', data: { round, missed: true } });
    left.subscribe();
    await until(() => left.heard.all.filter(({ name }) => name === 'subscribed').length > 1, () => 'a subscription that recovers');
    await server.api('publish', { channel: 'nowhere:1', data: 0 });
    await fetch(`${server.http}/api/info`, { method: 'POST', body: '{}' });
    await server.api('disconnect', { user: 'fan-1' });
    await second.until('disconnected');
  }

  async stop() {
    this.clients.forEach((client) => client.disconnect());
    for (const server of this.servers) await server?.stop('SIGKILL');
    await this.nats?.stop();
    await this.backend?.stop();
    this.authority.destroy();
    rmSync(this.directory, { recursive: true, force: true });
  }
}

/** A separate Prometheus. Its data directory is removed at its end. */
export class Prometheus {
  /** `targets`: hosts and ports that it scrapes each second. `rules`: the file of alerts. */
  static async start(targets, rules) {
    const started = new Prometheus();
    started.directory = mkdtempSync(join(tmpdir(), 'prometheus-'));
    started.port = await freePort();
    const file = join(started.directory, 'prometheus.yml');
    writeFileSync(file, JSON.stringify({
      global: { scrape_interval: '1s', evaluation_interval: '1s' },
      rule_files: [rules],
      scrape_configs: [{ job_name: 'touchline', static_configs: [{ targets }] }],
    }));
    const words = [`--config.file=${file}`, `--storage.tsdb.path=${join(started.directory, 'data')}`, `--web.listen-address=127.0.0.1:${started.port}`];
    started.output = '';
    started.process = spawn(prometheus, words, { stdio: ['ignore', 'pipe', 'pipe'] });
    for (const stream of [started.process.stdout, started.process.stderr]) stream.on('data', (data) => (started.output += data));
    started.exit = new Promise((resolve) => started.process.once('exit', resolve).once('error', resolve));
    const error = await new Promise((resolve) => started.process.once('spawn', () => resolve()).once('error', resolve));
    if (error) {
      await started.stop();
      throw error;
    }
    const isReady = async () => (await fetch(`http://127.0.0.1:${started.port}/-/ready`).catch(() => ({}))).ok;
    await until(isReady, () => `Prometheus is ready: ${started.output}`);
    return started;
  }

  async get(path, fields = {}) {
    const response = await fetch(`http://127.0.0.1:${this.port}/api/v1/${path}?${new URLSearchParams(fields)}`);
    return response.json();
  }

  /** The current series of an expression. */
  async query(expression) {
    const { status, error, data } = await this.get('query', { query: expression });
    if (status !== 'success') throw new Error(`${expression}: ${error}`);
    return data.result;
  }

  async stop() {
    this.process.kill('SIGTERM');
    await this.exit;
    rmSync(this.directory, { recursive: true, force: true });
  }
}
