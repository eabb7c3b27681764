// Starts Pebble, Let's Encrypt's ACME server for tests, and a name server that resolves every name to this machine.
import { writeFileSync } from 'node:fs';
import https from 'node:https';
import { until } from './patience.mjs';
import { spawn } from './processes.mjs';
import { freePort } from './server.mjs';

const binary = (name) => new URL(`../../target/bin/${name}`, import.meta.url).pathname;
// By default Pebble refuses one nonce in twenty, sometimes three in a row. No client tries again after three.
const start = (name, words) => spawn(binary(name), words, { stdio: ['ignore', 'pipe', 'pipe'], env: { ...process.env, PEBBLE_VA_NOSLEEP: '1', PEBBLE_WFE_NONCEREJECT: '0' } });

export class Pebble {
  /** `authority` makes the certificate of Pebble's own server. Names are proved at these ports. `more`: keys of its configuration. */
  static async start(authority, { http, tls, lives = 7_776_000, more = {} }) {
    const pebble = new Pebble();
    authority.issue('pebble', '/CN=pebble');
    pebble.file = authority.path('pebble.json');
    Object.assign(pebble, { authority, port: await freePort(), management: await freePort(), names: await freePort() });
    const config = {
      listenAddress: `127.0.0.1:${pebble.port}`,
      managementListenAddress: `127.0.0.1:${pebble.management}`,
      certificate: authority.path('pebble.pem'),
      privateKey: authority.path('pebble.key'),
      httpPort: http ?? 1,
      tlsPort: tls ?? 1,
      retryAfter: { authz: 1, order: 1 },
      domainBlocklist: ['refused.example'],
      profiles: { default: { description: 'the only one', validityPeriod: lives } },
      ...more,
    };
    writeFileSync(pebble.file, JSON.stringify({ pebble: config }));
    // The management port, which no test uses, has a separate address: it cannot take a port that was free a moment ago.
    const aside = ['-dnsserver', `127.0.0.1:${pebble.names}`, '-management', `127.0.0.2:${pebble.names}`, '-defaultIPv6', ''];
    pebble.resolver = start('pebble-challtestsrv', [...aside, ...['doh', 'http01', 'https01', 'tlsalpn01'].flatMap((name) => [`-${name}`, ''])]);
    try {
      await pebble.run();
    } catch (error) {
      await pebble.stop();
      throw error;
    }
    return pebble;
  }

  get directory() { return `https://localhost:${this.port}/dir`; }

  async run() {
    this.output = '';
    this.process = start('pebble', ['-config', this.file, '-dnsserver', `127.0.0.1:${this.names}`]);
    for (const stream of [this.process.stdout, this.process.stderr]) stream.on('data', (data) => (this.output += data));
    this.roots = await until(() => this.get('/roots/0'), () => `the authority: ${this.output}`);
  }

  get(path) {
    return new Promise((resolve, reject) => {
      https.get({ host: 'localhost', port: this.management, path, ca: this.authority.ca, agent: false }, (response) => {
        let text = '';
        response.on('data', (data) => (text += data)).once('end', () => resolve(text));
      }).once('error', reject);
    });
  }

  async pause() {
    const ended = new Promise((resolve) => this.process.once('exit', resolve));
    this.process.kill();
    await ended;
  }

  async stop() {
    this.resolver.kill();
    if (this.process.exitCode === null && this.process.signalCode === null) await this.pause();
  }
}
