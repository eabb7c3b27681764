// The crowd's reactions in Chromium against the real server: the taps of fans, the totals that all pages show, and the reporter's chart.
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, afterEach, before, test } from 'node:test';
import { launch } from '../../../tests/e2e/browser.mjs';
import { until } from '../../../tests/e2e/patience.mjs';
import { openPage, startDemo } from './demo.mjs';
import { proxy } from './proxy.mjs';

const PHONE = { width: 390, height: 844 };
let browser;
let server;
let key;
let pictures;

before(async () => {
  pictures = process.env.TOUCHLINE_PICTURES ?? mkdtempSync(join(tmpdir(), 'touchline-pictures-'));
  browser = await launch();
  ({ server, key } = await startDemo());
  // Without this reaction the test could not show that a page that opens takes the first totals as the present ones.
  await api('reactions_add', { option: 'boo', n: 1 });
});
afterEach(() => Promise.all(browser.contexts().map((context) => context.close())));
after(async () => {
  await browser?.close();
  await server?.stop();
  if (!process.env.TOUCHLINE_PICTURES) rmSync(pictures, { recursive: true, force: true });
});

const open = (path, { base = server.http, ...options } = {}) => openPage(browser, base + path, options);
async function api(operation, request) {
  const body = JSON.stringify({ channel: 'match:live', ...request });
  const answer = await (await fetch(`${server.http}/api/${operation}`, { method: 'POST', headers: { 'X-API-Key': key }, body })).json();
  assert.equal(answer.error, undefined, `${operation}: ${JSON.stringify(answer)}`);
  return answer.result;
}
const counted = async () => (await api('reactions_get')).reactions;
const button = (page, name) => page.getByRole('button', { name, exact: true });
const total = (page, option) => page.locator(`[data-total=${option}]`).innerText().then((text) => Number(text.replace(/\D/g, '')));
const reaches = (page, option, number) => until(async () => (await total(page, option)) === number, `${option} ${number}, there is ${page.url()}`);
/** Counts the reactions that have flown, in all and at the same time. */
const watchSky = (page) => page.evaluate(() => {
  window.flown = { all: 0, most: 0 };
  const sky = document.querySelector('#sky');
  new MutationObserver((changes) => {
    for (const { addedNodes } of changes) window.flown.all += addedNodes.length;
    window.flown.most = Math.max(window.flown.most, sky.childElementCount);
  }).observe(sky, { childList: true });
});
const flown = (page) => page.evaluate(() => window.flown);

test('what a fan taps is counted on every page, flies up on them and goes again', async () => {
  const [one, two] = [await open('/'), await open('/')];
  await reaches(two, 'boo', 1);
  await watchSky(two);
  await button(one, 'Applause').click();
  await reaches(one, 'applause', 1);
  await reaches(two, 'applause', 1);
  assert.equal((await flown(two)).all, 1);
  for (let taps = 0; taps < 3; taps += 1) await button(two, 'Boo').press('Enter');
  await reaches(one, 'boo', 4);
  await reaches(two, 'boo', 4);
  await until(() => two.evaluate(() => document.querySelector('#sky').childElementCount === 0), 'an empty sky');
  assert.equal((await flown(two)).all, 4);
  for (const page of [one, two]) {
    assert.equal(await page.locator('.entry').count(), 0, 'reactions are no events of the match');
    assert.deepEqual(page.faults, []);
  }
});

test('taps of a moment are sent in one command without an answer', async () => {
  const fan = await open('/');
  const { applause } = await counted();
  const sent = [];
  // The open connection is not recorded. The page opens a new one, and the test reads its frames.
  fan.on('websocket', (link) => link.on('framesent', ({ payload }) => payload.includes('reactions.add') && sent.push(JSON.parse(payload))));
  await fan.reload();
  await button(fan, 'Applause').waitFor();
  await until(() => button(fan, 'Applause').isEnabled(), 'a button that can be tapped');
  await button(fan, 'Applause').evaluate((tapped) => { for (let taps = 0; taps < 12; taps += 1) tapped.click(); });
  await reaches(fan, 'applause', applause + 12);
  assert.deepEqual(sent, [{ send: { data: { method: 'reactions.add', data: { channel: 'match:live', option: 'applause', n: 12 } } } }]);
});

test('a late fan sees the totals at once, without flying reactions', async () => {
  const { applause, boo } = await counted();
  const late = await open('/');
  await watchSky(late);
  await reaches(late, 'applause', applause);
  await reaches(late, 'boo', boo);
  assert.equal(await late.locator('.entry').count(), 0);
  assert.equal(await late.locator('.flying').count(), 0);
  assert.equal((await flown(late)).all, 0);
});

test('the ticker continues beside the reactions', async () => {
  const fan = await open('/');
  await api('reactions_add', { option: 'boo', n: 2 });
  await api('publish', { data: { type: 'goal', team: 'home', minute: 5 } });
  await fan.locator('.entry', { hasText: 'Goal for Home! 1–0' }).waitFor();
  await reaches(fan, 'boo', (await counted()).boo);
  assert.equal(await fan.locator('.entry').count(), 1);
});

test('a crowd of thousands makes only a few reactions fly', async () => {
  const fan = await open('/');
  const { applause } = await counted();
  await reaches(fan, 'applause', applause);
  await watchSky(fan);
  await api('reactions_add', { option: 'applause', n: 5000 });
  await reaches(fan, 'applause', applause + 5000);
  assert.equal((await flown(fan)).most, 24);
  assert.match(await fan.locator('[data-total=applause]').innerText(), /^5,0\d\d$/);
});

