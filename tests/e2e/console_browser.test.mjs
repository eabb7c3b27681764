// The operator's console in Chromium against the real server, with clients that subscribe, publish and answer calls.
import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { Centrifuge } from 'centrifuge';
import WebSocket from 'ws';
import { launch } from './browser.mjs';
import { LIMIT, PATIENCE, until } from './patience.mjs';
import { freePort, KEY, SECRET, Server, token } from './server.mjs';

const PASSWORD = 'the password of operators';
const VIEWER = 'the password of viewers';
const SIGNER = 'a secret that signs the sessions of the console';
const WAIT = { timeout: PATIENCE };
const HOSTILE = '<img src=//evil.example/x onerror=alert(1)>';
const TURNED = 'a\u202Ecod.exe';
const LONG = 'x'.repeat(200);
const OWN = { 'X-Touchline-Console': '1', 'Content-Type': 'application/json' };
const TAGS = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'];
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

const toml = (port, directory) => `
node.name = "node-1"
http_server = { address = "127.0.0.1", port = ${port} }
http_api.key = "${KEY}"
client.allow_anonymous_connect_without_token = true
client.allowed_origins = ["http://127.0.0.1:*"]
client.token.hmac_secret_key = "${SECRET}"
store.primary.url = "sqlite:${join(directory, 'primary.db')}"
health.enabled = true
log.level = "warn"
shutdown = { spread = "200ms", timeout = "5s" }
[admin]
enabled = true
password = "${PASSWORD}"
viewer_password = "${VIEWER}"
secret = "${SIGNER}"
label = "production"
trace_payloads = true
[channel.without_namespace]
allow_subscribe_for_client = true
allow_subscribe_for_anonymous = true
[[channel.namespaces]]
name = "market"
allow_subscribe_for_client = true
presence = true
history_size = 300
history_ttl = "10m"
force_recovery = true
[[registry.scopes]]
name = "devices"
allow_register = ["*"]
allow_join = ["*"]
allow_watch_for_client = true
inbox_size = 10
`;

/** A server with the console, and clients of the server. */
class Night {
  static async start(port) {
    const night = new Night();
    night.directory = mkdtempSync(join(tmpdir(), 'touchline-console-'));
    night.port = port ?? await freePort();
    night.file = join(night.directory, 'touchline.toml');
    writeFileSync(night.file, toml(night.port, night.directory));
    await night.serve();
    night.clients = [];
    return night;
  }

  async serve() {
    this.server = await Server.start({ port: this.port, args: () => ['serve', '--config', this.file] });
    this.http = `http://127.0.0.1:${this.port}`;
    this.admin = `${this.http}/admin`;
  }

  /** A client. It subscribes to `channels`. */
  async client(sub, channels = [], answer) {
    const client = new Centrifuge(this.server.websocket, { websocket: WebSocket, name: 'js', version: '5.8.0', token: token({ sub }), timeout: PATIENCE });
    this.clients.push(client);
    if (answer) client.on('message', ({ data }) => data.call && client.rpc('reply', { call: data.call, data: answer(data.data) }));
    client.on('connected', ({ client: id }) => { client.id = id; });
    client.on('disconnected', ({ code }) => { client.ended = code; });
    client.connect();
    await client.ready(PATIENCE);
    for (const channel of channels) {
      const subscription = client.newSubscription(channel);
      subscription.subscribe();
      await subscription.ready(PATIENCE);
    }
    return client;
  }

  async api(method, body) {
    const answer = await this.server.api(method, body);
    assert.equal(answer.error, undefined, `${method}: ${JSON.stringify(answer.error)}`);
    return answer.result;
  }

  /** Publishes ten times a second until the server ends. */
  publish() {
    let n = 0;
    this.publishing = setInterval(() => this.server.api('publish', { channel: 'market:ticks', data: { symbol: 'X', n: (n += 1) } }).catch(() => {}), 100);
  }

