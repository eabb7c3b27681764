// Rules for the files of the console: sizes, imports, and code that no file may contain.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { basename, dirname, join, relative } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { assets } from './mock.mjs';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const files = assets().map((path) => ({ path: relative(ROOT, path), text: readFileSync(path, 'utf8') }));
const scripts = files.filter(({ path }) => path.endsWith('.js'));
const lines = (text) => text.split('\n').length - 1;
const kinds = { pages: 3, parts: 2 };
const IN_ALL_MAX = 60 * 1024;
const EACH_MAX = 75 * 1024;

test('modules are small', () => {
  for (const { path, text } of scripts) assert.ok(lines(text) < 200, `${path} has ${lines(text)} lines`);
  const all = scripts.reduce((sum, { text }) => sum + lines(text), 0);
  assert.ok(all <= 3450, `${all} lines in all`);
});

test('everything compressed stays small', () => {
  const whole = gzipSync(files.map(({ text }) => text).join(''), { level: 9 }).length;
  assert.ok(whole <= IN_ALL_MAX, `${whole} bytes as one`);
  // A file that is compressed alone cannot reuse the words of other files.
  const each = files.reduce((sum, { text }) => sum + gzipSync(text, { level: 9 }).length, 0);
  assert.ok(each <= EACH_MAX, `${each} bytes file by file`);
});

test('what makes a page of a text, or a program of one, stands nowhere', () => {
  const banned = [/\b(inner|outer)HTML\b/, /insertAdjacentHTML/, /document\.write/, /\beval\(/, /new Function/, /\sstyle=/, /\son[a-z]+=["']/, /setAttribute\(['"]on/];
  for (const { path, text } of files) for (const pattern of banned) assert.doesNotMatch(text, pattern, path);
});

test('imports go down', () => {
  const networks = new Set(['ask.js', 'live.js', 'session.js']);
  for (const { path, text } of scripts) {
    const rank = kinds[dirname(path)] ?? 0;
    for (const [, to] of text.matchAll(/from '([^']+)'/g)) {
      const target = join(dirname(path), to);
      const other = kinds[dirname(target)] ?? 0;
      assert.ok(other !== 3, `${path} imports a page`);
      if (rank === 2) assert.ok(other === 2 || ['dom.js', 'format.js', 'words.js', 'read.js'].includes(target), `${path} imports ${target}`);
    }
    if (!networks.has(basename(path))) assert.doesNotMatch(text, /\bfetch\(|new WebSocket|XMLHttpRequest|sendBeacon/, path);
    if (path !== 'dom.js') assert.doesNotMatch(text, /createElement/, path);
  }
});

test('the dark colours stand twice, and are the same', () => {
  const { text } = files.find(({ path }) => path === 'style.css');
  const [system] = /(?<=not\(\[data-theme=light\]\) \{)[^}]*/.exec(text);
  const [chosen] = /(?<=:root\[data-theme=dark\] \{)[^}]*/.exec(text);
  assert.equal(system.trim(), chosen.trim());
});
