// Tests of the modules that do not need a page.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as format from '../format.js';
import { curl, operationsOf } from '../pages/api.js';
import { divided as channelFilter } from '../pages/channels.js';
import { divided as connectionFilter } from '../pages/connections.js';
import { stepOf } from '../pages/statistics.js';
import { chipText, filterText, fits, globbed, parseFilter, quantity } from '../parts/filter.js';
import { at } from '../parts/json.js';
import { runs, thinned } from '../parts/spark.js';
import { commandOf } from '../parts/dialog.js';
import { condition, dataOf, preview } from '../parts/tail.js';
import { read, write, Written } from '../read.js';
import { href, inside, parse } from '../route.js';
import { failure, isOff, switchedOff, WORDS } from '../words.js';
import { openapi } from './mock_data.mjs';

const plain = (text) => text.replaceAll('\u00a0', ' ');

test('figures have three digits, their unit, and a dash where nothing is known', () => {
  assert.equal(format.count(100412), '100,412');
  assert.equal(format.count(-3), '−3');
  assert.equal(format.count(null), '–');
  assert.equal(format.count(undefined), '–');
  assert.equal(format.short(100412), '100,412');
  assert.equal(plain(format.short(1_204_000)), '1.2 M');
  assert.equal(format.rate(1.24), '1.2/s');
  assert.equal(format.rate(402.4), '402/s');
  assert.equal(plain(format.bytes(1024 * 1024)), '1.0 MiB');
  assert.equal(plain(format.bytes(208 * 1024 * 1024)), '208 MiB');
  assert.equal(plain(format.bytes(41)), '41 B');
  assert.equal(plain(format.bytes(1023.5 * 1024)), '1.0 MiB');
  assert.equal(plain(format.percent(71.2)), '71 %');
});

test('durations have at most two units', () => {
  const texts = [84, 4100, 41_000, 660_000, 7_860_000, 187_200_000].map((ms) => plain(format.duration(ms)));
  assert.deepEqual(texts, ['84 ms', '4.1 s', '41 s', '11 min', '2 h 11 min', '2 d 4 h']);
});

test('times are those of one zone, today without the day', () => {
  format.useUtc(true);
  const now = Date.UTC(2026, 10, 22, 3, 17, 2);
  assert.equal(format.clock(now, now), '03:17:02');
  assert.equal(format.clock(now - 86_400_000, now), '21 Nov 03:17');
  assert.equal(format.clock(Date.UTC(2025, 0, 2, 3, 4), now), '2 Jan 2025 03:04');
  assert.equal(plain(format.since(now - 660_000, now)), '03:06:02 (11 min)');
  assert.equal(format.clockMs(now + 114), '03:17:02.114');
  assert.equal(format.zoneName(now), 'UTC');
});

test('invisible characters are written as escapes', () => {
  assert.equal(format.visible('a\u202Eb'), 'a\\u202Eb');
  assert.equal(format.visible('\u0000\n\u200b'), '\\u0000\\u000A\\u200B');
  assert.equal(format.visible('\u{e0041}'), '\\u{E0041}');
  assert.equal(format.visible('\ud800x'), '\\uD800x');
  assert.equal(format.visible('Zürich 日本 🎉'), 'Zürich 日本 🎉');
});

test('quantities of filters have units', () => {
  assert.equal(quantity('64KiB'), 65_536);
  assert.equal(quantity('1,000'), 1000);
  assert.ok(Number.isNaN(quantity('many')));
});

test('numbers of payloads stay as they were written', () => {
  const text = '{"data":{"a":10.20,"b":9223372036854775807,"c":[1e400,-0.0]},"offset":84.0}';
  const value = read(text);
  assert.ok(value.data.a instanceof Written);
  assert.equal(value.offset, 84);
  assert.equal(write(value.data), '{"a":10.20,"b":9223372036854775807,"c":[1e400,-0.0]}');
  assert.equal(write(read('[1.50]', true)), '[1.50]');
  const pushed = read('{"push":{"pub":{"data":{"result":{"rate":9.0,"data":{"price":9.0}}}}}}').push.pub.data.result;
  assert.equal(pushed.rate, 9);
  assert.equal(write(pushed.data), '{"price":9.0}');
});

test('the reader takes what JSON is, and nothing else', () => {
  for (const text of ['null', '"\\u202e\\n"', '[]', '{}', ' [1 , {"a" : true}] ', '-1.5E+3']) assert.deepEqual(JSON.parse(write(read(text))), JSON.parse(text));
  for (const text of ['', '{', '[1,]', '{"a":}', '01', "'a'", '"\n"', '[1] 2', '{"a" 1}', 'tru', '{"a":1,}']) assert.throws(() => read(text), SyntaxError, text);
  assert.throws(() => read('['.repeat(100_000)), SyntaxError);
  const own = read('{"__proto__":{"polluted":1}}');
  assert.equal({}.polluted, undefined);
  assert.equal(write(own), '{"__proto__":{"polluted":1}}');
});

test('filters are read as they are written', () => {
  const keys = ['user', 'waiting', 'name'];
  const text = 'user:42 -name:"a b" waiting:>64KiB market:ticks plain';
  const chips = parseFilter(text, keys);
  assert.deepEqual(chips.map(({ key, op, value, not }) => [key, op, value, not]), [
    ['user', '=', '42', false], ['name', '=', 'a b', true], ['waiting', '>', '64KiB', false], ['', '=', 'market:ticks', false], ['', '=', 'plain', false]]);
  assert.equal(filterText(chips), text);
  assert.equal(chipText(parseFilter('user:""', keys)[0]), 'user:""');
  assert.deepEqual(parseFilter('  ', keys), []);
  assert.equal(parseFilter('name:"a \\"b\\\\"', keys)[0].value, 'a "b\\');
  assert.equal(globbed('a*[b]{c}'), 'a\\*\\[b\\]\\{c\\}');
});

