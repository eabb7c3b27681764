// The first steps as they are pasted: the first message, and the chat with both of its backends, with the official SDK in Node and in Chromium.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { Centrifuge } from 'centrifuge';
import WebSocket from 'ws';
import { launch } from './browser.mjs';
import { Heard, subscribe } from './hooks.mjs';
import { until } from './patience.mjs';
import { spawn } from './processes.mjs';
import { freePort } from './server.mjs';

const root = new URL('../../', import.meta.url).pathname;
const binary = resolve(process.env.TOUCHLINE_BIN ?? join(root, 'target/debug/touchline'));
const modules = new URL('node_modules', import.meta.url).pathname;
const timeout = 180_000;

/** The fenced blocks of a page, in order: the hint before the fence, language and text. */
function blocks(path) {
  const page = readFileSync(join(root, path), 'utf8');
  return [...page.matchAll(/^(?:<!-- (.*) -->\n)?```(\w+)\n([^]*?)^```$/gm)].map(([, hint = '', language, text]) => ({ hint, language, text }));
}

/** The block whose text matches. */
function block(page, pattern) {
  const found = blocks(page).filter(({ text }) => pattern.test(text));
  assert.equal(found.length, 1, `${page} has one block with ${pattern}`);
  return found[0];
}

/** A directory in which the blocks of a page are pasted. Ports of the page become free ones. */
class Paste {
  constructor(page, ports, environment = {}) {
    Object.assign(this, { page, ports, running: [], directory: mkdtempSync(join(tmpdir(), 'touchline-chat-')) });
    symlinkSync(binary, join(this.directory, 'touchline'));
    this.environment = { PATH: `${this.directory}:${process.env.PATH}`, HOME: this.directory, ...environment };
  }

  here(text) { return text.replace(/\b\d{4}\b/g, (port) => this.ports[port] ?? port); }

  file(name) {
    const found = blocks(this.page).find(({ hint }) => hint === `file: ${name}`);
    writeFileSync(join(this.directory, name), this.here(found.text));
  }

  shell(text) { return execFileSync('bash', ['-e', '-c', text], { cwd: this.directory, env: this.environment, encoding: 'utf8' }); }

  /** Pastes a block that ends; its output has to match the hint of the block. */
  run(pattern) {
    const { hint, text } = block(this.page, pattern);
    const output = this.shell(this.here(text));
    const expected = /^run: output \/(.*)\/$/.exec(hint);
    if (expected) assert.match(output, new RegExp(expected[1]));
    return output;
  }

  /** Pastes a block that runs on, and waits for the text of its hint, or for `ready`. */
  async start(pattern, ready) {
    const { hint, text } = block(this.page, pattern);
    const program = spawn('bash', ['-e', '-c', this.here(text)], { cwd: this.directory, env: this.environment, detached: true });
    const said = { text: '', program };
    for (const stream of [program.stdout, program.stderr]) stream.on('data', (data) => (said.text += data));
    said.has = (expected) => until(() => expected.test(said.text), () => `${expected} in ${said.text}`);
    this.running.push(said);
    await said.has(ready ?? new RegExp(/^run: background \/(.*)\/$/.exec(hint)[1]));
    return said;
  }

  end() {
    for (const { program } of this.running) {
      try { process.kill(-program.pid, 'SIGKILL'); } catch { /* it has ended */ }
    }
    rmSync(this.directory, { recursive: true, force: true });
  }
}

test('the blocks of the page are the files of the example', () => {
  for (const name of ['touchline.toml', 'backend.mjs', 'backend.py', 'index.html']) {
    const found = blocks('docs/start/chat.md').find(({ hint }) => hint === `file: ${name}`);
    assert.equal(found?.text, readFileSync(join(root, 'examples/chat', name), 'utf8'), name);
  }
  const readme = readFileSync(join(root, 'examples/chat/README.md'), 'utf8');
  const { version } = JSON.parse(readFileSync(join(modules, 'centrifuge/package.json'), 'utf8'));
  for (const text of [readme, block('docs/start/chat.md', /npm install/).text]) assert.ok(text.includes(`centrifuge@${version}`), 'the version that is tested');
});