test('a fan with reduced motion sees only numbers', async () => {
  const fan = await open('/', { reducedMotion: 'reduce' });
  const { applause } = await counted();
  await reaches(fan, 'applause', applause);
  await watchSky(fan);
  await button(fan, 'Applause').click();
  await reaches(fan, 'applause', applause + 1);
  assert.deepEqual(await flown(fan), { all: 0, most: 0 });
});

test('the reporter sees the pulse of the crowd, drawn and in words', async () => {
  const { boo } = await counted();
  const [fan, reporter] = [await open('/'), await open('/reporter')];
  await reaches(fan, 'boo', boo);
  await button(fan, 'Boo').click();
  // Counts the points of a line that are above the bottom of the chart.
  const peaks = (option) => reporter.locator(`#pulse polyline[data-option=${option}]`).getAttribute('points')
    .then((points) => points.split(' ').filter((point) => Number(point.split(',')[1]) < 40).length);
  await until(async () => (await peaks('boo')) === 1, 'a point of the chart');
  assert.equal(await peaks('applause'), 0, 'what was before the page is not in its chart');
  await until(async () => /boo 1 in all/.test(await reporter.locator('#pulse [data-summary]').textContent()), 'the words of the chart');
  assert.deepEqual(reporter.faults, []);
});

test('without a link the buttons wait, and they come back with the totals', async () => {
  const network = await proxy(server.port);
  const fan = await open('/', { base: network.base });
  const { applause } = await counted();
  await until(() => button(fan, 'Applause').isEnabled(), 'a button that can be tapped');
  await network.cut();
  await fan.getByText('No connection. You can react when it is back.').waitFor();
  assert.ok(await button(fan, 'Applause').isDisabled() && await button(fan, 'Boo').isDisabled());
  await api('reactions_add', { option: 'applause', n: 5 });
  assert.equal(await total(fan, 'applause'), applause);
  await network.mend();
  await until(() => button(fan, 'Applause').isEnabled(), 'a button that can be tapped again');
  await reaches(fan, 'applause', applause + 5);
  await button(fan, 'Applause').click();
  await reaches(fan, 'applause', applause + 6);
  await network.cut();
});

test('closed reactions wait until they are opened again, from zero', async () => {
  const fan = await open('/');
  const before = await counted();
  await api('reactions_close');
  await fan.getByText('Reactions are closed').waitFor();
  assert.ok(await button(fan, 'Applause').isDisabled() && await button(fan, 'Boo').isDisabled());
  const late = await open('/');
  await late.getByText('Reactions are closed').waitFor();
  await reaches(late, 'applause', before.applause);
  assert.ok(await button(late, 'Applause').isDisabled());
  await late.locator('.entry', { hasText: 'Goal for Home! 1–0' }).waitFor();
  assert.equal(await late.locator('.entry').count(), 1, 'the last totals, which are in the history, are no event');
  await api('reaction_open', { options: ['applause', 'boo'] });
  for (const page of [fan, late]) {
    await until(() => button(page, 'Applause').isEnabled(), 'a button that can be tapped again');
    await reaches(page, 'applause', 0);
  }
  await button(fan, 'Applause').click();
  await reaches(late, 'applause', 1);
  for (const page of [fan, late]) assert.deepEqual(page.faults, []);
});

test('on a phone the buttons are large, named, and on the screen', async () => {
  for (const colorScheme of ['dark', 'light']) {
    const [fan, reporter] = [await open('/', { viewport: PHONE, colorScheme }), await open('/reporter', { viewport: PHONE, colorScheme })];
    await until(() => button(fan, 'Boo').isEnabled(), 'a button that can be tapped');
    for (const name of ['Applause', 'Boo']) {
      const { x, y, width, height } = await button(fan, name).boundingBox();
      assert.ok(width >= 44 && height >= 44, `${name} is ${width} × ${height}`);
      assert.ok(x >= 0 && y >= 0 && x + width <= PHONE.width && y + height <= PHONE.height, `${name} is at ${x}, ${y}`);
    }
    assert.equal(await fan.locator('[aria-live] [data-total], [role=status] [data-total]').count(), 0, 'the counters are not read out one after another');
    await api('reactions_add', { option: 'applause', n: 1234 });
    await fan.locator('.flying').first().waitFor();
    await fan.waitForTimeout(900); // waits: the picture shows reactions in flight.
    await fan.screenshot({ path: join(pictures, `${colorScheme}-crowd.png`) });
    await reporter.locator('#pulse').scrollIntoViewIfNeeded();
    await until(async () => /[1-9]/.test(await reporter.locator('[data-peak]').innerText()), 'a chart');
    await reporter.waitForTimeout(1_500); // waits: the picture shows several points.
    await reporter.locator('#pulse').screenshot({ path: join(pictures, `${colorScheme}-pulse.png`) });
    await api('reactions_add', { option: 'applause', n: 1_000_000 });
    await until(async () => (await total(fan, 'applause')) > 1_000_000, 'a long total');
    const overflows = () => [document.documentElement, ...document.querySelectorAll('.reaction')].filter((one) => one.scrollWidth > one.clientWidth).length;
    for (const page of [fan, reporter]) assert.equal(await page.evaluate(overflows), 0, `what is too wide, ${page.url()}`);
  }
});