test('rows fit all chips or do not', () => {
  const fields = { '': (row) => row.name, waiting: (row) => row.waiting, user: (row) => row.user };
  const row = { name: 'market:ticks', waiting: 70_000, user: '42' };
  const fit = (text) => fits(row, parseFilter(text, Object.keys(fields)), fields);
  assert.equal(fit('ticks waiting:>64KiB user:42'), true);
  assert.equal(fit('-user:42'), false);
  assert.equal(fit('waiting:<64KiB'), false);
  assert.equal(fit('user:4'), false);
});

test('tails are filtered by a path', () => {
  const frame = read('{"data":{"symbol":"X","price":10.20,"list":[{"a b":true}]}}');
  assert.equal(condition('data.symbol = X')(frame), true);
  assert.equal(condition('data.symbol != X')(frame), false);
  assert.equal(condition('data.price = 10.20')(frame), true);
  assert.equal(condition('nothing'), null);
  assert.equal(at(frame, 'data.list[0]["a b"]'), true);
  assert.equal(at(frame, 'data.none.more'), undefined);
  assert.equal(preview('x'.repeat(500)).length, 201);
  assert.equal(write(dataOf({ payload: '{"a":10.20}' })), '{"a":10.20}');
  assert.equal(dataOf({ payload: 'no JSON' }), 'no JSON');
  assert.equal(dataOf({ payload: 'e30=', binary: true }), 'e30=');
  assert.equal(dataOf({}), undefined);
});

test('sparklines have gaps', () => {
  assert.deepEqual(runs([0, 10, null, 5], 10, 30, 10), ['0,10 10,0', '30,5 30,5']);
  assert.deepEqual(runs([7], 7, 30, 10), ['0,0 0,0']);
  assert.deepEqual(runs([NaN, undefined], 0), []);
  assert.deepEqual(thinned([1, 3, null, null, 5, null], 2), [2, null, 5]);
});

test('addresses have pages, and names stay in the query', () => {
  assert.deepEqual(parse('/admin/channel', '?name=market%3Aticks', '/admin'), { name: 'channel', params: { name: 'market:ticks' } });
  assert.deepEqual(parse('/admin/', '', '/admin'), { name: 'overview', params: {} });
  assert.deepEqual(parse('/admin', '', '/admin'), { name: 'overview', params: {} });
  assert.equal(parse('/admin/none', '', '/admin'), null);
  assert.equal(parse('/administrator', '', '/admin'), null);
  assert.equal(parse('/admin/constructor', '', '/admin'), null);
  assert.equal(href('channel', { name: '../x', q: '' }, '/admin'), '/admin/channel?name=..%2Fx');
  assert.equal(href('overview', {}, '/admin'), '/admin/');
});

test('an address from outside leads nowhere else', () => {
  for (const bad of ['//evil.example', '/\\evil.example', 'https://evil.example', 'javascript:alert(1)', '/admin/none', undefined, '']) assert.equal(inside(bad, '/admin'), '/admin/');
  assert.equal(inside('/connections?q=waiting:>64KiB', '/admin'), '/admin/connections?q=waiting:>64KiB');
  assert.equal(inside('/admin/bans', '/admin'), '/admin/bans');
});

test('failures say what did not happen, why, and what to do', () => {
  assert.match(failure({ kind: 'refused', code: 4010, message: 'the database fails' }, 'Nothing was kept.'), /^Nothing was kept\. The database fails\. The database does not answer/);
  assert.match(failure({ kind: 'refused', code: 107, message: 'bad request', field: 'limit' }), /field limit/);
  assert.match(failure({ kind: 'late', ms: 5000 }), /within 5\.0\u00a0s/);
  assert.equal(isOff({ kind: 'refused', code: 108 }), true);
  assert.equal(switchedOff({ code: 108, message: 'not available' }, 'events_dead'), 'Not available. The key that enables it: events, with a durable endpoint.');
  assert.equal(isOff({ kind: 'refused', code: 104 }), true);
  assert.match(switchedOff({ code: 104 }, 'bans'), /does not have the operation bans/);
  assert.match(WORDS.missing(['node-3']), /node-3 did not answer/);
  assert.equal(commandOf('history', { channel: "a'b", limit: 5 }), "touchline api history 'channel=a'\\''b' limit=5");
});

test('what the server cannot filter is left for the page', () => {
  const channels = (text) => channelFilter(parseFilter(text, ['namespace', 'subscribers']));
  assert.deepEqual(channels('').params, {});
  assert.deepEqual(channels('namespace:market ti*').params, { pattern: 'market:*ti\\**' });
  assert.equal(channels('namespace:market subscribers:>100 -namespace:x').local.length, 2);
  const { params, local } = connectionFilter(parseFilter('user:42 transport:sse -transport:tcp user:43 waiting:>64KiB', ['user', 'transport', 'waiting']));
  assert.deepEqual(params, { user: '42', transport: 'sse' });
  assert.equal(local.length, 3);
});

test('the API page knows the operations of the document, and quotes for a shell', () => {
  const operations = operationsOf(openapi());
  assert.deepEqual(operations.map(({ name, reads }) => [name, reads]), [['history', true], ['publish', false], ['stats_top', true]]);
  assert.equal(operations[1].schema.required[0], 'channel');
  assert.match(curl('https://x', 'publish', '{"a":"it\'s"}'), /-d '\{"a":"it'\\''s"\}'$/);
});

test('steps of statistics are whole minutes', () => {
  assert.deepEqual([3600, 86_400, 604_800].map(stepOf), [60, 300, 2100]);
});