describe('the first message', { concurrency: 1 }, () => {
  const page = 'docs/start/first-message.md';
  let paste;
  before(async () => {
    const [http, tcp, files] = [await freePort(), await freePort(), await freePort()];
    paste = new Paste(page, { 8000: http, 8001: tcp, 3000: files }, { TOUCHLINE_HTTP_SERVER_PORT: `${http}`, TOUCHLINE_TCP_PORT: `${tcp}` });
    await paste.start(/serve --dev/);
  });
  after(() => paste.end());

  test('reaches curl, nc and a page in Chromium', { timeout }, async () => {
    const watching = [await paste.start(/uni_http_stream/), await paste.start(/--get .*uni_sse/), await paste.start(/\bnc\b/)];
    paste.file('first.html');
    await paste.start(/http\.server/);
    const browser = await launch();
    try {
      const tab = await browser.newPage();
      const connected = tab.waitForResponse((response) => response.url().includes('/connection/uni_sse') && response.ok());
      await tab.goto(`http://localhost:${paste.ports[3000]}/first.html`);
      await connected;
      // The last of them connects after the request: publish until the page has it.
      await until(async () => {
        paste.run(/api\/publish/);
        return (await tab.locator('#messages li').count()) > 0;
      }, () => 'a line on the page');
      assert.equal(await tab.locator('#messages li').first().textContent(), '{"headline":"Kick-off"}');
    } finally {
      await browser.close();
    }
    const [shown] = blocks(page).filter(({ language }) => language === 'json');
    for (const one of watching) {
      await one.has(/Kick-off/);
      assert.ok(one.text.includes(shown.text.trim()), one.text);
    }
  });
});

const chat = 'docs/start/chat.md';

/** The directory of the tutorial after its step 3, with a backend in one language. */
class Chat extends Paste {
  static async start(name, run) {
    const [server, page, hooks] = [await freePort(), await freePort(), await freePort()];
    const started = new Chat(chat, { 8000: server, 3000: page, 3001: hooks });
    started.run(/openssl rand/);
    // Tests reach no registry: this npm installs what the tests have.
    const npm = '#!/bin/sh\n[ "$1 $2 $3 $4" = "install --ignore-scripts --prefix ." ] && mkdir node_modules && ln -s "$MODULES/centrifuge" node_modules/centrifuge\n';
    writeFileSync(join(started.directory, 'npm'), npm, { mode: 0o755 });
    started.environment.MODULES = modules;
    started.run(/npm install/);
    for (const file of ['touchline.toml', name, 'index.html']) started.file(file);
    started.server = await started.start(/touchline serve/);
    started.backend = await started.start(run, /the chat is at/);
    started.origin = `http://localhost:${page}`;
    started.clients = [];
    return started;
  }

  async logIn(name) {
    const body = new URLSearchParams({ name });
    const { status, headers } = await fetch(`${this.origin}/login`, { method: 'POST', body, redirect: 'manual' });
    assert.deepEqual([status, headers.get('location')], [303, '/']);
    return headers.get('set-cookie').split(';')[0];
  }

  /** A user with the official SDK, as on the page. */
  async user(name) {
    const [cookie, { origin }] = [await this.logIn(name), this];
    const getToken = async () => (await fetch(`${origin}/token`, { headers: { cookie } })).text();
    const websocket = class extends WebSocket { constructor(url, protocols) { super(url, protocols, { origin }); } };
    const client = new Centrifuge(`ws://127.0.0.1:${this.ports[8000]}/connection/websocket`, { getToken, websocket, minReconnectDelay: 100, maxReconnectDelay: 500 });
    this.clients.push(client);
    client.heard = new Heard();
    client.on('connected', (context) => client.heard.all.push(context));
    client.connect();
    return client;
  }

  async enter(name, channel = 'room:lobby') {
    const client = await this.user(name);
    const room = subscribe(client, channel);
    await room.until('subscribed');
    return { client, room };
  }

  end() {
    for (const client of this.clients) client.disconnect();
    super.end();
    assert.doesNotMatch(this.backend.text, /Error|Traceback/, this.backend.text);
  }
}

const said = (room, text) => room.heard.first(({ name, data }) => name === 'publication' && data.text === text);

async function people(room) {
  const { clients } = await room.presence();
  return Object.values(clients).map(({ connInfo }) => connInfo.name).toSorted();
}

