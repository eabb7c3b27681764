// The examples for terminals and devices work as their pages say.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { LIMIT, until } from './patience.mjs';
import { spawn } from './processes.mjs';
import { freePort, Server } from './server.mjs';

const binary = process.env.TOUCHLINE_BIN ?? new URL('../../target/debug/touchline', import.meta.url).pathname;
const example = (path) => new URL(`../../examples/${path}`, import.meta.url).pathname;

describe('examples', () => {
  let server, port;
  const programs = [];
  before(async () => {
    port = await freePort();
    server = await Server.start({ change: { tcp: { enabled: true, address: '127.0.0.1', port }, client: { ping_interval: '2s', pong_timeout: '1900ms' } } }); // short: the devices must answer pings in a test.
  });
  after(async () => {
    for (const program of programs) program.kill();
    assert.equal(await server.stop(), 0);
  });
  const run = (command, ...words) => {
    const program = spawn(command, words);
    programs.push(program);
    const said = { text: '', end: new Promise((resolve) => program.once('exit', resolve)) };
    for (const stream of [program.stdout, program.stderr]) stream.on('data', (data) => (said.text += data));
    said.has = async (text) => {
      await until(() => said.text.includes(text), () => `${text} in ${said.text}`);
    };
    return said;
  };

  test('two devices, one in bash and one in Python, hear each other and the backend', LIMIT, async () => {
    const shell = run(example('device/device.sh'), '127.0.0.1', `${port}`, 'history:lamp');
    await until(async () => (await server.api('channels')).result.channels['history:lamp']);
    const python = run('python3', example('device/device.py'), '127.0.0.1', `${port}`, 'history:lamp');
    await python.has('subscribed');
    await shell.has('"temperature": 21.5');
    await python.has('"humidity":');
    // waits: longer than a ping and the time for its answer. The server ends a device that does not answer.
    await sleep(4_500);
    await server.api('publish', { channel: 'history:lamp', data: { on: true } });
    await python.has('{"on": true}');
    await shell.has('{"on":true}');
  });

  test('a device in Python comes back when the server does, and ends when it is refused', LIMIT, async () => {
    const [own, lines] = [await freePort(), await freePort()];
    const change = { tcp: { enabled: true, address: '127.0.0.1', port: lines } };
    let other = await Server.start({ change, port: own });
    const python = run('python3', example('device/device.py'), '127.0.0.1', `${lines}`, 'history:lamp');
    await python.has('subscribed');
    await other.stop('SIGKILL');
    await python.has('again in');
    python.text = '';
    other = await Server.start({ change, port: own });
    await python.has('subscribed');
    await other.api('publish', { channel: 'history:lamp', data: { on: true } });
    await python.has('{"on": true}');
    const refused = run('python3', example('device/device.py'), '127.0.0.1', `${lines}`, 'history:lamp', 'forged');
    await refused.has('refused: invalid token');
    assert.equal(await refused.end, 1);
    assert.equal(await other.stop(), 0);
  });

  test('a device without a valid token gets the reason', LIMIT, async () => {
    await run(example('device/device.sh'), '127.0.0.1', `${port}`, 'history:lamp', 'forged').has('invalid token');
  });

  test('curl follows a channel from a terminal', LIMIT, async () => {
    const terminal = run(example('curl/watch.sh'), server.http, 'history:match');
    await until(async () => (await server.api('channels')).result.channels['history:match']);
    await server.api('publish', { channel: 'history:match', data: { goal: 'Roma' } });
    await terminal.has('{"goal":"Roma"}');
  });

  test('curl says what goes wrong, and fails', LIMIT, async () => {
    const nobody = run(example('curl/watch.sh'), `http://127.0.0.1:${await freePort()}`, 'history:match');
    assert.equal(await nobody.end, 1);
    assert.match(nobody.text, /Failed to connect|Couldn't connect/);
    const forbidden = run(example('curl/watch.sh'), server.http, 'closed:match');
    assert.equal(await forbidden.end, 1);
    assert.match(forbidden.text, /does not give closed:match/);
    const wrong = run(example('curl/watch.sh'), `${server.http}/no`, 'history:match');
    assert.equal(await wrong.end, 1);
    assert.match(wrong.text, /404/);
  });

  test('a cluster reports that it builds, and uses the given program', LIMIT, async () => {
    const text = readFileSync(example('cluster/run'), 'utf8');
    assert.doesNotMatch(text, /--quiet$/m);
    assert.match(text, /CARGO_TARGET_DIR/);
    const cluster = run('env', `TOUCHLINE_BIN=${binary}`, example('cluster/run'));
    await cluster.has('Three nodes are one cluster');
    programs.at(-1).kill('SIGINT');
    await cluster.end;
  });

  test("the device's configuration is good", LIMIT, async () => {
    const secrets = { TOUCHLINE_HTTP_API_KEY: 'a-key-that-is-long-enough', TOUCHLINE_CLIENT_TOKEN_HMAC_SECRET_KEY: 'a-secret-of-thirty-two-bytes-or-so' };
    const words = Object.entries(secrets).map((secret) => secret.join('='));
    const check = async (file) => {
      const unset = Object.keys(process.env).filter((name) => name.startsWith('TOUCHLINE_')).map((name) => `--unset=${name}`);
      const said = run('env', ...unset, ...words, binary, 'check', file);
      return [await said.end, said.text];
    };
    const [code, text] = await check(example('device/touchline.toml'));
    assert.equal(code, 0, text);
    assert.match(text, /^ok: 0 errors, 0 warnings/m);
    const [missing, told] = await check(example('device/no-such.toml'));
    assert.equal(missing, 1, told);
    assert.match(told, /no-such\.toml/);
    // The server starts as in the README, on ports of the test: a device may subscribe and publish.
    const [own, lines] = [await freePort(), await freePort()];
    const other = await Server.start({
      port: own,
      args: () => ['serve', '--dev', '--config', example('device/touchline.toml'), '--port', `${own}`, '--tcp.port', `${lines}`],
      ready: async () => (await fetch(`http://127.0.0.1:${own}/`)).ok,
    });
    const python = run('python3', example('device/device.py'), '127.0.0.1', `${lines}`, 'device:lamp');
    await python.has('subscribed');
    await python.has('{"temperature": 21.5}');
    assert.equal(await other.stop(), 0);
  });
});
