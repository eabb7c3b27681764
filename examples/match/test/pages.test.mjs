// Both pages in Chromium, against the real server.
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, afterEach, before, test } from 'node:test';
import { launch } from '../../../tests/e2e/browser.mjs';
import { until } from '../../../tests/e2e/patience.mjs';
import { openPage, startDemo } from './demo.mjs';
import { proxy } from './proxy.mjs';

let browser;
let server;
let key;
let pictures; // the directory of the screenshots of failed tests

before(async () => {
  pictures = process.env.TOUCHLINE_PICTURES ?? mkdtempSync(join(tmpdir(), 'touchline-pictures-'));
  browser = await launch();
  await start();
});
// Pages of a failed test are closed too: they would count as watchers.
afterEach(() => Promise.all(browser.contexts().map((context) => context.close())));
after(async () => {
  await browser?.close();
  await server?.stop();
  if (!process.env.TOUCHLINE_PICTURES) rmSync(pictures, { recursive: true, force: true });
});

async function start(port) {
  ({ server, key } = await startDemo(port));
}

const open = (path, { base = server.http, ...options } = {}) => openPage(browser, base + path, options);

const publish = (data) =>
  fetch(`${server.http}/api/publish`, { method: 'POST', headers: { 'X-API-Key': key }, body: JSON.stringify({ channel: 'match:live', data }) });

const score = (page) => page.locator('.goals').innerText().then((text) => text.replace(/\s/g, ''));

test('what the reporter posts moves the fan’s page', async () => {
  const fan = await open('/');
  const reporter = await open(`/reporter#key=${key}`);
  await reporter.getByRole('button', { name: 'New match' }).click();
  await reporter.getByRole('button', { name: 'Kick-off' }).click();
  // The page has cleared the fields of the sent form.
  await reporter.getByText(/^kick off: sent/).waitFor();
  await reporter.getByLabel('Player').fill('Emeka Okoro');
  await reporter.getByRole('group', { name: 'Harbour City' }).getByRole('button', { name: 'Goal' }).click();
  await until(async () => (await score(fan)) === '1–0', 'the fan sees the goal');
  await until(async () => (await score(reporter)) === '1–0', 'the reporter sees it too');
  await fan.locator('.entry', { hasText: 'Goal for Harbour City! 1–0' }).waitFor();
  await fan.locator('.entry', { hasText: 'Emeka Okoro' }).waitFor();
  await fan.locator('[data-goals=home].scored').waitFor();
  assert.equal(await fan.title(), 'HAR 1–0 NOR');
  assert.equal(await fan.locator('#news').innerText(), 'Goal for Harbour City! 1–0 Emeka Okoro');
  await reporter.getByText(/^goal: sent in \d+ ms$/).waitFor();
  await reporter.getByText(/^Seen on the channel \d+ ms after the click$/).waitFor();
  await reporter.getByLabel('In your words').fill('<b>What</b> a goal');
  await reporter.getByRole('button', { name: 'Tell it' }).click();
  await fan.locator('.entry', { hasText: '<b>What</b> a goal' }).waitFor();
  assert.equal(await reporter.evaluate(() => location.hash), '', 'the key is not left in the address bar');
  for (const page of [fan, reporter]) assert.deepEqual(page.faults, []);
  await reporter.context().close();
  await fan.context().close();
});

test('a late fan sees the whole match', async () => {
  const fan = await open('/');
  await until(async () => (await score(fan)) === '1–0', 'the score of before');
  await fan.getByText('Kick-off').waitFor();
  await fan.context().close();
});

test('a network that goes offline and comes back is noticed at once', async () => {
  const fan = await open('/');
  await fan.locator('.entry').first().waitFor();
  // The connection may be back before the test looks at the page, so the page records the change itself.
  await fan.evaluate(() => new Promise((resolve) => {
    const state = document.querySelector('#state');
    new MutationObserver(() => state.dataset.state !== 'live' && resolve()).observe(state, { attributes: true });
    dispatchEvent(new Event('offline'));
  }));
  await fan.evaluate(() => dispatchEvent(new Event('online')));
  await fan.locator('#state[data-state=live]').waitFor();
  await publish({ type: 'text', text: 'Back online' });
  await fan.locator('.entry', { hasText: 'Back online' }).waitFor();
  await fan.context().close();
});

test('the reporter’s page counts as a watcher', async () => {
  const [fan, reporter] = [await open('/'), await open('/reporter')];
  await fan.getByText('2 watching').waitFor();
  await reporter.getByText('2 watching').waitFor();
  await reporter.context().close();
  await fan.context().close();
});