const backends = { 'Node.js': ['backend.mjs', /^node backend/m], Python: ['backend.py', /^python3 backend/m] };
for (const [language, [name, run]] of Object.entries(backends)) {
  describe(`the chat with a backend in ${language}`, { concurrency: 1 }, () => {
    let started;
    before(async () => (started = await Chat.start(name, run)));
    after(() => started.end());

    test('the backend answers as the page shows', { timeout }, async () => {
      started.run(/cookie-jar/);
      started.run(/"user": "eve"/);
      assert.equal((await fetch(`${started.origin}/token`)).status, 401);
      assert.equal((await fetch(`${started.origin}/token`, { headers: { cookie: 'session=forged' } })).status, 401);
      assert.equal((await fetch(`${started.origin}/login`, { method: 'POST', body: new URLSearchParams({ name: ' ' }) })).status, 400);
      for (const path of ['/chat.env', '/backend.py', '/../chat.env']) assert.equal((await fetch(`${started.origin}${path}`)).status, 404);
      const hook = await fetch(`${started.origin}/subscribe`, { method: 'POST', body: '{"user":"ada","channel":"room:lobby"}' });
      assert.equal(hook.status, 404, 'browsers do not reach the hooks');
    });

    test('two users chat: the backend names the author, and rejects some texts', { timeout }, async () => {
      const [ada, eve] = [await started.enter('Ada'), await started.enter('Eve')];
      await ada.room.publish({ text: ' hello ', name: 'Somebody else' });
      for (const { room } of [ada, eve]) assert.equal((await said(room, 'hello')).data.name, 'Ada');
      for (const data of [{ text: ' ' }, {}, 'text', [], { text: 7 }]) await assert.rejects(eve.room.publish(data), { code: 400, message: 'the text is empty' });
      await assert.rejects(eve.room.publish({ text: 'x'.repeat(201) }), { code: 400, message: 'the text is longer than 200 characters' });
      await eve.room.publish({ text: 'x'.repeat(200) });
      await said(ada.room, 'x'.repeat(200));
      started.run(/touchline publish/);
      for (const { room } of [ada, eve]) assert.equal((await said(room, 'We close at six.')).data.name, 'Server');
      for (const { client } of [ada, eve]) client.disconnect();
    });

    test('the backend decides about rooms', { timeout }, async () => {
      const eve = await started.user('Eve');
      for (const channel of ['room:team', 'room:unknown', 'room:__proto__', 'typing:team', 'typing:unknown', 'typing:room:lobby']) {
        const { code, reason } = await subscribe(eve, channel).until('unsubscribed');
        assert.deepEqual([code, reason], [403, 'you are not a member of this room']);
        await assert.rejects(eve.publish(channel, { text: 'hello' }), { code: 403 });
      }
      const { client } = await started.enter('Bob', 'room:team');
      for (const one of [eve, client]) one.disconnect();
    });

    test('presence changes when users come and leave', { timeout }, async () => {
      const ada = await started.enter('Ada');
      const joined = [];
      for (const event of ['join', 'leave']) ada.room.on(event, ({ info }) => joined.push([event, info.connInfo.name]));
      const bob = await started.enter('Bob');
      assert.deepEqual(await people(ada.room), ['Ada', 'Bob']);
      bob.client.disconnect();
      await until(() => joined.some(([event, who]) => event === 'leave' && who === 'Bob'), () => JSON.stringify(joined));
      assert.ok(joined.some(([event, who]) => event === 'join' && who === 'Bob'));
      assert.deepEqual(await people(ada.room), ['Ada']);
      ada.client.disconnect();
    });

    test('a new page reads the last 50 messages, and a client that was offline misses none', { timeout }, async () => {
      const [ada, eve] = [await started.enter('Ada'), await started.enter('Eve')];
      eve.client.disconnect();
      for (let n = 0; n < 45; n += 1) await ada.room.publish({ text: `missed ${n}` });
      eve.client.connect();
      assert.equal((await eve.room.heard.first(({ name, wasRecovering }) => name === 'subscribed' && wasRecovering)).recovered, true);
      await said(eve.room, 'missed 44');
      const texts = eve.room.heard.all.filter(({ name, data }) => name === 'publication' && data.text.startsWith('missed')).map(({ data }) => data.text);
      assert.deepEqual(texts, Array.from({ length: 45 }, (_, n) => `missed ${n}`));
      for (let n = 45; n < 60; n += 1) await ada.room.publish({ text: `missed ${n}` });
      const bob = await started.enter('Bob');
      const { publications } = await bob.room.history({ limit: 50 });
      assert.deepEqual(publications.map(({ data }) => data.text), Array.from({ length: 50 }, (_, n) => `missed ${n + 10}`));
      for (const { client } of [ada, eve, bob]) client.disconnect();
    });

    test('the page does all of it in Chromium', { timeout }, () => inBrowser(started));
  });
}

