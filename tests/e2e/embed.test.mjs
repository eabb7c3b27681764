// The program of docs/guides/embedding.md. It uses only the public API of the server, and its handlers answer hooks.
import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { dirname, join } from 'node:path';
import { before, describe, test } from 'node:test';
import { Centrifuge } from 'centrifuge';
import WebSocket from 'ws';
import { PATIENCE, until } from './patience.mjs';
import { spawn } from './processes.mjs';
import { freePort } from './server.mjs';

const binary = join(dirname(process.env.TOUCHLINE_BIN ?? new URL('../../target/debug/touchline', import.meta.url).pathname), 'embed');

function client(port, data) {
  return new Centrifuge(`ws://127.0.0.1:${port}/connection/websocket`, { websocket: WebSocket, data });
}

describe('the example of a program with the server in it', () => {
  let port, program, said = '';
  before(async () => {
    port = await freePort();
    program = spawn(binary, [`${port}`]);
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
    await room.ready(PATIENCE);
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

  test('it stops when its input ends', async () => {
    program.stdin.end();
    const code = await new Promise((resolve) => program.once('exit', resolve));
    assert.equal(code, 0, said);
    await new Promise((resolve, reject) => connect(port, '127.0.0.1', () => reject(new Error('it still listens'))).once('error', resolve));
  });
});
