// Rules for the text of the tests outside Rust. Each rule names the cases that made a test fail on a busy machine.
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { test } from 'node:test';

const ROOT = new URL('../../', import.meta.url).pathname;
const FOLDERS = ['tests/e2e', 'tests/python', 'tests/go', 'tests/java', 'tests/packaging', 'tests/docs', 'console/test', ...readdirSync(join(ROOT, 'examples')).map((name) => `examples/${name}/test`)];

/** The files of the tests: their path and their lines. This file and the one place of waiting are not among them. */
const files = FOLDERS.flatMap((folder) => {
  let names = [];
  try { names = readdirSync(join(ROOT, folder)); } catch { /* an example without tests */ }
  return names.filter((name) => /\.(mjs|py|go|java)$/.test(name) && !['house.test.mjs', 'patience.mjs'].includes(name)).map((name) => {
    const text = readFileSync(join(ROOT, folder, name), 'utf8');
    return { path: `${folder}/${name}`, text, lines: text.split('\n') };
  });
});

/** The lines that match a pattern, without comments, imports, and lines that have the word themselves or in the comment lines before. */
function without(word, pattern, chosen = files) {
  const reason = new RegExp(`(//|#) ${word}: \\S`);
  return chosen.flatMap(({ path, lines }) => lines.flatMap((line, n) => {
    if (!pattern.test(line) || /^\s*(\/\/|#|\*|\/\*\*|import )/.test(line) || reason.test(line)) return [];
    for (let before = n - 1; /^\s*(\/\/|#)/.test(lines[before] ?? ''); before -= 1) if (reason.test(lines[before])) return [];
    return [`${path}:${n + 1}: ${line.trim()}`];
  }));
}

/** The text without what stands in the parentheses of calls of `name`. Lines keep their numbers. */
function outside(text, name) {
  let result = '';
  let at = 0;
  for (const match of text.matchAll(new RegExp(`\\b${name}\\(`, 'g'))) {
    if (match.index < at) continue;
    let end = match.index + match[0].length;
    for (let depth = 1; depth > 0 && end < text.length; end += 1) depth += text[end] === '(' ? 1 : text[end] === ')' ? -1 : 0;
    result += text.slice(at, match.index) + text.slice(match.index, end).replace(/[^\n]/g, '');
    at = end;
  }
  return result + text.slice(at);
}

test('a test reads metrics in until(), because a counter may come after the reply', () => {
  const tests = files.filter(({ path }) => path.endsWith('.test.mjs')).map(({ path, text }) => ({ path, lines: outside(text, 'until').split('\n') }));
  // A line that defines a helper does not read.
  const reads = /^(?!.*(?:const \w+ = (?:async )?\(|function |=> \[?).*$)(?=.*(?:\bmetrics?\(|\bcalls\(|\/metrics`)).*$/;
  assert.deepEqual(without('once', reads, tests), [], 'read it in until(), or say in a comment "// once: …" why it cannot change');
});

test('a setting below 5 s says why it may be shorter than a stall of the machine', () => {
  const length = String.raw`['"]?(?:\w*timeout(?:_ms)?|\w*ttl|expires?_in|store_for|\w*_grace|expired_\w+|seconds)['"]?: ?(?:['"](?:[1-9]\d{0,2}ms|[1-4]\d{3}ms|[1-4]s)['"]|[1-4](?![\d_.]))`;
  const end = String.raw`['"]?(?:closes_at|exp|expire_at|expires_at)['"]?: ?(?:(?<!Date\.)\bnow\(\) ?\+ ?[1-4]|Date\.now\(\) ?\+ ?(?:[1-9]\d{0,2}|[1-4]_?\d{3}))(?![\d_])`;
  assert.deepEqual(without('short', new RegExp(`${length}|${end}`)), [], 'use 5 s or more, or say in a comment "// short: …" why not');
});

test('a fixed sleep says what it waits for', () => {
  const sleeps = /(?<![\w.])(?:asyncio\.|time\.|Thread\.)?[sS]leep\(|new Promise\(.*setTimeout\(|(?<![\w.])setTimeout\(|waitForTimeout\(/;
  assert.deepEqual(without('waits', sleeps), [], 'wait for an event, or say in a comment "// waits: …" why there is none');
});

test('a deadline is the patience of its language', () => {
  const own = /\b(?:end|until) = Date\.now\(\) \+ \d|\bready\(\d|ready\(timeout=\d|\btimeout: ?\d+_000\b|(?<!_)\btimeout=\d(?! \*)|time\.After\(\d|\.wait\(\d|poll\(\d|AbortSignal\.timeout\(/;
  assert.deepEqual(without('patience', own), [], 'use PATIENCE');
});

test('a port is of the range of its suite', () => {
  const ranges = { mjs: [10_000, 17_999], py: [23_000, 24_199], go: [24_200, 25_399], java: [25_400, 25_999] };
  for (const [path, kind] of [['tests/e2e/server.mjs', 'mjs'], ['tests/python/conftest.py', 'py'], ['tests/go/client_test.go', 'go'], ['tests/java/SdkTest.java', 'java']]) {
    const [first, last] = ranges[kind];
    const found = files.find((file) => file.path === path).text.replaceAll('_', '').match(/\b(1\d{4}|2\d{4})\b/g).map(Number);
    for (const port of found.filter((number) => number >= 10_000 && number < 30_000)) assert.ok(port >= first && port <= last + 1, `${basename(path)}: ${port}`);
  }
  assert.deepEqual(without('port', /\bport: (1|2)\d{4}\b/), []);
});
