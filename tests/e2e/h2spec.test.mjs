// The HTTP/2 side by h2spec, an independent suite by sections of RFC 9113 and RFC 7541.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { test } from 'node:test';
import { Server } from './server.mjs';

const binary = [process.env.H2SPEC_BIN, new URL('../../target/bin/h2spec', import.meta.url).pathname].find((path) => path && existsSync(path));
/** A path that reads what is sent to it: where an answer comes before that, what the client still sends is passed over, whatever it is. */
const PATH = '/emulation';
/** The library under the server passes over, for a while, frames of a stream that the client itself has reset. */
const KNOWN = /^closed: Sends a \w+ frame after sending RST_STREAM frame$/;

test('h2spec against the HTTP/2 side', { timeout: 120_000 }, async () => {
  assert.ok(binary, 'the tests need h2spec: go install github.com/summerwind/h2spec/cmd/h2spec@latest, and its path in H2SPEC_BIN');
  const server = await Server.start();
  let text = '';
  const process = spawn(binary, ['-h', '127.0.0.1', '-p', `${server.port}`, '-P', PATH, '--timeout', '5']);
  process.stdout.on('data', (data) => (text += data));
  await new Promise((resolve) => process.once('exit', resolve));
  await server.stop();
  const [, tests, passed] = text.match(/(\d+) tests, (\d+) passed/).map(Number);
  const failed = new Set([...text.matchAll(/× \d+: (.*)/g)].map(([, name]) => name.trim()));
  assert.deepEqual([...failed].filter((name) => !KNOWN.test(name)), [], text);
  assert.ok(tests > 140 && passed >= tests - 2, text.slice(-200));
});
