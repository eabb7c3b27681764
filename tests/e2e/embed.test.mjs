// A program with an embedded server, built outside the workspace: all that it needs is public, and its handlers answer hooks.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { before, describe, test } from 'node:test';
import { Centrifuge } from 'centrifuge';
import WebSocket from 'ws';
import { until } from './hooks.mjs';
import { spawn } from './processes.mjs';
import { freePort } from './server.mjs';

const root = new URL('../../', import.meta.url).pathname;
const target = join(root, 'target/embed');

function client(port, data) {
  return new Centrifuge(`ws://127.0.0.1:${port}/connection/websocket`, { websocket: WebSocket, data });
}

describe('the example of a program with the server in it', () => {
  let port, program, said = '';
  before(async () => {
    const manifest = join(root, 'examples/embed/Cargo.toml');
    execFileSync('cargo', ['build', '--quiet', '--locked', '--manifest-path', manifest, '--target-dir', target], { stdio: 'inherit' });
    port = await freePort();
    program = spawn(join(target, 'debug/embed'), [`${port}`]);
    for (const stream of [program.stdout, program.stderr]) stream.on('data', (data) => (said += data));
    await until(() => said.includes(`ws://127.0.0.1:${port}/connection/websocket`), () => said);
  });

  test('its handlers decide about connects and sign publications', async () => {
    const ann = client(port, 'ann');
    const room = ann.newSubscription('room');
    const heard = [];
    room.on('publication', ({ data }) => heard.push(data));
    room.subscribe();
    ann.connect();
    await room.ready(60_000);
    await room.publish('hello');
    await until(() => heard.length > 0, () => 'a publication');
    program.stdin.write('we close soon\n');
    await until(() => heard.length > 1, () => 'what the program itself publishes');
    assert.deepEqual(heard, [{ from: 'ann', text: 'hello' }, { from: 'the house', text: 'we close soon' }]);
    ann.disconnect();
  });

  test('they refuse a client that says no name', async () => {
    const nobody = client(port);
    const end = new Promise((resolve) => nobody.on('disconnected', resolve));
    nobody.connect();
    const { code, reason } = await end;
    assert.deepEqual({ code, reason }, { code: 4501, reason: 'say your name' });
  });

  test('the guide holds the example as it is', () => {
    const guide = readFileSync(join(root, 'docs/guides/embedding.md'), 'utf8');
    assert.ok(guide.includes(`\`\`\`rust\n${readFileSync(join(root, 'examples/embed/src/main.rs'), 'utf8')}\`\`\`\n`));
  });

  test('it stops when its input ends', async () => {
    program.stdin.end();
    const code = await new Promise((resolve) => program.once('exit', resolve));
    assert.equal(code, 0, said);
    await new Promise((resolve, reject) => connect(port, '127.0.0.1', () => reject(new Error('it still listens'))).once('error', resolve));
  });
});
