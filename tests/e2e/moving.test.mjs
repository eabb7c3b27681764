// Pages for readers who come from another server: their examples run as they stand there.
// The page about symptoms: its lines of the log are those of the server.
import assert from 'node:assert/strict';
import { execFile, execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { describe, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { Centrifuge, UnauthorizedError } from 'centrifuge';
import WebSocket from 'ws';
import { Heard } from './hooks.mjs';
import { PATIENCE, until } from './patience.mjs';
import { spawn } from './processes.mjs';
import { freePort, token as sign } from './server.mjs';

const root = new URL('../../', import.meta.url).pathname;
const binary = resolve(process.env.TOUCHLINE_BIN ?? join(root, 'target/debug/touchline'));
const timeout = 180_000;
const SECRET = 'a-secret-for-this-example-only-32-bytes';
const KEY = 'a-key-for-this-example-only';

/** The blocks of a section with the hint in the line before each: `hint`, `language`, `text`. */
function blocks(path, heading) {
  const section = readFileSync(join(root, path), 'utf8').split(/^## /m).find((part) => part.startsWith(heading));
  assert.ok(section, `${path} has no section ${heading}`);
  return [...section.matchAll(/^(?:<!-- (.*) -->\n)?```(\w+)\n([^]*?)^```$/gm)].map(([, hint = '', language, text]) => ({ hint, language, text }));
}

/** The files and programs of one page, on ports of this test. Pages say 8000 for the server and 3001 for the hooks. */
class Moved {
  static async start(t, path, sections) {
    const moved = new Moved();
    moved.blocks = sections.flatMap((heading) => blocks(path, heading));
    moved.ports = { 8000: await freePort(), 3001: await freePort() };
    moved.directory = mkdtempSync(join(tmpdir(), 'touchline-moving-'));
    moved.running = [];
    t.after(() => moved.end());
    for (const { hint, text } of moved.blocks) {
      const name = hint.match(/^file: (\S+)$/)?.[1];
      if (name) writeFileSync(join(moved.directory, name), moved.here(text), { mode: 0o600 });
    }
    return moved;
  }

  /** A text of the page with the ports of this test. */
  here(text) { return text.replaceAll(/\b(8000|3001)\b/g, (port) => this.ports[port]); }

  /** Starts a program, and waits for its words. */
  async run(words, pattern) {
    const program = spawn(words[0], words.slice(1), { cwd: this.directory });
    program.said = '';
    for (const stream of [program.stdout, program.stderr]) stream.on('data', (data) => (program.said += data));
    this.running.push(program);
    await until(() => pattern.test(program.said) || program.exitCode !== null, () => program.said);
    assert.match(program.said, pattern);
    return program;
  }

  serve(file) { return this.run([binary, 'serve', '--config', file], /ready/); }

  /** Pastes the block that has these words; the pages of this process run meanwhile. */
  async paste(part) { return (await promisify(execFile)('bash', ['-e', '-c', this.here(this.block('sh', part))], { cwd: this.directory })).stdout; }

  block(language, part) {
    const found = this.blocks.filter((block) => block.language === language && !block.hint.startsWith('not run') && block.text.includes(part));
    assert.equal(found.length, 1, `one block of the page has ${part}`);
    return found[0].text;
  }

  /** Opens a page: the code of blocks. `routes`: what the backend answers to a path, a token or a status. Gives what the page shows, and its variables of these names. */
  open(parts, names, routes) {
    const shown = new Heard();
    const code = parts.map((part) => this.here(this.block('js', part)).replaceAll(/^import .*$/gm, '')).join('\n');
    const Client = class extends Centrifuge { constructor(url, options) { super(url, { ...options, websocket: WebSocket, minReconnectDelay: 100, maxReconnectDelay: 500 }); } };
    const fetch = async (path) => {
      const answer = routes(path);
      return typeof answer === 'number' ? { ok: false, status: answer } : { ok: true, status: 200, text: async () => answer };
    };
    const given = { Centrifuge: Client, UnauthorizedError, fetch, location: { pathname: '/chat' }, show: (text) => shown.all.push(text) };
    const page = new Function(...Object.keys(given), `${code}; return { ${names.join(', ')} };`)(...Object.values(given));
    this.running.push({ kill: () => page.client.disconnect() });
    return { ...page, shown, shows: (text) => shown.first((line) => line === text) };
  }

  async api(operation, body) {
    const response = await fetch(`http://127.0.0.1:${this.ports[8000]}/api/${operation}`, { method: 'POST', headers: { 'X-API-Key': KEY }, body: JSON.stringify(body) });
    return response.json();
  }

  end() {
    for (const program of this.running.reverse()) program.kill();
    rmSync(this.directory, { recursive: true, force: true });
  }
}

describe('from Centrifugo', () => {
  const path = 'docs/guides/from-centrifugo.md';

  test('its configuration is read, and its request and its page work', { timeout }, async (t) => {
    const moved = await Moved.start(t, path, ['An example before and after']);
    const findings = execFileSync(binary, ['check', 'config.json'], { cwd: moved.directory, env: { PATH: process.env.PATH }, encoding: 'utf8' });
    assert.equal(findings, moved.block('text', 'log.file'));
    await moved.serve('config.json');
    const open = (user) => moved.open(['chat:lobby'], ['client', 'lobby'], (route) => (assert.equal(route, '/token'), sign({ sub: user }, SECRET)));
    const [ann, bob] = [open('ann'), open('bob')];
    for (const page of [ann, bob]) await page.lobby.ready(PATIENCE);
    const { result } = JSON.parse(await moved.paste('/api/publish'));
    assert.deepEqual([result.offset, typeof result.epoch], [1, 'string']);
    for (const page of [ann, bob]) await page.shows('hello');
    await bob.lobby.publish({ text: 'from Bob' });
    await ann.shows('from Bob');
    const { result: presence } = await moved.api('presence_stats', { channel: 'chat:lobby' });
    assert.equal(presence.num_users, 2);
  });
});

describe('from Socket.IO', () => {
  const start = async (t) => {
    const moved = await Moved.start(t, 'docs/guides/from-socketio.md', ['After: the same with Touchline', 'Users and their sockets', 'Ask clients']);
    await moved.run([process.execPath, 'backend.mjs'], /hooks are answered/);
    await moved.serve('touchline.toml');
    moved.page = (user, ...more) => moved.open(['newSubscription', ...more], ['client', 'room', 'say'], (route) => (assert.equal(route, '/token'), sign({ sub: user }, SECRET)));
    return moved;
  };

  test('a room, its members, its acknowledgements, and what a page has missed', { timeout }, async (t) => {
    const moved = await start(t);
    const [ann, bob, eve] = ['ann', 'bob', 'eve'].map((user) => moved.page(user));
    for (const page of [ann, bob]) await page.room.ready(PATIENCE);
    await eve.shows('not in the room: you are not a member of this room (403)');
    assert.deepEqual(await ann.say('hello'), { ok: true });
    for (const page of [ann, bob]) await page.shows('ann: hello');
    await assert.rejects(ann.say(''), { code: 400, message: 'the text is empty' });
    await assert.rejects(eve.say('let me in'), { code: 403, message: 'you are not a member of this room' });
    await assert.rejects(ann.client.rpc('other', {}), { code: 404 });
    await assert.rejects(ann.room.publish({ event: 'message', from: 'bob', text: 'forged' }), { code: 103 });
    bob.client.disconnect();
    await ann.say('one');
    await ann.say('two');
    bob.client.connect();
    await bob.shows('ann: two');
    assert.deepEqual(bob.shown.all, ['ann: hello', 'ann: one', 'ann: two']);
    assert.deepEqual(eve.shown.all, ['not in the room: you are not a member of this room (403)']);
  });

  test('the channel and the connections of a user', { timeout }, async (t) => {
    const moved = await start(t);
    const [ann, bob] = [moved.page('ann'), moved.page('bob')];
    for (const page of [ann, bob]) await page.room.ready(PATIENCE);
    assert.equal(JSON.parse(await moved.paste('user:#ann')).result.offset, 1);
    await ann.shows('server: hello');
    ann.client.disconnect();
    assert.equal(JSON.parse(await moved.paste('user:#ann')).result.offset, 2);
    ann.client.connect();
    await until(() => ann.shown.all.length === 2, () => ann.shown.all);
    const got = new Promise((done) => { bob.client.on('message', ({ data }) => done(data)); });
    assert.equal(JSON.parse(await moved.paste('/api/send')).result.sent, 1);
    assert.deepEqual((await got).data, { event: 'message', from: 'server', text: 'hello' });
    assert.deepEqual(bob.shown.all, []);
  });

  test('a call to all connections of a user, with their answers', { timeout }, async (t) => {
    const moved = await start(t);
    const pages = [0, 1].map(() => moved.page('ann', 'registry.join'));
    for (const page of pages) await page.client.ready(PATIENCE);
    await until(async () => (await moved.api('members', { scope: 'people', group: 'ann' })).result?.members.length === 2, () => 'two members');
    const { replies, silent } = JSON.parse(await moved.paste('/api/call')).result;
    assert.deepEqual([replies.map(({ data }) => data), silent], [[{ where: '/chat', to: 'where' }, { where: '/chat', to: 'where' }], []]);
    const eve = moved.page('eve');
    await eve.client.ready(PATIENCE);
    await assert.rejects(eve.client.rpc('registry.join', { scope: 'people', group: 'ann' }), { code: 103 });
    for (const page of pages) page.client.disconnect();
    await until(async () => (await moved.api('call', { scope: 'people', group: 'ann', data: {} })).error?.code === 4002, () => 'nobody is there');
  });
});

describe('from Pusher', () => {
  const start = async (t) => {
    const moved = await Moved.start(t, 'docs/guides/from-pusher.md', ['After: the same with Touchline']);
    await moved.serve('touchline.toml');
    const backend = await import(pathToFileURL(join(moved.directory, 'backend.mjs')));
    // The two routes of the backend: only Ann has order 42.
    moved.page = (user, ...more) => moved.open(['UnauthorizedError', ...more], ['client', 'order', ...(more.length > 0 ? ['room', 'typing', 'price'] : [])], (route) => {
      const { pathname, searchParams } = new URL(route, 'http://localhost:3000');
      if (pathname === '/connection-token') return backend.connectionToken(user, { name: user.toUpperCase() });
      assert.equal(pathname, '/subscription-token');
      return user === 'ann' ? backend.subscriptionToken(user, searchParams.get('channel')) : 403;
    });
    return Object.assign(moved, { backend });
  };

  test('a private channel, events by their names, and what a page has missed', { timeout }, async (t) => {
    const moved = await start(t);
    const [ann, eve] = [moved.page('ann'), moved.page('eve')];
    const refused = new Promise((done) => { eve.order.on('unsubscribed', done); });
    await ann.order.ready(PATIENCE);
    assert.deepEqual(await refused, { channel: 'orders:42', code: 1, reason: 'unauthorized' });
    assert.equal((await moved.backend.trigger('orders:42', 'shipped', { parcel: 'A-7' })).offset, 1);
    await ann.shows('parcel A-7 is on its way');
    await moved.backend.trigger('orders:42', 'paid', {});
    ann.client.disconnect();
    assert.match(await moved.paste('/api/publish'), /"offset":3/);
    ann.client.connect();
    await until(() => ann.shown.all.length === 2, () => ann.shown.all);
    assert.deepEqual(eve.shown.all, []);
    await assert.rejects(moved.backend.trigger('private-orders:42', 'shipped', {}), /unknown channel: .* \(102\)/);
  });

  test('members, events of clients, a cached value, and the end of a user', { timeout }, async (t) => {
    const moved = await start(t);
    await moved.backend.trigger('prices:gold', 'price', { euro: 70 });
    await moved.backend.trigger('prices:gold', 'price', { euro: 71 });
    const open = (user) => moved.page(user, "'room:lobby'", 'prices:gold');
    const ann = open('ann');
    await ann.shows('here: ann ANN');
    await ann.shows('gold: 71');
    const bob = open('bob');
    await bob.shows('here: ann ANN');
    await bob.shows('here: bob BOB');
    await ann.shows('joined: bob BOB');
    await bob.typing('Bob');
    for (const page of [ann, bob]) await page.shows('Bob is typing');
    assert.ok(!ann.shown.all.includes('gold: 70'));
    const ended = new Promise((done) => { ann.client.on('disconnected', done); });
    assert.equal(await moved.paste('/api/disconnect'), '{"result":{}}');
    assert.equal((await ended).code, 3503);
    await bob.shows('left: ann');
  });
});

test('the lines of refusals on the page about symptoms are those of the server', { timeout }, async (t) => {
  const path = 'docs/guides/troubleshooting.md';
  const lines = new Set([...readFileSync(join(root, path), 'utf8').matchAll(/^\S+Z  INFO (refused: .*? code=\d+)/gm)].map(([, line]) => line));
  assert.ok(lines.size >= 9, [...lines].join('\n'));
  const moved = await Moved.start(t, path, []);
  const settings = {
    http_server: { address: '127.0.0.1', port: moved.ports[8000] },
    http_api: { key: KEY },
    client: { token: { hmac_secret_key: SECRET }, rate_limit: { client_command: { enabled: true, publish: { enabled: true, buckets: [{ interval: '1h', rate: 3 }] } } } },
    channel: { namespaces: [{ name: 'news', allow_subscribe_for_client: true, history_size: 9, history_ttl: '60s' }] },
  };
  writeFileSync(join(moved.directory, 'config.json'), JSON.stringify(settings), { mode: 0o600 });
  const server = await moved.serve('config.json');
  const url = `ws://127.0.0.1:${moved.ports[8000]}/connection/websocket`;
  const socket = new WebSocket(url, { origin: 'https://shop.example.com' });
  assert.match((await new Promise((done) => { socket.once('error', done); })).message, /403/);
  const client = (token) => {
    const opened = new Centrifuge(url, { websocket: WebSocket, token });
    moved.running.push({ kill: () => opened.disconnect() });
    opened.connect();
    return opened;
  };
  for (const token of ['', 'no.token', sign({ sub: '42' }, 'another-secret-of-32-bytes-or-more')]) {
    const refused = client(token);
    await new Promise((done) => { refused.once('disconnected', done); });
  }
  const good = client(sign({ sub: '42' }, SECRET));
  for (const channel of ['chat:1', 'plain']) {
    const subscription = good.newSubscription(channel);
    subscription.subscribe();
    await new Promise((done) => { subscription.once('unsubscribed', done); });
  }
  const news = good.newSubscription('news:1');
  news.subscribe();
  await assert.rejects(news.history({ limit: 1 }), { code: 103 });
  for (const code of [103, 103, 103, 111]) await assert.rejects(news.publish({}), { code });
  for (const line of lines) await until(() => server.said.includes(line), () => `${line}\n${server.said}`);
});
