// Starts a real nats-server with JetStream on a free port.
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { freePort } from './server.mjs';

const binary = process.env.NATS_SERVER_BIN ?? 'nats-server';

export class Nats {
  static async start() {
    const nats = new Nats();
    nats.port = await freePort();
    nats.directory = mkdtempSync(join(tmpdir(), 'nats-'));
    await nats.run();
    return nats;
  }

  get url() { return `nats://127.0.0.1:${this.port}`; }

  async run() {
    const file = join(this.directory, 'nats.conf');
    writeFileSync(file, `listen: 127.0.0.1:${this.port}\njetstream { store_dir: "${join(this.directory, 'data')}" }\n`);
    this.process = spawn(binary, ['--config', file], { stdio: ['ignore', 'ignore', 'pipe'] });
    this.output = '';
    this.process.stderr.on('data', (data) => (this.output += data));
    const failed = new Promise((_, reject) => this.process.once('error', reject));
    this.exit = new Promise((resolve) => this.process.once('exit', resolve));
    await Promise.race([failed, this.answers()]);
  }

  async answers() {
    for (let tries = 0; tries < 300; tries++, await sleep(20)) {
      const isOpen = await new Promise((resolve) => {
        const socket = connect(this.port, '127.0.0.1', () => { socket.destroy(); resolve(true); });
        socket.once('error', () => resolve(false));
      });
      if (isOpen) return;
    }
    throw new Error(`nats-server does not answer; it said:\n${this.output}`);
  }

  /** Ends the process; what it has stored stays. */
  async kill(signal = 'SIGKILL') {
    this.process.kill(signal);
    await this.exit;
  }

  async stop() {
    await this.kill('SIGTERM');
    rmSync(this.directory, { recursive: true, force: true });
  }
}
