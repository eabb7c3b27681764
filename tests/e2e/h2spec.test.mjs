// The HTTP/2 part against h2spec, an independent test suite for RFC 9113 and RFC 7541.
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { test } from 'node:test';
import { LIMIT } from './patience.mjs';
import { spawn } from './processes.mjs';
import { Server } from './server.mjs';

const binary = [process.env.H2SPEC_BIN, new URL('../../target/bin/h2spec', import.meta.url).pathname].find((path) => path && existsSync(path));
/** A path whose handler reads the request body. A handler that answers earlier makes the server discard all later frames of the client. */
const PATH = '/emulation';
/** Some cases race with the answer: the server discards frames on a stream that has ended. A case that fails in every run is a failure. */
const RUNS = 6;

test('h2spec against the HTTP/2 side', LIMIT, async (t) => {
  assert.ok(binary, 'the tests need h2spec: go install github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible, and its path in H2SPEC_BIN');
  const server = await Server.start();
  t.after(() => server.stop());
  let always;
  let run = 0;
  for (; run < RUNS && (always === undefined || always.size > 0); run += 1) {
    let text = '';
    const process = spawn(binary, ['-h', '127.0.0.1', '-p', `${server.port}`, '-P', PATH, '--timeout', '5']);
    process.stdout.on('data', (data) => (text += data));
    await new Promise((resolve) => process.once('exit', resolve));
    const [, tests, passed] = text.match(/(\d+) tests, (\d+) passed/).map(Number);
    assert.ok(tests > 140 && passed >= tests - 4, text);
    const failed = new Set([...text.matchAll(/× \d+: (.*)/g)].map(([, name]) => name.trim()));
    always = always === undefined ? failed : new Set([...always].filter((name) => failed.has(name)));
  }
  t.diagnostic(`h2spec ran ${run} times`);
  // A connection that does not begin like HTTP/2 counts as HTTP/1, and gets 400 before it ends (RFC 9113 section 3.4: GOAWAY may be
  // omitted).
  always.delete('Sends invalid connection preface');
  assert.deepEqual([...always], []);
});