  /** A request as the console's page sends it. `by`: the cookie. */
  ask(path, { body = {}, by, headers = {} } = {}) {
    return fetch(`${this.admin}/${path}`, { method: 'POST', headers: { ...OWN, ...(by && { Cookie: by }), ...headers }, body: JSON.stringify(body) });
  }

  async cookie(password) {
    return (await this.ask('login', { body: { password } })).headers.get('set-cookie').split(';')[0];
  }

  async stop() {
    clearInterval(this.publishing);
    for (const client of this.clients ?? []) client.disconnect();
    await this.server?.stop();
    rmSync(this.directory, { recursive: true, force: true });
  }
}

describe('the console', () => {
  let night, browser, ann, bob;
  before(async () => {
    night = await Night.start();
    ann = await night.client('ann', ['market:ticks', 'lobby'], ({ get }) => ({ of: get, battery: 81 }));
    await ann.rpc('registry.register', { scope: 'devices', name: 'truck-0007', meta: { fw: '1.8' } });
    await ann.rpc('registry.join', { scope: 'devices', group: 'fleet' });
    bob = await night.client('bob', ['market:ticks']);
    const hostile = await night.client(HOSTILE, ['market:ticks', HOSTILE, LONG]);
    for (const name of [HOSTILE, TURNED, LONG]) await hostile.rpc('registry.register', { scope: 'devices', name, meta: { text: HOSTILE + TURNED } });
    await night.client(TURNED, ['market:ticks', 'lobby']);
    await night.api('send', { scope: 'devices', name: 'truck-0007', data: { unlock: true }, store_for: 3600 });
    await night.api('publish', { channel: 'market:ticks', data: { note: HOSTILE + TURNED, price: 10.5 } });
    night.publish();
    browser = await launch();
  });
  after(async () => {
    await browser?.close();
    await night?.stop();
  });

  /** A page that notes each error, each report and each request to another origin. `password` signs it in. */
  async function visitor({ of = night, width = 1440, height = 900, theme = 'light', password = PASSWORD, path = '/' } = {}) {
    const context = await browser.newContext({ viewport: { width, height }, colorScheme: theme, reducedMotion: 'reduce' });
    if (password) await context.addCookies([{ name: 'touchline_console', value: (await of.cookie(password)).split('=')[1], domain: '127.0.0.1', path: '/admin' }]);
    const page = await context.newPage();
    const faults = [];
    page.on('pageerror', (error) => faults.push(error.message));
    page.on('dialog', () => faults.push('a dialog of a script'));
    page.on('console', (message) => message.type() === 'error' && faults.push(`${message.text()} ${message.location().url}`));
    page.on('request', (request) => [of.http, 'blob:', 'data:'].some((own) => request.url().startsWith(own)) || faults.push(`request to ${request.url()}`));
    await page.addInitScript({ content: axe });
    await page.addInitScript(() => addEventListener('securitypolicyviolation', (event) => console.error(`CSP ${event.violatedDirective} ${event.blockedURI}`)));
    const go = async (to) => {
      await page.goto(of.admin + to);
      await settled(page);
    };
    await (password ? go(path) : page.goto(of.admin + path));
    return { context, page, faults, go, see: (selector) => page.waitForSelector(selector, WAIT), close: () => context.close() };
  }

  /** Waits until every panel has an answer. */
  async function settled(page) {
    await page.waitForSelector('h1', WAIT);
    await page.waitForFunction(() => [...document.querySelectorAll('.panel')].every((panel) => {
      const body = panel.querySelector(':scope > .panel-body');
      return !body || !body.hidden || panel.querySelector(':scope > .notice:not([hidden]):not(.loading)');
    }), null, WAIT);
  }

  async function violations(page) {
    const found = await page.evaluate((tags) => globalThis.axe.run(document, { runOnly: tags }), TAGS);
    return found.violations.map(({ id, nodes }) => `${id}: ${nodes.slice(0, 3).map((node) => `${node.html} ${node.any[0]?.message ?? ''}`).join(' | ')}`);
  }

  const addresses = () => [
    '/', '/channels', '/channel?name=market:ticks', '/channel?name=market:ticks&tab=history', '/channel?name=market:ticks&tab=presence', '/channel?name=market:ticks&tab=publish',
    '/channel?name=market:ticks&tab=options', '/connections', '/connections?tab=refused', `/connection?client=${ann.id}`, `/connection?client=${ann.id}&tab=frames`, '/registry?scope=devices',
    '/name?scope=devices&name=truck-0007', '/inbox?scope=devices&name=truck-0007', '/bans', '/events', '/consumers', '/statistics', '/tokens', '/configuration', '/api?operation=publish', '/login', '/none',
  ];

  // The tests of the console with the mock check all sizes. TOUCHLINE_FULL=1 does so here, too.
  for (const [width, theme] of [[390, 'dark'], [1440, 'light'], [390, 'light'], [1440, 'dark']].slice(0, process.env.TOUCHLINE_FULL ? 4 : 1)) {
    test(`every address opens cold and clean at ${width} px, ${theme}`, LIMIT, async () => {
      const { page, faults, go, close } = await visitor({ width, theme });
      for (const path of addresses()) {
        await go(path);
        assert.deepEqual(await violations(page), [], path);
        assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `${path} scrolls sideways`);
        assert.deepEqual(faults, [], path);
      }
      await close();
    });
  }

  test('the page reports a wrong password, the right one opens the requested page, and signing out ends the session', async () => {
    const { context, page, faults, see, close } = await visitor({ password: '', path: '/bans' });
    await see('input[type=password]');
    await page.fill('input[type=password]', 'wrong');
    await page.keyboard.press('Enter');
    await see('text=/Wrong password\\. \\d tr(y is|ies are) left/');
    await page.fill('input[type=password]', PASSWORD);
    await page.keyboard.press('Enter');
    await see('h1:text("Bans")');
    assert.equal(new URL(page.url()).pathname, '/admin/bans');
    const [cookie] = await context.cookies();
    assert.deepEqual([cookie.httpOnly, cookie.sameSite, cookie.path], [true, 'Strict', '/admin']);
    await page.click('#head > button:last-child');
    await page.click('dialog button:text("Sign out")');
    await see('text=You are signed out');
    assert.deepEqual(await context.cookies(), []);
    // The live link may try once more while the session ends.
    assert.deepEqual(faults.filter((fault) => !/401|HTTP Authentication failed/.test(fault)), [], 'but for the wrong password nothing fails');
    await close();
  });

  test('a session that is over leads to the sign-in, and back', async () => {
    const session = (ageS) => {
      const bytes = Buffer.alloc(18);
      bytes.write('so');
      for (const at of [2, 10]) bytes.writeBigUInt64BE(BigInt(Math.floor(Date.now() / 1000) - ageS), at);
      return Buffer.concat([bytes, createHmac('sha256', createHmac('sha256', SIGNER).update(PASSWORD).digest()).update(bytes).digest()]).toString('base64url');
    };
    const role = async (ageS) => (await (await fetch(`${night.admin}/session`, { headers: { Cookie: `touchline_console=${session(ageS)}` } })).json()).role;
    assert.deepEqual([await role(60), await role(31 * 60)], ['operator', null], '30 minutes without a request');
    const { context, page, see, close } = await visitor({ path: '/configuration' });
    await see('td:has-text("admin.password")');
    await context.clearCookies();
    await page.click('a[data-page=channels]');
    await see('text=You are signed out');
    await page.fill('input[type=password]', PASSWORD);
    await page.keyboard.press('Enter');
    await see('td:has-text("market:ticks")');
    await close();
  });

  test('Overview shows live figures', async () => {
    const { page, faults, see, close } = await visitor();
    const figure = (label) => page.locator(`.tile:has(.label:text-is("${label}")) .figure`).textContent();
    await see('.live:has-text("Live")');
    await see('td:has-text("sign in")');
    assert.equal(await page.locator('.environment').textContent(), 'production');
    const connected = async () => Number((await figure('Connections')).replaceAll(',', ''));
    const before = await connected();
    const more = await night.client('carl');
    await until(async () => await connected() === before + 1, () => `${before + 1} connections`);
    await until(async () => parseFloat(await figure('Publishes')) > 0, () => 'a rate of publications');
    more.disconnect();
    await until(async () => await connected() === before, () => 'one connection fewer');
    assert.deepEqual(faults, []);
    await close();
  });

  test('one channel: figures, history, presence, options with their origin, a dry run', async () => {
    const { page, faults, go, see, close } = await visitor({ path: '/channel?name=market:ticks&tab=history' });
    await see('td:has-text("\\"symbol\\":\\"X\\"")');
    assert.match(await page.locator('.tile:has(.label:text-is("Subscribers")) .figure').textContent(), /^[45]$/);
    await until(async () => parseFloat(await page.locator('.tile:has(.label:text-is("Publishes")) .figure').textContent()) > 0, () => 'a rate');
    await go('/channel?name=market:ticks&tab=presence');
    for (const user of ['ann', 'bob']) await see(`td:text-is("${user}")`);
    await go('/channel?name=market:ticks&tab=options');
    await see('tr:has(td:text-is("history_size")):has(td:text-is("300")):has-text("touchline.toml:")');
    await see('tr:has(td:text-is("join_leave")):has-text("default")');
    await go('/channel?name=market:ticks&tab=publish');
    await page.fill('textarea', '{"dry": "run"}');
    await page.click('button:text("Dry run")');
    await see('text=/Dry run → \\d subscribers on 1 node/');
    const { publications } = await night.api('history', { channel: 'market:ticks', limit: 100, reverse: true });
    assert.ok(!publications.some(({ data }) => data.dry), 'a dry run publishes nothing');
    assert.deepEqual(faults, []);
    await close();
  });

  test('a tail shows publications with their numbers as written, and is not in the presence', async () => {
    const before = await night.api('channels', { pattern: 'market:*' });
    const { page, faults, see, close } = await visitor({ path: '/channel?name=market:ticks' });
    await see('.tail-row');
    await fetch(`${night.http}/api/publish`, { method: 'POST', headers: { 'X-API-Key': KEY }, body: '{"channel":"market:ticks","data":{"exact":10.20,"big":9223372036854775807}}' });
    await see('.tail-row:has-text("{\\"exact\\":10.20,\\"big\\":9223372036854775807}")');
    await page.fill('.tail-head input', 'data.big = 9223372036854775807');
    await page.waitForFunction(() => [...document.querySelectorAll('.tail-row')].filter((row) => !row.hidden).length === 1, null, WAIT);
    assert.deepEqual(await night.api('channels', { pattern: 'market:*' }), before, 'who looks is no subscriber');
    await page.fill('.tail-head input', '');
    await page.click('[data-pause]');
    await see('.tail-state:has-text("Paused")');
    await page.click('[data-pause]');
    await see('.tail-gap ~ .tail-row');
    assert.deepEqual(faults, []);
    await close();
  });

  test('one connection: its channels, its frames, and its end', async () => {
    const dan = await night.client('dan', ['market:ticks']);
    const { page, faults, go, see, close } = await visitor({ path: '/connections?q=user:dan' });
    await see('text=/1 loaded|all 1/');
    await page.click('[data-row]');
    await see('td:has-text("market:ticks")');
    await go(`/connection?client=${dan.id}&tab=frames`);
    await page.click('button:text-is("Trace for 60 s")');
    await see('.tail-row:has-text("↓ publication market:ticks")');
    const asked = dan.rpc('nothing', { from: 'dan' }).catch(() => {});
    await see('.tail-row:has-text("↑ rpc"):has-text("\\"from\\":\\"dan\\"")');
    await asked;
    await page.click('button:text("End…")');
    await page.click('dialog button:text("End 1 connection")');
    await until(() => dan.ended === 3503, () => `3503, not ${dan.ended}`);
    await see('text=Ended. The values are the last ones');
    assert.deepEqual(faults, []);
    await close();
  });

  test('what was refused is listed', async () => {
    await assert.rejects(bob.rpc('registry.lookup', { scope: 'devices', name: 'truck-0007' }));
    const { faults, see, close } = await visitor({ path: '/connections?tab=refused' });
    await see('tr:has-text("the scope lacks allow_lookup_for_client"):has-text("103")');
    assert.deepEqual(faults, []);
    await close();
  });

  test('the registry: names, groups, and a call that is answered', async () => {
    const { page, faults, go, see, close } = await visitor({ path: '/registry?scope=devices' });
    await see('td:has-text("truck-0007")');
    await see('.summary:has-text("4 names")');
    await go('/registry?scope=devices&tab=groups');
    await see('tr:has-text("fleet"):has-text("1")');
    await go('/name?scope=devices&name=truck-0007');
    await page.fill('textarea', '{"get": "status"}');
    await page.click('button:text-is("Call")');
    await see('text=/Answered after/');
    assert.match(await page.locator('[role=status] .json').textContent(), /battery.*81/);
    await see('a:text("1 wait")');
    assert.deepEqual(faults, []);
    await close();
  });

  test('the inbox: what waits, and dropping it', async () => {
    await night.api('send', { scope: 'devices', name: 'nobody', data: { n: 1 }, store_for: 3600 });
    const { page, faults, go, see, close } = await visitor({ path: '/inbox?scope=devices' });
    await see('tr:has-text("truck-0007")');
    await go('/inbox?scope=devices&name=nobody');
    await page.click('button:text("Drop this")');
    await page.click('dialog button:text("Drop 1 message")');
    await see('.toast:has-text("1 message dropped")');
    await see('text=No message waits for this name.');
    assert.deepEqual(faults, []);
    await close();
  });

  test('bans: a user is blocked, and let in again', async () => {
    const eve = await night.client('eve');
    const { page, faults, see, close } = await visitor({ path: '/bans' });
    await page.click('button:text("Block a user")');
    await page.fill('dialog input >> nth=0', 'eve');
    await page.fill('dialog input >> nth=1', '2');
    await page.click('dialog button:text("Block 1 user")');
    await until(() => eve.ended === 3503, () => `3503, not ${eve.ended}`);
    await see('tr:has-text("eve"):has-text("in 1 h 59 min"), tr:has-text("eve"):has-text("in 2 h")');
    await page.click('button:text-is("Unblock")');
    // The page is refreshed between the two presses.
    await night.api('block_user', { user: 'mallory' });
    await see('button:text("1 new: show")');
    await night.api('unblock_user', { user: 'mallory' });
    await page.waitForSelector('[data-newer]', { ...WAIT, state: 'hidden' });
    assert.equal(await page.locator('button.armed').count(), 1, 'the button still waits for its second press');
    await page.click('button:text("Press again: unblock 1 user")');
    await see('.toast:has-text("User eve can connect again.")');
    await see('text=No user is blocked.');
    const again = await night.client('eve');
    again.disconnect();
    assert.deepEqual(faults, []);
    await close();
  });

  test('the configuration: values with their places, no secret', async () => {
    const { page, faults, see, close } = await visitor({ path: '/configuration?q=changed:yes' });
    await see('tr:has(td:text-is("channel.namespaces[market].history_size")):has(td:text-is("300")):has-text("touchline.toml:")');
    for (const key of ['admin.password', 'admin.viewer_password', 'admin.secret', 'http_api.key', 'client.token.hmac_secret_key']) await see(`tr:has(td:text-is("${key}")):has-text("set, hidden")`);
    const answer = await (await night.ask('op/configuration', { by: await night.cookie(PASSWORD) })).text();
    for (const secret of [PASSWORD, VIEWER, SIGNER, KEY, SECRET]) {
      assert.ok(!(await page.content()).includes(`"${secret}"`) && !answer.includes(secret), secret);
    }
    writeFileSync(night.file, toml(night.port, night.directory).replace('"10m"', '"9m"'));
    await page.click('button:text("Reload")');
    await page.click('dialog button:text("Reload 1 node")');
    await see('.toast:has-text("Generation 2 is active; changed: channel.namespaces[market].history_ttl.")');
    await see('.summary:has-text("Generation 2")');
    await see('td:text-is("\\"9m\\"")');
    assert.deepEqual(faults, []);
    await close();
  });

  test('tokens are checked', async () => {
    const { page, faults, see, close } = await visitor({ path: '/tokens' });
    for (const [text, words] of [[token({ sub: 'ann', exp: 1 }), 'Not valid'], [token({ sub: 'ann' }), 'Valid'], ['nonsense', 'Not valid']]) {
      await page.fill('textarea', text);
      await page.click('button:text("Check the token")');
      await see(`.verdict:has-text("${words}:")`);
    }
    assert.ok(!page.url().includes('ey'), 'no token stands in the address');
    assert.deepEqual(faults, []);
    await close();
  });

  test('the API page: a form from the schema, the request as curl, the answer with its time', async () => {
    const { page, faults, go, see, close } = await visitor({ path: '/api?operation=channels' });
    await see('label:text-is("pattern")');
    await see('code:has-text("$KEY")');
    await page.fill('.schema-form .field:has(label:text-is("pattern")) input', 'market:*');
    await see('code:has-text("market:*")');
    await page.click('button:text-is("Send")');
    await see('text=/^200 in /');
    assert.match(await page.locator('.json').textContent(), /market:ticks/);
    await go('/api?operation=publish');
    await see('button:text("Send…")');
    const offered = await page.locator('select[aria-label=Operation] option').allTextContents();
    const { paths } = await (await fetch(`${night.http}/api/openapi.json`, { headers: { 'X-API-Key': KEY } })).json();
    assert.ok(offered.length > 50 && offered.every((name) => `/api/${name}` in paths), `${offered}`);
    assert.deepEqual(faults, []);
    await close();
  });

  test('a viewer sees no payload, and may change nothing', async () => {
    const by = await night.cookie(VIEWER);
    const { page, faults, go, see, close } = await visitor({ password: VIEWER, path: '/channel?name=market:ticks&tab=history' });
    await see('td:has-text("hidden")');
    assert.doesNotMatch(await page.locator('#page').textContent(), /symbol/);
    for (const [path, button] of [['/channel?name=market:ticks', 'Remove history…'], [`/connection?client=${ann.id}`, 'End…'], ['/bans', 'Block a user…'], ['/configuration', 'Reload…']]) {
      await go(path);
      const act = page.locator(`button:text-is("${button}")`);
      assert.equal(await act.getAttribute('title'), 'Your role is viewer; an operator may do this.', path);
      await act.click({ force: true });
      assert.equal(await page.locator('dialog').count(), 0, path);
    }
    await go('/channel?name=market:ticks');
    await see('.tail-row:has-text("hidden")');
    assert.doesNotMatch(await page.locator('.tail-rows').textContent(), /symbol/);
    const changes = ['publish', 'broadcast', 'disconnect', 'unsubscribe', 'history_remove', 'block_user', 'unblock_user', 'revoke_token', 'invalidate_user_tokens', 'forget_user', 'call', 'send', 'unregister', 'inbox_drop', 'events_dead_retry', 'events_dead_drop', 'events_resume', 'reload', 'batch', 'rpc'];
    for (const operation of changes) {
      const answer = await night.ask(`op/${operation}`, { by, body: { channel: 'market:ticks', user: 'ann', data: 1 } });
      assert.equal(answer.status, 403, operation);
      assert.equal((await answer.json()).error.code, 103, operation);
    }
    for (const [operation, body] of [['history', { channel: 'market:ticks', limit: 50 }], ['presence', { channel: 'market:ticks' }], ['connections', {}], ['names', { scope: 'devices' }], ['lookup', { scope: 'devices', name: 'truck-0007' }], ['inbox_list', { scope: 'devices', name: 'truck-0007', limit: 9 }]]) {
      const text = await (await night.ask(`op/${operation}`, { by, body })).text();
      assert.match(text, /"result"/, operation);
      assert.doesNotMatch(text, /symbol|"fw"|unlock|onerror=alert\(1\)>a/, operation);
    }
    assert.deepEqual(faults, []);
    await close();
  });

  test('requests from other origins are refused', async () => {
    const by = await night.cookie(PASSWORD);
    const body = { channel: 'market:ticks' };
    const status = async (options) => (await night.ask('op/channel', { body, ...options })).status;
    assert.equal(await status({ by }), 200);
    assert.equal(await status({}), 401, 'without a session');
    assert.equal(await status({ by, headers: { Origin: 'https://evil.example' } }), 403, 'from a foreign origin');
    assert.equal(await status({ by, headers: { 'Sec-Fetch-Site': 'cross-site' } }), 403, 'from a foreign site');
    assert.equal((await fetch(`${night.admin}/op/channel`, { method: 'POST', headers: { Cookie: by }, body: JSON.stringify(body) })).status, 403, 'without the header');
    assert.equal((await night.ask('login', { body: { password: PASSWORD }, headers: { Origin: 'https://evil.example' } })).status, 403);
    const live = `${night.admin.replace('http', 'ws')}/connection/websocket`;
    const opened = async (origin, key, cookie = by) => {
      const socket = new WebSocket(live, { origin, headers: { Cookie: cookie } });
      const outcome = await Promise.race([once(socket, 'open').then(() => 'open', (error) => error.message), once(socket, 'unexpected-response').then(([, { statusCode }]) => statusCode)]);
      if (outcome !== 'open') return outcome;
      socket.send(JSON.stringify({ id: 1, connect: { token: key } }));
      const [said] = await Promise.race([once(socket, 'message'), once(socket, 'close')]);
      socket.terminate();
      return Boolean(JSON.parse(said).connect);
    };
    const { token: key } = await (await night.ask('token', { by })).json();
    assert.equal(await opened('https://evil.example', key), 403);
    assert.equal(await opened(night.http, key, ''), 401, 'without a session');
    assert.deepEqual([await opened(night.http, key), await opened(night.http, token({ sub: 'ann' })), await opened(night.http, by.split('=')[1])], [true, false, false]);
    const subscription = ann.newSubscription('$console:live:overview:e30');
    const refused = new Promise((resolve) => subscription.on('unsubscribed', resolve));
    subscription.subscribe();
    assert.equal((await refused).code, 102, 'no client opens what is the console\'s');
    const framed = await fetch(`${night.admin}/`);
    assert.equal(framed.headers.get('x-frame-options'), 'DENY');
    assert.match(framed.headers.get('content-security-policy'), /default-src 'none'.*frame-ancestors 'none'.*require-trusted-types-for 'script'/);
  });

  test('the loaded files are small, and the browser caches them', async () => {
    const { page, see, close } = await visitor({ path: '/tokens' });
    await page.addInitScript(() => new MutationObserver((_, watcher) => {
      if (!document.querySelector('.verdict .status')) return;
      globalThis.first = performance.getEntriesByType('resource').map(({ name }) => name).filter((name) => name.includes('/assets/'));
      watcher.disconnect();
    }).observe(document, { subtree: true, childList: true }));
    await page.goto(`${night.admin}/`);
    await see('.verdict .status');
    const first = await page.evaluate(() => globalThis.first);
    const size = async (address) => {
      const answer = await fetch(address, { headers: { 'Accept-Encoding': 'gzip' }, decompress: false });
      assert.match(answer.headers.get('cache-control'), /immutable|no-store/, address);
      return Number(answer.headers.get('content-length'));
    };
    let before = 0;
    for (const address of new Set([page.url(), ...first])) before += await size(address);
    assert.ok(first.length > 5 && before <= 32 * 1024, `${before} bytes in ${first.length} files before Overview shows`);
    const served = first[0].split('/').slice(0, 6).join('/');
    let all = 0;
    for (const file of readFileSync(new URL('../../crates/server/src/api/console/files.rs', import.meta.url), 'utf8').matchAll(/^ {4}"([^"]+)" "/gm)) {
      all += await size(`${served}/${file[1]}`);
    }
    assert.ok(all > before && all <= 80 * 1024, `${all} bytes in all`);
    await close();
  });
});