test('the number of watchers is shown, and falls when a watcher leaves', async () => {
  const [one, two] = [await open('/'), await open('/')];
  await one.getByText('2 watching').waitFor();
  await two.context().close();
  await one.getByText('1 watching').waitFor();
  await one.context().close();
});

test('after a lost connection, what was missed is there and marked as caught up', async () => {
  const network = await proxy(server.port);
  const fan = await open('/', { base: network.base });
  await fan.getByText('Goal for Harbour City! 1–0').waitFor();
  await network.cut();
  await fan.locator('#state[data-state=reconnecting], #state[data-state=connecting]').waitFor();
  await publish({ type: 'goal', team: 'away', minute: 60, player: 'Halloran' });
  assert.equal(await score(fan), '1–0');
  await network.mend();
  const entry = fan.locator('.entry', { hasText: 'Goal for Northfield United! 1–1' });
  await entry.getByText('caught up').waitFor();
  await publish({ type: 'text', text: 'Live again' });
  await fan.locator('.entry', { hasText: 'Live again' }).waitFor();
  assert.equal(await fan.getByText('caught up').count(), 1);
  assert.deepEqual(fan.faults, []);
  await fan.context().close();
  await network.cut();
});

test('a restart of the server is survived: history in memory is gone, and the page shows it by starting again', async () => {
  const fan = await open('/');
  await fan.getByText('Kick-off').waitFor();
  const { port } = server;
  assert.equal(await server.stop(), 0);
  await start(port);
  await fan.locator('#state[data-state=live]').waitFor();
  await until(async () => (await score(fan)) === '0–0', 'the page has let go of what the server forgot');
  await publish({ type: 'kick_off', minute: 1 });
  await publish({ type: 'goal', team: 'home', minute: 2 });
  await until(async () => (await score(fan)) === '1–0', 'new events arrive');
  assert.equal(await fan.locator('.entry').count(), 2);
  // Chromium reports this error if the SDK answers a ping while the server closes the connection.
  const isOfClosing = (fault) => fault.startsWith('WebSocket is already in CLOSING or CLOSED state');
  assert.deepEqual(fan.faults.filter((fault) => !isOfClosing(fault)), []);
  await fan.context().close();
});

test('a match that is longer than one reply of the history is read to its end', async () => {
  for (let told = 0; told < 310; told += 1) await publish({ type: 'text', text: `Line ${told}` });
  await publish({ type: 'goal', team: 'away', minute: 3 });
  const fan = await open('/');
  await until(async () => (await score(fan)) === '1–1', 'the goal behind three hundred lines');
  assert.equal(await fan.locator('.entry').count(), 313);
  await fan.context().close();
});

test('a history that can’t be read at first is read again, and nothing that came meanwhile is lost', async () => {
  const network = await browser.newContext();
  const fan = await network.newPage();
  let refused = 0;
  await fan.routeWebSocket(/connection/, (link) => {
    const far = link.connectToServer();
    link.onMessage((message) => {
      if (!message.includes('"history"') || refused++) return far.send(message);
      link.send(JSON.stringify({ id: JSON.parse(message).id, error: { code: 100, message: 'internal server error', temporary: true } }));
      publish({ type: 'text', text: 'Meanwhile' });
    });
  });
  await fan.goto(server.http);
  await until(async () => (await score(fan)) === '1–1', 'the match, at the second attempt');
  await fan.locator('.entry', { hasText: 'Meanwhile' }).waitFor();
  assert.equal(await fan.locator('.entry').count(), 314);
  await network.close();
});

test('a post whose answer is lost is sent again and counts once', async () => {
  const reporter = await open(`/reporter#key=${key}`);
  const ids = [];
  await reporter.route('**/api/publish', async (route) => {
    ids.push(route.request().postDataJSON().idempotency_key);
    if (ids.length > 1) return route.continue();
    await route.fetch();
    await route.abort('connectionreset');
  });
  await reporter.getByRole('group', { name: 'Home' }).getByRole('button', { name: 'Goal' }).click();
  await reporter.getByText(/^goal: sent in \d+ ms$/).waitFor();
  assert.equal(ids.length, 2);
  assert.equal(ids[0], ids[1]);
  await until(async () => (await score(reporter)) === '2–1', 'one goal');
  await publish({ type: 'text', text: 'After the goal' });
  await reporter.locator('.entry', { hasText: 'After the goal' }).waitFor();
  assert.equal(await score(reporter), '2–1');
  await reporter.context().close();
});

