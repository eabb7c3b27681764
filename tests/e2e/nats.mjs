// Starts a real nats-server with JetStream on a free port.
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { JetStream } from './jetstream.mjs';
import { until } from './patience.mjs';
import { spawn } from './processes.mjs';
import { freePort } from './server.mjs';

const binary = process.env.NATS_SERVER_BIN ?? 'nats-server';
// Three servers with NATS 2.9 of Debian 12 can lose acknowledged data (docs/guides/cluster.md), so a NATS cluster needs a newer version.
const built = new URL('../../target/bin/nats-server', import.meta.url).pathname;
const clusterBinary = process.env.NATS_SERVER_BIN ?? (existsSync(built) ? built : binary);

export class Nats {
  /** `more`: lines for the configuration. `scheme`: the scheme of the URL for clients. */
  static async start({ more = '', scheme = 'nats' } = {}) {
    const nats = new Nats();
    Object.assign(nats, { more, scheme });
    nats.port = await freePort();
    nats.directory = mkdtempSync(join(tmpdir(), 'nats-'));
    await nats.run();
    return nats;
  }

  /** Starts one of several servers that form a cluster: its machine, its network, and the number of servers. */
  static async member(network, machine) {
    const nats = new Nats();
    Object.assign(nats, { network, machine, port: 4222, directory: mkdtempSync(join(tmpdir(), 'nats-')) });
    await nats.run();
    return nats;
  }

  /** Starts a cluster with a server on each machine, and waits until it can hold streams. */
  static async cluster(network) {
    for (let tries = 1; ; tries++) {
      const servers = await Promise.all(network.machines.map((_, machine) => Nats.member(network, machine)));
      if (await Nats.canHold(servers)) return servers;
      for (const server of servers) await server.stop();
      if (tries === 2) throw new Error(`the NATS servers are no cluster; they said:\n${servers.map(({ output }) => output).join('\n')}`);
    }
  }

  /** Makes a stream with a copy on each server. Returns false if this takes 20 s: servers whose group does not form start again. */
  static async canHold(servers) {
    const made = async () => {
      const stream = await JetStream.connect(servers[0].port, servers[0].host);
      // waits: a group without a leader does not answer.
      await Promise.race([stream.create('trial', ['trial'], 'memory', servers.length), sleep(1_000).then(() => { throw new Error('no answer'); })]).finally(() => stream.close());
      return Nats.areCurrent(servers);
    };
    // waits: between attempts.
    // patience: servers that take longer start again.
    for (const end = Date.now() + 20_000; Date.now() < end; await sleep(100)) if (await made().catch(() => false)) return true;
    return false;
  }

  /** Whether every stream has all its copies, and each copy has all messages. */
  static async areCurrent([{ port, host }, ...others]) {
    const stream = await JetStream.connect(port, host);
    // waits: a group without a leader does not answer.
    const answer = await Promise.race([stream.streams(), sleep(1_000)]).finally(() => stream.close());
    return answer?.streams?.length > 0 && answer.streams.every(({ config, cluster }) => config.num_replicas <= others.length || (cluster.replicas.length === others.length && cluster.replicas.every(({ current }) => current)));
  }

  get host() { return this.network?.address(this.machine) ?? '127.0.0.1'; }
  get url() { return `${this.scheme ?? 'nats'}://${this.host}:${this.port}`; }

  async run() {
    const file = join(this.directory, 'nats.conf');
    writeFileSync(file, `listen: "${this.host}:${this.port}"\njetstream { store_dir: "${join(this.directory, 'data')}" }\n${this.routes()}${this.more ?? ''}`);
    const command = [this.network ? clusterBinary : binary, '--config', file];
    this.process = this.network?.spawn(this.machine, command) ?? spawn(command[0], command.slice(1), { stdio: ['ignore', 'ignore', 'pipe'] });
    this.output = '';
    this.process.stderr.on('data', (data) => (this.output += data));
    const failed = new Promise((_, reject) => this.process.once('error', reject));
    this.exit = new Promise((resolve) => this.process.once('exit', resolve));
    await Promise.race([failed, this.answers()]);
  }

  /** With these pings the server finds a dead link in two seconds. */
  routes() {
    if (!this.network) return '';
    const routes = this.network.machines.map((_, n) => `"nats://${this.network.address(n)}:6222"`);
    return `server_name: "nats-${this.machine}"\nping_interval: "1s"\nping_max: 2\ncluster { name: test, listen: "${this.host}:6222", routes: [${routes}] }\n`;
  }

  async answers() {
    await until(() => new Promise((resolve) => {
      const socket = connect(this.port, this.host, () => { socket.destroy(); resolve(true); });
      socket.once('error', () => resolve(false));
    }), () => `nats-server answers; it said:\n${this.output}`);
  }

  /** Sends a line to the server as a client does (the NATS protocol), and waits until the server has processed it. */
  async command(line) {
    const socket = connect(this.port, this.host);
    socket.write(`CONNECT {"verbose":false}\r\n${line}PING\r\n`);
    let said = '';
    for await (const data of socket) if ((said += data).includes('PONG')) break;
  }

  /** Ends the process. Stored data stays. */
  async kill(signal = 'SIGKILL') {
    this.process.kill(signal);
    await this.exit;
  }

  async stop() {
    await this.kill('SIGTERM');
    rmSync(this.directory, { recursive: true, force: true });
  }
}

/** A link to a NATS server that delays data in both directions and keeps its order. */
export async function slowLink(nats, delayMs) {
  const sockets = new Set();
  const carry = (from, to) => {
    // waits: the link is slow.
    from.on('data', (data) => setTimeout(() => to.writable && to.write(data), delayMs));
    from.on('close', () => setTimeout(() => to.destroy(), delayMs)); // waits: as the data.
    from.on('error', () => {});
    sockets.add(from);
  };
  const proxy = createServer((near) => {
    const far = connect(nats.port, nats.host);
    carry(near, far);
    carry(far, near);
  });
  await new Promise((resolve) => proxy.listen(0, '127.0.0.1', resolve));
  return { url: `nats://127.0.0.1:${proxy.address().port}`, stop: () => { proxy.close(); sockets.forEach((socket) => socket.destroy()); } };
}
