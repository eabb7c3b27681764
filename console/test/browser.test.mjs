// Every page in Chromium against the mock.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { after, before, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { launch } from '../../tests/e2e/browser.mjs';
import { PATIENCE } from '../../tests/e2e/patience.mjs';
import { start } from './mock.mjs';

const WAIT = { timeout: PATIENCE };
const CLIENT = '8f2c0000-9066-444b-bfc3-000100000000';
const PAGES = [
  '/', '/channels', '/channel?name=market:ticks', '/channel?name=market:ticks&tab=history', '/channel?name=market:ticks&tab=publish', '/channel?name=market:ticks&tab=options', '/connections', '/connections?tab=refused',
  `/connection?client=${CLIENT}`, `/connection?client=${CLIENT}&tab=metadata`, `/connection?client=${CLIENT}&tab=frames`, '/registry?scope=devices', '/registry?scope=devices&tab=groups', '/name?scope=devices&name=truck-0007', '/inbox?scope=devices&name=truck-0001',
  '/bans', '/events', '/consumers', '/statistics?channel=market:ticks', '/tokens', '/configuration', '/api?operation=publish', '/none',
];

let mock;
let browser;
// AXE_CORE names the file if the package is not installed beside the tests.
const axe = readFileSync(process.env.AXE_CORE ?? createRequire(new URL('../../tests/e2e/', import.meta.url)).resolve('axe-core/axe.min.js'), 'utf8');

before(async () => {
  mock = await start();
  browser = await launch();
});
after(async () => {
  await browser?.close();
  await mock?.close();
});

/** A signed-in page that records each error, each report and each request to another origin. */
async function visitor({ width = 1440, height = 900, theme = 'light', password = 'mock', path = '/' } = {}) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: theme, reducedMotion: 'reduce' });
  const page = await context.newPage();
  const faults = [];
  page.on('pageerror', (error) => faults.push(error.message));
  page.on('console', (message) => message.type() === 'error' && faults.push(message.text()));
  page.on('request', (request) => request.url().startsWith(mock.url) || request.url().startsWith('blob:') || faults.push(`request to ${request.url()}`));
  await page.addInitScript({ content: axe });
  await page.addInitScript(() => addEventListener('securitypolicyviolation', (event) => console.error(`CSP ${event.violatedDirective} ${event.blockedURI}`)));
  await page.goto(`${mock.url}${mock.prefix}${path}`);
  if (password) {
    await page.fill('input[type=password]', password);
    await page.keyboard.press('Enter');
    await page.waitForSelector('.shelled', WAIT);
  }
  return { page, faults, close: () => context.close() };
}

const settled = async (page) => {
  await page.waitForSelector('h1', WAIT);
  await page.waitForFunction(() => ![...document.querySelectorAll('.notice.loading')].some((one) => !one.hidden) && document.querySelectorAll('.panel-body[hidden] + *').length === 0, null, WAIT);
  await page.waitForTimeout(250); // waits: for drawing that follows the answers.
};

/** Goes to a page without reloading the document. */
async function go(page, path) {
  await page.evaluate((address) => {
    history.pushState(null, '', address);
    dispatchEvent(new PopStateEvent('popstate'));
  }, mock.prefix + path);
  await settled(page);
}

