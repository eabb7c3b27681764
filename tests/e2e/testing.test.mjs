// The block for node:test in the guide to tests of programs runs as it is.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { test } from 'node:test';
import { LIMIT } from './patience.mjs';

const root = new URL('../../', import.meta.url).pathname;
const binary = resolve(process.env.TOUCHLINE_BIN ?? join(root, 'target/debug/touchline'));

test('the block for node:test is a whole test', LIMIT, async () => {
  const section = readFileSync(join(root, 'docs/guides/testing.md'), 'utf8').split(/^## /m).find((part) => part.startsWith('node:test'));
  const [[, block]] = section.matchAll(/^```js\n([^]*?)^```$/gm);
  // The directory is below the packages of these tests, where Node finds the SDK.
  const directory = mkdtempSync(new URL('./guide-', import.meta.url).pathname);
  try {
    writeFileSync(join(directory, 'live.test.mjs'), block);
    symlinkSync(binary, join(directory, 'touchline'));
    const { NODE_TEST_CONTEXT, ...environment } = process.env;
    const options = { cwd: directory, env: { ...environment, PATH: `${directory}:${environment.PATH}` } };
    const words = ['--test', '--test-reporter=tap', 'live.test.mjs'];
    const { code, said } = await new Promise((done) => {
      execFile(process.execPath, words, options, (error, out, errors) => done({ code: error?.code ?? 0, said: out + errors }));
    });
    assert.equal(code, 0, said);
    assert.match(said, /^# pass 1$/m);
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
});
