// Access to the page: a phone, the keyboard, a screen reader, no microphone, light and dark.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, afterEach, before, test } from 'node:test';
import { until } from '../../../tests/e2e/patience.mjs';
import { counters, enter, isReady, launchWithMicrophone, mood, news, start } from './walkie.mjs';

let browser;
let walkie;

before(async () => {
  browser = await launchWithMicrophone();
  walkie = await start();
});
afterEach(() => Promise.all(browser.contexts().map((context) => context.close())));
after(async () => {
  await browser?.close();
  await walkie?.stop();
});

const join = (room, name, options = {}) => enter(options.browser ?? browser, options.pages ?? walkie.pages, { room, name, ...options });
const isMood = (page, wanted) => until(async () => (await mood(page)) === wanted, async () => `${wanted}: ${await page.locator('#room').innerText()}`);

test('without a microphone the page says why, and the user can listen', async () => {
  for (const [options, cause] of [[{ isDenied: true }, 'No microphone: this page is not permitted to use it.'], [{ hasNone: true }, 'No microphone: this device has none.']]) {
    const other = await launchWithMicrophone(options);
    const mute = await join('mute', 'Mute', { browser: other });
    await mute.getByRole('alert').filter({ hasText: cause }).waitFor();
    await mute.getByRole('button', { name: 'Try the microphone again' }).waitFor();
    assert.equal(await mute.locator('#talk').getAttribute('aria-disabled'), 'true');
    const ann = await join('mute', 'Ann');
    await isReady(ann);
    await ann.keyboard.down('Space');
    await until(async () => (await counters(mute)).heard > 0, 'who has no microphone hears');
    await ann.context().close();
    await other.close();
  }
});

test('on a page that is not secure the page says so', async () => {
  // A host name that is neither localhost nor https. The route sends its requests to this server.
  const { hostname, port } = new URL(walkie.pages);
  const other = await launchWithMicrophone();
  const context = await other.newContext();
  await context.route('http://walkie.example/**', async (route) => {
    const answer = await fetch(route.request().url().replace('walkie.example', `${hostname}:${port}`));
    await route.fulfill({ status: answer.status, contentType: answer.headers.get('content-type'), body: Buffer.from(await answer.arrayBuffer()) });
  });
  const page = await context.newPage();
  await page.goto('http://walkie.example/');
  await page.getByLabel('Your name').fill('Ann');
  await page.getByRole('button', { name: 'Join' }).click();
  await page.getByText('No microphone: browsers give it only to pages of https:// or of localhost.').waitFor();
  await other.close();
});

test('all of it works by the keyboard alone', async () => {
  const context = await browser.newContext({ viewport: { width: 390, height: 844 } });
  const ann = await context.newPage();
  await ann.goto(`${walkie.pages}/#room=keys`);
  const focus = () => ann.evaluate(() => document.activeElement.ariaLabel || document.activeElement.labels?.[0]?.innerText || document.activeElement.innerText);
  const tabTo = async (name) => {
    for (let n = 0; n < 20 && (await focus()) !== name; n++) await ann.keyboard.press('Tab');
    assert.equal(await focus(), name);
  };
  await tabTo('Your name');
  await ann.keyboard.type('Ann');
  await tabTo('Fox');
  await ann.keyboard.press('ArrowRight');
  await tabTo('Join');
  await ann.keyboard.press('Enter');
  await ann.locator('#state[data-state=live]').waitFor();
  await ann.locator('#people li', { hasText: 'Ann' }).filter({ hasText: 'Bear' }).locator('svg').waitFor();
  await isReady(ann);
  await until(async () => (await focus()) === 'Talk', async () => `the button has the focus: ${await focus()}`);
  for (const key of ['Space', 'Enter']) {
    await ann.keyboard.down(key);
    await isMood(ann, 'talking');
    await ann.keyboard.up(key);
    await isMood(ann, 'free');
  }
  // The space bar works as the button also if no element has the focus.
  await ann.evaluate(() => document.activeElement.blur());
  await ann.keyboard.down('Space');
  await isMood(ann, 'talking');
  await ann.keyboard.up('Space');
  await isMood(ann, 'free');
  // A user who cannot hold a key presses it twice.
  await tabTo('Press once to talk, once more to stop');
  await ann.keyboard.press('Space');
  await tabTo('Talk');
  await ann.keyboard.press('Space');
  await isMood(ann, 'talking');
  await ann.keyboard.press('Space');
  await isMood(ann, 'free');
  await tabTo('Leave the room');
});

test('a key that is released elsewhere releases the button', async () => {
  const ann = await join('elsewhere', 'Ann');
  await isReady(ann);
  await ann.locator('#talk').focus();
  await ann.keyboard.down('Space');
  await isMood(ann, 'talking');
  await ann.keyboard.press('Tab');
  await ann.keyboard.up('Space');
  await isMood(ann, 'free');
  await ann.getByText('The floor is free.').waitFor();
});

