// What a newcomer pastes from the pages works as it stands there.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { Centrifuge } from 'centrifuge';
import WebSocket from 'ws';
import { LIMIT, PATIENCE, until } from './patience.mjs';
import { spawn } from './processes.mjs';
import { freePort } from './server.mjs';

const root = new URL('../../', import.meta.url).pathname;
const binary = resolve(process.env.TOUCHLINE_BIN ?? join(root, 'target/debug/touchline'));
const page = (path) => readFileSync(join(root, path), 'utf8');

/** The blocks of a section, in order: language and text. */
function blocks(path, heading) {
  const section = page(path).split(/^## /m).find((part) => part.startsWith(heading));
  assert.ok(section, `${path} has no section ${heading}`);
  return [...section.matchAll(/^```(\w+)\n([^]*?)^```$/gm)].map(([, language, text]) => ({ language, text }));
}

/** A directory in which blocks are pasted; `touchline` is on its path, and listens where nobody else does. */
class Terminal {
  constructor(environment = {}) {
    this.directory = mkdtempSync(join(tmpdir(), 'touchline-docs-'));
    symlinkSync(binary, join(this.directory, 'touchline'));
    this.environment = { PATH: `${this.directory}:/usr/sbin:${process.env.PATH}`, HOME: this.directory, ...environment };
    this.running = [];
  }

  /** Pastes a block that ends. */
  run(text) {
    return execFileSync('bash', ['-e', '-c', text], { cwd: this.directory, env: this.environment, encoding: 'utf8' });
  }

  /** Pastes a block that runs on. */
  start(text) {
    const program = spawn('bash', ['-e', '-c', text], { cwd: this.directory, env: this.environment, detached: true });
    const said = { text: '', program };
    for (const stream of [program.stdout, program.stderr]) stream.on('data', (data) => (said.text += data));
    program.once('exit', (code) => (said.code = code));
    said.has = async (pattern) => {
      await until(() => said.text.match(pattern) || said.code !== undefined, () => `${pattern} in ${said.text}`);
      assert.match(said.text, pattern);
    };
    this.running.push(program);
    return said;
  }

  end() {
    for (const program of this.running) {
      try { process.kill(-program.pid, 'SIGKILL'); } catch { /* it has ended */ }
    }
    rmSync(this.directory, { recursive: true, force: true });
  }
}

describe('the page about your application, as it is pasted', () => {
  const [install, serve, watch, publish, browser, node, python] = blocks('docs/start/application.md', 'From the configuration to a page');
  let terminal, port, server;
  before(async () => {
    port = await freePort();
    // The page says 8000; all commands take the port from one place.
    terminal = new Terminal({ TOUCHLINE_HTTP_SERVER_PORT: `${port}` });
    server = terminal.start(serve.text);
    await server.has(/ready/);
  });
  after(() => terminal.end());

  test('the program is installed under the name that the blocks use', () => {
    assert.match(install.text, /^cargo install --path crates\/cli --locked$/m);
    assert.match(page('crates/cli/Cargo.toml'), /\[\[bin\]\]\s+name = "touchline"|^name = "touchline"$/m);
  });

  test('a configuration is for its owner, and the server starts on it', () => {
    assert.equal(statSync(join(terminal.directory, 'touchline.toml')).mode & 0o777, 0o600);
  });

  test('one terminal follows what another one publishes', LIMIT, async () => {
    const watching = terminal.start(watch.text);
    await watching.has(/watching news:live/);
    assert.match(terminal.run(publish.text), /"offset":/);
    await watching.has(/\{"headline":"Kick-off"\}/);
  });

  test('the page gets it with the token of a backend in Node or in Python, and only from its own origin', LIMIT, async () => {
    const secret = terminal.run('cat touchline.toml').match(/hmac_secret_key = "(.*)"/)[1];
    const module = join(terminal.directory, 'token.mjs');
    writeFileSync(module, node.text);
    const { touchlineToken } = await import(module);
    writeFileSync(join(terminal.directory, 'token.py'), `${python.text}\nimport sys\nprint(touchline_token(42, sys.argv[1]))`);
    const tokens = { node: touchlineToken(42, secret), python: terminal.run(`python3 token.py '${secret}'`).trim() };
    const from = (origin) => class extends WebSocket { constructor(url, protocols) { super(url, protocols, { origin }); } };
    const code = browser.text.replace(/^import .*$/m, '').replace('localhost:8000', `127.0.0.1:${port}`);
    const open = (origin, token) => new Promise((done) => {
      const Client = class extends Centrifuge { constructor(url, options) { super(url, { ...options, websocket: from(origin) }); } };
      const fetch = async (path) => ({ ok: true, status: 200, text: async () => { assert.equal(path, '/token'); return token; } });
      new Function('Centrifuge', 'fetch', 'show', 'done', `${code}; done(live)`)(Client, fetch, (data) => shown.push(data), done);
    });
    let shown = [];
    for (const [name, token] of Object.entries(tokens)) {
      assert.match(terminal.run(`touchline token --check '${token}' --config touchline.toml`), /good: user "42"/, name);
      shown = [];
      const live = await open('http://localhost:3000', token);
      await live.getSubscription('news:live').ready(PATIENCE);
      terminal.run(publish.text);
      await until(() => shown.length > 0);
      assert.deepEqual(shown[0], { headline: 'Kick-off' }, name);
      live.disconnect();
    }
    const elsewhere = await open('http://elsewhere.example', tokens.node);
    await server.has(/refused: the origin of the page is not in client.allowed_origins.*http:\/\/elsewhere\.example/);
    elsewhere.disconnect();
  });
});

describe('three machines, as they are pasted', () => {
  const [nats, configure, serve] = blocks('docs/guides/cluster.md', 'Commands for three machines');
  const terminals = [];
  after(() => terminals.forEach((terminal) => terminal.end()));

  test('three NATS servers and three nodes are one cluster', LIMIT, async () => {
    const [client, route] = [await freePort(), await freePort()];
    // Machines are addresses of this one.
    const address = (n) => `127.77.${process.pid % 250}.${n}`;
    const here = (text, n) => text
      .replaceAll(/10\.0\.0\.(\d)/g, (_, n) => address(n)).replaceAll('0.0.0.0', address(n)).replaceAll('4222', client).replaceAll('6222', route)
      .replaceAll('nats-1', `nats-${n}`).replaceAll('/var/lib/touchline-nats', './nats-data');
    const ports = [await freePort(), await freePort(), await freePort()];
    const servers = ports.map((port, index) => {
      const terminal = new Terminal({ TOUCHLINE_HTTP_SERVER_PORT: `${port}` });
      terminals.push(terminal);
      return terminal.start(here(nats.text, index + 1));
    });
    terminals[0].run(here(configure.text, 1));
    for (const terminal of terminals.slice(1)) writeFileSync(join(terminal.directory, 'touchline.toml'), readFileSync(join(terminals[0].directory, 'touchline.toml')), { mode: 0o600 });
    const nodes = terminals.map((terminal, index) => terminal.start(here(serve.text, index + 1)));
    for (const [index, port] of ports.entries()) {
      const ready = async () => (await fetch(`http://127.0.0.1:${port}/health`).catch(() => ({}))).ok;
      await until(ready, () => `${servers[index].text}\n${nodes[index].text}`);
    }
    const published = terminals[0].run(`touchline publish --config touchline.toml news:live '"to all"'`);
    assert.match(published, /"offset":/);
    const key = terminals[0].run('cat touchline.toml').match(/^key = "(.*)"/m)[1];
    const history = await fetch(`http://127.0.0.1:${ports[2]}/api/history`, { method: 'POST', headers: { 'X-API-Key': key }, body: '{"channel":"news:live","limit":-1}' });
    assert.match(await history.text(), /"to all"/);
    for (const node of nodes) assert.doesNotMatch(node.text, /IO error/);
  });
});

test('a node that does not reach NATS says once where and why', LIMIT, async () => {
  const [port, nats] = [await freePort(), await freePort()];
  const terminal = new Terminal({ TOUCHLINE_HTTP_SERVER_PORT: `${port}` });
  try {
    terminal.run(`touchline genconfig --output touchline.toml; printf '\\n[cluster]\\nengine = "nats"\\nnats_url = ["nats://me:s3cret@127.0.0.1:${nats}"]\\n' >> touchline.toml`);
    const node = terminal.start('touchline serve --config touchline.toml');
    await node.has(new RegExp(`NATS can't be reached \\(127\\.0\\.0\\.1:${nats}: Connection refused`));
    // waits: for many attempts, which the log does not show.
    await sleep(3_000);
    const lines = node.text.split('\n').filter((line) => line.includes('NATS') || line.includes('nats'));
    assert.equal(lines.filter((line) => line.includes("NATS can't be reached")).length, 1, node.text);
    assert.ok(lines.length <= 3, node.text);
    assert.doesNotMatch(node.text, /s3cret|IO error/);
  } finally {
    terminal.end();
  }
});

test('the blocks of a page about a proxy are whole files', LIMIT, () => {
  const [nginx] = blocks('docs/guides/proxy.md', 'nginx');
  const terminal = new Terminal();
  try {
    writeFileSync(join(terminal.directory, 'site.conf'), nginx.text);
    writeFileSync(join(terminal.directory, 'nginx.conf'), `pid ${terminal.directory}/pid; error_log stderr; events {} http { access_log off; include ${terminal.directory}/site.conf; }`);
    terminal.run(`nginx -t -q -e stderr -c ${terminal.directory}/nginx.conf`);
    const [caddy] = blocks('docs/guides/proxy.md', 'Caddy');
    const program = process.env.CADDY_BIN ?? 'caddy';
    writeFileSync(join(terminal.directory, 'Caddyfile'), caddy.text);
    terminal.run(`if command -v ${program} >/dev/null; then ${program} validate --config Caddyfile --adapter caddyfile 2>&1; fi`);
  } finally {
    terminal.end();
  }
});

test('./x test says what it lacks before it installs or compiles anything', LIMIT, () => {
  assert.match(page('README.md'), /^\.\/x test /m);
  const terminal = new Terminal();
  const stub = (name, text) => writeFileSync(join(terminal.directory, name), `#!/bin/sh\n${text}\n`, { mode: 0o755 });
  const said = () => {
    try { return execFileSync('bash', [join(root, 'x'), 'test'], { env: terminal.environment, encoding: 'utf8', stdio: 'pipe' }); } catch (error) { return error.stdout + error.stderr; }
  };
  try {
    for (const name of ['cargo', 'apt-get', 'sudo', 'npm', 'mvn']) stub(name, `touch ${terminal.directory}/ran; exit 1`);
    stub('go', 'echo "go version go1.19.8 linux/amd64"');
    stub('node', 'echo v18.20.4');
    const old = said();
    assert.match(old, /the tests need Go 1\.24 or newer, but found 1\.19\.8/);
    assert.match(old, /the tests need Node\.js 20\.14 or newer, but found 18\.20\.4/);
    assert.equal(existsSync(join(terminal.directory, 'ran')), false, old);
    // A machine without Rust and without the module of Python that makes environments.
    const python = execFileSync('python3', ['-c', 'import sys; print(sys.executable)'], { encoding: 'utf8' }).trim();
    stub('python3', `[ "$1" != -c ] && exec ${python} "$@"`);
    rmSync(join(terminal.directory, 'cargo'));
    terminal.environment.PATH = `${terminal.directory}:/usr/bin:/bin`;
    const short = said();
    assert.match(short, /the tests need Rust: install it from https:\/\/rustup\.rs/);
    assert.match(short, /will be installed with .*apt-get:.* python3-venv/);
    assert.equal(existsSync(join(terminal.directory, 'ran')), false, short);
  } finally {
    terminal.end();
  }
});

test('./x run names the missing compiler before it compiles', LIMIT, () => {
  assert.match(page('README.md'), /^\.\/x run /m);
  const terminal = new Terminal();
  const said = (path) => {
    try { return execFileSync('/bin/bash', [join(root, 'x'), 'run'], { env: { ...terminal.environment, PATH: path }, encoding: 'utf8', stdio: 'pipe' }); } catch (error) { return error.stdout + error.stderr; }
  };
  try {
    const path = join(terminal.directory, 'path');
    mkdirSync(path);
    for (const name of ['dirname', 'sed', 'grep', 'head', 'sort', 'mktemp', 'rm', 'cat', 'xargs', 'env']) symlinkSync(execFileSync('which', [name], { encoding: 'utf8' }).trim(), join(path, name));
    assert.match(said(path), /Rust is missing: install it from https:\/\/rustup\.rs/);
    writeFileSync(join(path, 'cargo'), '#!/bin/sh\necho "cargo 1.63.0"\n', { mode: 0o755 });
    assert.match(said(path), /Rust 1\.\d+ is needed, but cargo is 1\.63/);
    writeFileSync(join(path, 'cargo'), '#!/bin/sh\necho "cargo 9.0.0"\n', { mode: 0o755 });
    assert.match(said(path), /a C compiler is missing: .* build-essential/);
  } finally {
    terminal.end();
  }
});