async function violations(page) {
  const found = await page.evaluate(() => globalThis.axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'] }));
  return found.violations.map((one) => `${one.id}: ${one.nodes.slice(0, 3).map((node) => `${node.html} ${node.any[0]?.message ?? ''}`).join(' | ')}`);
}

const sideways = (page) => page.evaluate(() => document.documentElement.scrollWidth - innerWidth);

for (const theme of ['light', 'dark']) {
  for (const width of [1440, 390]) {
    test(`every page is clean at ${width} px, ${theme}`, async () => {
      const { page, faults, close } = await visitor({ width, theme });
      for (const path of PAGES) {
        await go(page, path);
        assert.deepEqual(await violations(page), [], path);
        assert.ok(await sideways(page) <= 0, `${path} scrolls sideways`);
      }
      assert.deepEqual(faults, []);
      await close();
    });
  }
}

test('nothing scrolls sideways at 320 and 768 px, with plain and with hostile names', async () => {
  for (const hostile of [false, true]) {
    await mock.switch({ hostile });
    for (const width of [320, 768]) {
      const { page, close } = await visitor({ width });
      for (const path of PAGES) {
        await go(page, path);
        assert.ok(await sideways(page) <= 0, `${path} at ${width}`);
      }
      await close();
    }
  }
  await mock.switch();
});

test('each address opens cold', async () => {
  const { page, faults, close } = await visitor();
  for (const path of PAGES) {
    await page.goto(`${mock.url}${mock.prefix}${path}`);
    await settled(page);
    assert.notEqual(await page.textContent('h1'), '', path);
  }
  assert.deepEqual(faults, []);
  await close();
});

test('the page reports a wrong password, and the right one opens the requested page', async () => {
  const { page, close } = await visitor({ path: '/bans', password: '' });
  await page.fill('input[type=password]', 'wrong');
  await page.keyboard.press('Enter');
  await page.waitForSelector('text=Wrong password. 4 tries are left in this minute.', WAIT);
  await page.fill('input[type=password]', 'mock');
  await page.keyboard.press('Enter');
  await page.waitForSelector('h1:text("Bans")', WAIT);
  assert.equal(new URL(page.url()).pathname, `${mock.prefix}/bans`);
  await close();
});

test('after too many tries the page shows the time to wait', async () => {
  const { page, close } = await visitor({ password: '' });
  for (let tries = 0; tries < 7; tries += 1) {
    await page.fill('input[type=password]', 'wrong');
    await page.keyboard.press('Enter');
    await page.waitForTimeout(150); // waits: for the answer, which is the same each time.
  }
  await page.waitForSelector('text=Too many tries. Try again in 41', WAIT);
  await page.fill('input[type=password]', 'mock');
  await page.keyboard.press('Enter');
  await page.waitForSelector('.shelled', WAIT);
  await close();
});

test('a viewer sees sizes in place of payloads, and why acts are off', async () => {
  const { page, faults, close } = await visitor({ password: 'view', path: '/channel?name=market:ticks&tab=history' });
  await page.waitForSelector('td:has-text("41 B, hidden")', WAIT);
  const remove = page.locator('button:text("Remove history")');
  assert.equal(await remove.getAttribute('aria-disabled'), 'true');
  assert.equal(await remove.getAttribute('title'), 'Your role is viewer; an operator may do this.');
  await remove.click({ force: true });
  assert.equal(await page.locator('dialog').count(), 0);
  assert.deepEqual(faults, []);
  await close();
});

test('a page that is cut off says so, greys its figures, and comes back without a reload', async () => {
  const { page, close } = await visitor();
  await page.waitForSelector('.live .ok', WAIT);
  await page.evaluate(() => { globalThis.same = true; });
  await mock.switch({ cut: true });
  await page.waitForSelector('#banner.bad:has-text("This page is cut off from the node")', WAIT);
  assert.equal(await page.locator('body.cut').count(), 1);
  await mock.switch();
  await page.waitForSelector('#banner', { state: 'hidden', ...WAIT });
  await page.waitForSelector('.live .ok', WAIT);
  assert.equal(await page.evaluate(() => globalThis.same), true);
  await close();
});

test('figures show their age after 3 s, and are grey with their time after 10 s', async () => {
  const { page, close } = await visitor();
  await page.waitForSelector('.live .ok', WAIT);
  await mock.switch({ quiet: true });
  await page.waitForSelector('.now .age:text-matches("^[4-9].* ago$")', WAIT);
  await page.waitForSelector('.now.grey .age:text-matches("^as of ")', WAIT);
  await mock.switch();
  await page.waitForSelector('.now:not(.grey)', WAIT);
  await close();
});

test('without a WebSocket the page asks again and again, and says what it cannot do', async () => {
  await mock.switch({ socket: false });
  const { page, close } = await visitor({ path: '/channel?name=market:ticks' });
  await page.waitForSelector('.live:has-text("Every 2 s")', WAIT);
  await page.waitForSelector('text=This needs a WebSocket', WAIT);
  await mock.switch();
  await close();
});

test('missing nodes, errors and emptiness have their sentences', async () => {
  const { page, close } = await visitor();
  await mock.switch({ missing: true });
  await page.waitForSelector('.partial:has-text("did not answer")', WAIT);
  await page.waitForSelector('.figure:has-text("≥")', WAIT);
  await mock.switch({ error: true });
  await go(page, '/bans');
  await page.waitForSelector('.notice.error:has-text("Internal server error")', WAIT);
  await mock.switch();
  await page.click('text=Try again');
  await page.waitForSelector('td:has-text("42")', WAIT);
  await mock.switch({ empty: true });
  await go(page, '/channels');
  await page.waitForSelector('text=No channel has a subscriber.', WAIT);
  await go(page, '/channels?q=zzz');
  await page.waitForSelector('text=Remove the filters', WAIT);
  await go(page, '/statistics?channel=x');
  await page.waitForSelector('.notice.empty:has-text("stats.enabled")', WAIT);
  await mock.switch({ unknown: true });
  await go(page, '/bans');
  await page.waitForSelector('.notice.empty:has-text("does not have the operation bans")', WAIT);
  assert.equal(await page.locator('.notice.error:visible').count(), 0);
  await mock.switch();
  await close();
});

test('a slow node is named, and given up after 5 s', async () => {
  const { page, close } = await visitor({ path: '/tokens' });
  await mock.switch({ slow: 7000, socket: false });
  await page.click('a[data-page=bans]');
  await page.waitForSelector('text=The node has not answered yet.', WAIT);
  await page.waitForSelector('text=The node did not answer within 5.0', WAIT);
  await mock.switch();
  await close();
});

test('hostile names are text: escapes are shown, nothing is asked or run', async () => {
  await mock.switch({ hostile: true });
  const { page, faults, close } = await visitor();
  page.on('dialog', () => faults.push('a dialog of a script'));
  for (const path of PAGES) await go(page, path);
  await go(page, '/channels');
  const cells = await page.locator('tbody').first().textContent();
  assert.match(cells, /a\\u202Ecod\.exe\\u0000/);
  assert.match(cells, /<img src=\/\/evil\.example/);
  await go(page, `/channel?name=${encodeURIComponent('<img src=//evil.example/x onerror=alert(1)>\u202e')}`);
  assert.match(await page.textContent('h1'), /<img.*\\u202E/);
  await go(page, '/');
  assert.equal(await page.locator('a[href^="javascript"]').count(), 0);
  assert.deepEqual(faults, []);
  await mock.switch();
  await close();
});

test('a tail shows numbers as written, counts omitted frames, and pauses', async () => {
  const { page, close } = await visitor({ path: '/channel?name=market:ticks' });
  await page.waitForSelector('.tail-row', WAIT);
  assert.match(await page.locator('.tail-row .data').first().textContent(), /"price":10\.20,"volume":9223372036854775807/);
  await page.waitForSelector('text=/left out [1-9]/', WAIT);
  await page.click('[data-pause]');
  const rows = await page.locator('.tail-row').count();
  await page.waitForTimeout(1000); // waits: rows must not come while the tail pauses.
  assert.equal(await page.locator('.tail-row').count(), rows);
  await page.fill('.tail-head input', 'data.symbol = Y');
  assert.equal(await page.locator('.tail-row:visible').count(), 0);
  await page.fill('.tail-head input', 'data.price = 10.20');
  assert.equal(await page.locator('.tail-row:visible').count(), rows);
  await page.locator('.tail-row button:text("Open")').first().click();
  assert.match(await page.locator('.json').textContent(), /10\.20/);
  await close();
});

test('a trace shows frames, ends by itself and begins again; a tail says where it did not listen', async () => {
  await mock.switch({ trace: 1000 });
  const { page, faults, close } = await visitor({ path: `/connection?client=${CLIENT}&tab=frames` });
  await page.click('button:text-is("Trace for 60 s")');
  await page.waitForSelector('.tail-row:has-text("↑ command x"):has-text("error 103")', WAIT);
  await page.waitForSelector('.tail-state:has-text("Ended after 60 s.")', WAIT);
  await page.click('button:text("Trace all of its user")');
  await page.waitForSelector('.tail-row:has-text("↓ publication market:ticks")', WAIT);
  await go(page, '/channel?name=market:ticks');
  await page.waitForSelector('.tail-row', WAIT);
  await mock.switch({ cut: true });
  await page.waitForSelector('#banner.bad', WAIT);
  await mock.switch();
  await page.waitForSelector('.tail-gap ~ .tail-row', WAIT);
  assert.deepEqual(faults.filter((one) => !/ERR_|WebSocket/.test(one)), []);
  await close();
});

test('danger: a second press, a dialog, a typed name', async () => {
  const { page, close } = await visitor({ path: `/connection?client=${CLIENT}` });
  await page.click('button:text("Ask to reconnect")');
  await page.click('button:text("Press again")');
  await page.waitForSelector('.toast:has-text("asked to reconnect")', WAIT);
  await page.click('button:text("End…")');
  await page.waitForSelector('dialog button:text("Cancel"):focus', WAIT);
  await page.click('dialog button:text("End 1 connection")');
  await page.waitForSelector('.toast:has-text("1 connection was ended")', WAIT);
  await go(page, '/channel?name=market:ticks');
  await page.click('button:text("Remove history")');
  const act = page.locator('dialog button.danger');
  assert.equal(await act.isDisabled(), true);
  await page.fill('dialog input', 'market:ticks');
  await act.click();
  await page.waitForSelector('.toast:has-text("is removed")', WAIT);
  await go(page, '/connections');
  await page.locator('td.pick input').nth(0).check();
  await page.locator('td.pick input').nth(1).check();
  await page.click('button:text("End 2…")');
  await page.fill('dialog input', '2');
  await page.click('dialog button:text("End 2 connections")');
  await page.waitForSelector('.toast:has-text("2 connections ended")', WAIT);
  await close();
});

test('a button that waits for its second press outlives a refresh of the page', async () => {
  for (const [path, label, isFresh, done] of [
    ['/bans', 'Unblock', '[data-newer]:visible', 'can connect again'], ['/events', 'Resume', '.dependencies .status.bad', 'Events are sent to crm again'],
    [`/connection?client=${CLIENT}`, 'Ask to reconnect', 'text=Nothing waits to be sent.', 'asked to reconnect'],
  ]) {
    const { page, close } = await visitor({ path });
    await settled(page);
    await page.locator(`button:text-is("${label}")`).first().click();
    await mock.switch({ changed: true });
    await page.waitForSelector(isFresh, WAIT);
    if (path === '/bans') {
      // New rows come before the row of the button, and the focus stays on it.
      await page.keyboard.press('Shift+N');
      await page.waitForSelector('td:text-is("41")', WAIT);
    }
    assert.equal(await page.locator('button.armed:focus').count(), 1, path);
    await page.click('button.armed');
    await page.waitForSelector(`.toast:has-text("${done}")`, WAIT);
    await close();
    await mock.switch();
  }
});

test('dialogs are clean, close with Escape, and give the focus back', async () => {
  const { page, faults, close } = await visitor({ width: 390, path: '/channel?name=market:ticks' });
  await page.waitForSelector('.live .ok', WAIT);
  for (const opener of ['button.find', 'button.more', '#head > button:last-child', 'button:text("Remove history")', 'button:text("As command")']) {
    await page.click(opener);
    await page.waitForSelector('dialog[open]', WAIT);
    assert.deepEqual(await violations(page), [], opener);
    await page.keyboard.press('Escape');
    await page.waitForSelector('dialog', { state: 'detached', ...WAIT });
    assert.equal(await page.locator(opener).first().evaluate((one) => one === document.activeElement), true, opener);
  }
  await page.click('#head > button:last-child');
  await page.selectOption('dialog select >> nth=0', 'dark');
  assert.equal(await page.evaluate(() => getComputedStyle(document.body.parentElement).backgroundColor), 'rgb(13, 20, 17)');
  assert.deepEqual(faults, []);
  await close();
});

test('the API page sends what its form says, and hides the key', async () => {
  const { page, close } = await visitor({ path: '/api?operation=history' });
  await page.waitForSelector('code:has-text("$KEY")', WAIT);
  await page.click('button:text("Send")');
  await page.waitForSelector('text=/200 in/', WAIT);
  assert.match(await page.locator('.json').textContent(), /8120411/);
  await close();
});

test('the keyboard alone leads from the sign-in to a paused tail', async () => {
  const { page, faults, close } = await visitor();
  await page.waitForSelector('.live .ok', WAIT);
  const heading = (text) => page.waitForSelector(`h1:text("${text}")`, WAIT);
  await heading('Overview');
  await page.keyboard.press('g');
  await page.keyboard.press('c');
  await heading('Channels');
  await page.waitForSelector('[data-row]', WAIT);
  await page.keyboard.press('j');
  await page.keyboard.press('Enter');
  await heading('market:ticks');
  await page.waitForSelector('.tail-row', WAIT);
  await page.keyboard.press('Space');
  await page.waitForSelector('.tail-state:has-text("Paused")', WAIT);
  await page.keyboard.press('Control+k');
  await page.waitForSelector('dialog input:focus', WAIT);
  await page.keyboard.type('Configuration');
  await page.keyboard.press('Enter');
  await heading('Configuration');
  assert.deepEqual(faults, []);
  await close();
});

test('the files that Overview needs are small', async () => {
  const { page, close } = await visitor();
  await page.addInitScript(() => {
    const watcher = new MutationObserver(() => {
      if (!document.querySelector('.verdict .status')) return;
      globalThis.loaded = performance.getEntriesByType('resource').map((one) => one.name).filter((name) => name.includes('/assets/'));
      watcher.disconnect();
    });
    watcher.observe(document, { subtree: true, childList: true });
  });
  await page.goto(`${mock.url}${mock.prefix}/`);
  await page.waitForFunction(() => globalThis.loaded, null, WAIT);
  const addresses = [page.url(), ...new Set(await page.evaluate(() => globalThis.loaded))];
  const sizes = await Promise.all(addresses.map(async (address) => gzipSync(await (await fetch(address)).text(), { level: 9 }).length));
  const sum = sizes.reduce((total, size) => total + size, 0);
  assert.ok(addresses.length > 10, addresses.join());
  assert.ok(sum <= 30 * 1024, `${sum} bytes in ${addresses.length} files: ${addresses.join(' ')}`);
  await close();
});