/** Who is typing in the lobby. The clocks of both pages stand. */
async function typing(started, ada, eve) {
  const [tab, bob] = [await started.enter('Ada', 'typing:lobby'), await started.enter('Bob', 'typing:lobby')];
  const subscribers = () => JSON.parse(started.shell('export $(cat chat.env); touchline api channels --json --config touchline.toml')).result.channels['typing:lobby']?.num_clients;
  await until(() => subscribers() === 4, subscribers);
  await tab.room.publish({});
  await bob.room.publish({ name: 'Somebody else' });
  await ada.shows('typing', /^Bob is typing$/);
  await eve.shows('typing', /^Ada and Bob are typing$/);
  for (const { page, shows } of [ada, eve]) {
    await page.clock.fastForward(4_000);
    await shows('typing', /^$/);
  }

  const message = ada.page.getByLabel('Message');
  await message.pressSequentially('a message');
  await eve.shows('typing', /^Ada is typing$/);
  await ada.page.getByRole('button', { name: 'Send' }).click();
  await eve.shows('messages', /Ada: a message$/);
  await eve.shows('typing', /^$/);
  await until(() => ada.sent.includes('room:lobby'), () => `${ada.sent}`);
  assert.deepEqual(ada.sent, ['typing:lobby', 'room:lobby'], 'one report for all keys');

  await ada.page.clock.fastForward(2_000);
  await message.press('b');
  await eve.shows('typing', /^Ada is typing$/);
  const listed = () => eve.page.locator('#messages li').allTextContents();
  const before = await listed();
  await eve.page.reload();
  await eve.shows('people', /^Ada, Eve$/);
  await eve.shows('typing', /^$/);
  assert.deepEqual(await listed(), before);
  await assert.rejects(bob.room.history({ limit: 50 }), { code: 108 });
  assert.equal(await ada.page.locator('#typing').textContent(), '');
  for (const { client } of [tab, bob]) client.disconnect();
}

/** The table "do this, you see this" of the page. */
async function inBrowser(started) {
  const browser = await launch();
  const open = async (name) => {
    const context = await browser.newContext();
    const page = await context.newPage();
    const faults = [];
    page.on('pageerror', (error) => faults.push(error.stack));
    const sent = []; // the channels of its publish commands
    const commands = (payload) => payload.split('\n').map((line) => JSON.parse(line));
    page.on('websocket', (socket) => socket.on('framesent', ({ payload }) => sent.push(...commands(payload).flatMap(({ publish }) => publish?.channel ?? []))));
    await page.clock.install();
    await page.clock.pauseAt(Date.now() + 3_600_000); // until resume(): no timer removes a name of a user who is typing
    await page.goto(started.origin);
    await page.getByLabel('Your name').fill(name);
    await page.getByRole('button', { name: 'Log in' }).click();
    const shows = (id, pattern) => until(async () => pattern.test(await page.locator(`#${id}`).textContent()), () => `${pattern} in #${id}: ${faults}`);
    await shows('state', /^in room:lobby$/);
    const write = async (text) => {
      await page.getByLabel('Message').fill(text);
      await page.getByRole('button', { name: 'Send' }).click();
    };
    return { context, page, faults, sent, shows, write };
  };
  try {
    const [ada, eve] = [await open('Ada'), await open('Eve')];
    await ada.shows('people', /^Ada, Eve$/);
    await eve.shows('people', /^Ada, Eve$/);
    await typing(started, ada, eve);
    for (const { page } of [ada, eve]) await page.clock.resume();
    await ada.write('<b>in the browser</b>');
    for (const one of [ada, eve]) await one.shows('messages', /Ada: <b>in the browser<\/b>$/);
    await ada.write('');
    await ada.shows('problem', /^the text is empty$/);
    await ada.page.getByRole('link', { name: 'team' }).click();
    await ada.shows('state', /^in room:team$/);
    await eve.shows('people', /^Eve$/);
    await ada.page.goBack();
    await eve.shows('people', /^Ada, Eve$/);
    await ada.shows('state', /^in room:lobby$/);
    await ada.shows('messages', /Ada: <b>in the browser<\/b>$/);
    await eve.context.setOffline(true);
    await eve.shows('state', /^waiting/);
    await ada.shows('people', /^Ada$/);
    for (const n of [1, 2, 3]) {
      await ada.write(`missed ${n}`);
      await ada.shows('messages', new RegExp(`missed ${n}$`));
    }
    await eve.context.setOffline(false);
    await eve.shows('state', /^in room:lobby, missed messages recovered$/);
    await eve.shows('messages', /Ada: missed 1Ada: missed 2Ada: missed 3$/);
    await ada.shows('people', /^Ada, Eve$/);
    await eve.page.reload();
    await eve.shows('state', /^in room:lobby$/);
    await eve.shows('messages', /Ada: missed 1Ada: missed 2Ada: missed 3$/);
    await eve.page.getByRole('link', { name: 'team' }).click();
    await eve.shows('state', /^not in room:team: you are not a member of this room \(403\)$/);
    process.kill(-started.server.program.pid, 'SIGINT');
    await ada.shows('state', /^waiting/);
    await until(() => started.server.program.exitCode !== null, () => started.server.text);
    assert.equal(started.server.program.exitCode, 0, started.server.text);
    started.server = await started.start(/touchline serve/);
    await ada.shows('state', /^in room:lobby$/);
    await ada.shows('messages', /^$/);
    for (const { faults } of [ada, eve]) assert.deepEqual(faults, []);
  } finally {
    await browser.close();
  }
}