test('the key may be typed, and stays in this tab', async () => {
  const reporter = await open('/reporter');
  await reporter.getByLabel('API key').fill(key);
  await reporter.getByRole('button', { name: 'Half-time' }).click();
  await reporter.getByText(/^half time: sent in \d+ ms$/).waitFor();
  await reporter.reload();
  assert.equal(await reporter.getByLabel('API key').inputValue(), key);
  await reporter.context().close();
});

test('a new match starts again on every page', async () => {
  const fan = await open('/');
  const reporter = await open(`/reporter#key=${key}`);
  await reporter.getByLabel('Home', { exact: true }).fill('Red Valley');
  await reporter.getByRole('button', { name: 'New match' }).click();
  await until(async () => (await score(fan)) === '0–0', 'no goals yet');
  await fan.getByRole('heading', { name: 'Red Valley – Northfield United' }).waitFor();
  assert.equal(await fan.locator('.entry').count(), 1);
  const late = await open('/');
  await late.getByRole('heading', { name: 'Red Valley – Northfield United' }).waitFor();
  assert.equal(await late.locator('.entry').count(), 1, 'who comes late sees nothing of the match before');
  for (const page of [fan, reporter, late]) {
    assert.deepEqual(page.faults, []);
    await page.context().close();
  }
});

/** Whether all of an element can be seen without scrolling. */
const isOnScreen = (locator) => locator.evaluate((element) => {
  const { left, right, top, bottom } = element.getBoundingClientRect();
  return top >= 0 && bottom <= innerHeight && element.contains(document.elementFromPoint((left + right) / 2, (top + bottom) / 2));
});

test('a goal is taken back on every page, and a phone shows what was sent without scrolling', async () => {
  const fan = await open('/', { viewport: { width: 320, height: 844 } });
  const reporter = await open(`/reporter#key=${key}`, { viewport: { width: 390, height: 844 } });
  const goal = reporter.getByRole('group', { name: 'Northfield United' }).getByRole('button', { name: 'Goal' });
  const undo = reporter.getByRole('button', { name: 'Undo the goal for Northfield United' });
  await goal.click();
  await until(async () => (await score(fan)) === '0–1', 'the goal');
  await undo.waitFor();
  assert.ok(await isOnScreen(undo) && await isOnScreen(reporter.getByText(/^goal: sent in \d+ ms$/)));
  await undo.click();
  for (const page of [fan, reporter]) await until(async () => (await score(page)) === '0–0', 'the goal does not count');
  await fan.locator('.entry', { hasText: 'No goal for Northfield United! 0–0' }).getByText('The goal does not count.').waitFor();
  await undo.waitFor({ state: 'hidden' });
  await goal.click();
  await until(async () => (await score(fan)) === '0–1', 'the next goal counts');
  await until(async () => (await undo.count()) === 1, 'only the last goal can be taken back');
  const parts = await fan.locator('.entry strong .unbroken').evaluateAll((scores) => scores.map((one) => one.getClientRects().length));
  assert.deepEqual(parts, [1, 1, 1], 'each score is on one line');
  await reporter.getByLabel('API key').fill('wrong');
  await reporter.getByRole('button', { name: 'New match' }).click();
  const failed = reporter.getByText(/^lineup: not sent\. The API key is wrong/);
  await failed.waitFor();
  assert.ok(await isOnScreen(failed));
  for (const page of [fan, reporter]) assert.deepEqual(page.faults, []);
});

test('a wrong key is explained', async () => {
  const reporter = await open('/reporter#key=wrong');
  await reporter.getByRole('button', { name: 'Kick-off' }).click();
  await reporter.getByText(/not sent\. The API key is wrong/).waitFor();
  await reporter.context().close();
});

test('both pages fit a phone, in the dark and in the light, and every control has a name', async () => {
  for (const colorScheme of ['dark', 'light']) {
    for (const path of ['/', '/reporter']) {
      const page = await open(path, { viewport: { width: 390, height: 844 }, colorScheme });
      const { wide, nameless } = await page.evaluate(() => ({
        wide: document.documentElement.scrollWidth - innerWidth,
        nameless: [...document.querySelectorAll('button, input')].filter((one) => !(one.innerText || one.labels?.[0]?.innerText || '').trim()).length,
      }));
      assert.ok(wide <= 0, `${path} is ${wide}px too wide`);
      assert.equal(nameless, 0, path);
      await page.screenshot({ path: join(pictures, `${colorScheme}-${path === '/' ? 'fan' : 'reporter'}.png`) });
      assert.deepEqual(page.faults, []);
      await page.context().close();
    }
  }
});
