// Starts a real PostgreSQL on a free port, as a user that PostgreSQL accepts.
import { execFile } from 'node:child_process';
import { chownSync, existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { LIMIT } from './patience.mjs';
import { freePort } from './server.mjs';

const run = promisify(execFile);

/** Debian does not put the programs into the path. */
function programs() {
  const debian = '/usr/lib/postgresql';
  const versions = existsSync(debian) ? readdirSync(debian).map((version) => join(debian, version, 'bin')) : [];
  const found = [...versions, ...process.env.PATH.split(':')].find((path) => existsSync(join(path, 'initdb')));
  if (!found) throw new Error('PostgreSQL is not installed (Debian package postgresql)');
  return found;
}

export class Postgres {
  static async start() {
    const postgres = new Postgres();
    postgres.port = await freePort();
    postgres.directory = mkdtempSync(join(tmpdir(), 'postgres-'));
    if (process.getuid() === 0) {
      const id = async (flag) => Number((await run('id', [flag, 'postgres'])).stdout);
      chownSync(postgres.directory, await id('-u'), await id('-g'));
    }
    await postgres.do('initdb', '--auth', 'trust', '--username', 'postgres', '--no-sync');
    await postgres.again();
    return postgres;
  }

  get data() { return join(this.directory, 'data'); }
  get url() { return `postgres://postgres@127.0.0.1:${this.port}/postgres`; }

  async do(program, ...words) {
    const command = [join(programs(), program), '--pgdata', this.data, ...words];
    const [file, ...rest] = process.getuid() === 0 ? ['runuser', '-u', 'postgres', '--', ...command] : command;
    await run(file, rest, { cwd: '/', timeout: LIMIT.timeout });
  }

  /** Starts PostgreSQL, also after an end. */
  async again() {
    // A process that is killed loses nothing without fsync; only a machine that stops would.
    const own = `-p ${this.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories=`;
    const options = `${own} -c max_connections=60 -c fsync=off`;
    await this.do('pg_ctl', '--log', join(this.directory, 'log'), '--options', options, '--wait', 'start');
  }

  /** Ends PostgreSQL at once, as in a crash. */
  async kill() {
    await this.do('pg_ctl', '--mode', 'immediate', '--wait', 'stop');
  }

  async sql(statement) {
    return (await run(join(programs(), 'psql'), [this.url, '-qAt', '-c', statement])).stdout.trim();
  }

  async stop() {
    await this.kill();
    rmSync(this.directory, { recursive: true, force: true });
  }
}