test('a microphone that is lost during a talk gives the floor back', async () => {
  const ann = await join('unplugged', 'Ann', { keepsTracks: true });
  await isReady(ann);
  await ann.keyboard.down('Space');
  await isMood(ann, 'talking');
  await ann.evaluate(() => {
    const [track] = globalThis.tracks;
    track.stop();
    track.dispatchEvent(new Event('ended'));
  });
  await ann.getByRole('alert').filter({ hasText: 'The microphone was unplugged or switched off.' }).waitFor();
  await isMood(ann, 'free');
  await ann.getByText('The floor is free.').waitFor();
});

test('a screen reader finds names, states and messages', async () => {
  const ann = await join('reader', 'Ann');
  const session = await ann.context().newCDPSession(ann);
  const { nodes } = await session.send('Accessibility.getFullAXTree');
  const known = nodes.filter(({ ignored }) => !ignored).map(({ role, name, properties = [] }) => ({
    role: role?.value, name: name?.value, properties: Object.fromEntries(properties.map((one) => [one.name, one.value.value])),
  }));
  const find = (role, name) => known.find((node) => node.role === role && (name === undefined || node.name === name));
  assert.equal(find('button', 'Talk').properties.pressed, 'false');
  assert.equal(find('status').properties.live, 'polite');
  for (const [role, name] of [['heading', 'Next'], ['heading', 'Here'], ['region', 'Next'], ['region', 'Here'], ['button', 'Leave the room'], ['checkbox', 'Press once to talk, once more to stop']]) {
    assert.ok(find(role, name), `${role} ${name}`);
  }
  assert.deepEqual(known.filter(({ role, name }) => ['button', 'textbox', 'checkbox', 'radio'].includes(role) && !name), []);
  // A screen reader presses the button without holding it.
  await isReady(ann);
  await ann.evaluate(() => document.getElementById('talk').click());
  await isMood(ann, 'talking');
  assert.equal(await news(ann), 'You have the floor. Speak now.');
  assert.equal(await ann.locator('#talk').getAttribute('aria-pressed'), 'true');
  await ann.evaluate(() => document.getElementById('talk').click());
  await isMood(ann, 'free');
  assert.equal(await ann.locator('#talk').getAttribute('aria-pressed'), 'false');
});

test('it fits a phone in the light and in the dark, with the longest names', async () => {
  for (const colorScheme of ['light', 'dark']) {
    const ann = await join('phone', 'W'.repeat(40), { colorScheme, reducedMotion: 'reduce' });
    await isReady(ann);
    await ann.keyboard.down('Space');
    await isMood(ann, 'talking');
    const { wide, moving, small } = await ann.evaluate(() => ({
      wide: document.documentElement.scrollWidth - innerWidth,
      moving: document.getAnimations().length,
      small: [...document.querySelectorAll('button')].filter((one) => one.offsetParent && one.offsetHeight < 44).length,
    }));
    assert.deepEqual({ wide: Math.max(0, wide), moving, small }, { wide: 0, moving: 0, small: 0 });
    if (process.env.TOUCHLINE_PICTURES) await ann.screenshot({ path: `${process.env.TOUCHLINE_PICTURES}/walkie-${colorScheme}.png`, fullPage: true });
    assert.deepEqual(ann.faults, []);
    await ann.context().close();
  }
});

test('text and rings of focus can be seen', () => {
  const css = readFileSync(new URL('../style.css', import.meta.url), 'utf8');
  const [, light] = css.match(/^:root \{([^}]*)\}/m);
  const [, dark] = css.match(/@media \(prefers-color-scheme: dark\) \{\s*:root \{([^}]*)\}/);
  const luminance = (color) => [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16) / 255)
    .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)).reduce((sum, part, n) => sum + part * [0.2126, 0.7152, 0.0722][n], 0);
  const contrast = (...two) => { const [high, low] = two.map(luminance).sort((a, b) => b - a); return (high + 0.05) / (low + 0.05); };
  for (const block of [light, dark]) {
    const { paper, card, ink, soft, bad, ring, calm, talk, wait } = Object.fromEntries([...block.matchAll(/--([\w-]+): (#[0-9a-f]{6});/g)].map(([, name, color]) => [name, color]));
    for (const ground of [paper, card]) {
      for (const text of [ink, soft, bad]) assert.ok(contrast(text, ground) >= 4.5, `${text} on ${ground}`);
      assert.ok(contrast(ring, ground) >= 3, `${ring} on ${ground}`);
    }
    for (const ground of [calm, talk, wait]) assert.ok(contrast('#ffffff', ground) >= 4.5, `white on ${ground}`);
  }
});
