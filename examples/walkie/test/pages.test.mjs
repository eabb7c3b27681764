// The pages in Chromium against the real server. Chromium's fake microphone beeps.
import assert from 'node:assert/strict';
import { after, afterEach, before, test } from 'node:test';
import { LIMIT, until } from '../../../tests/e2e/patience.mjs';
import { LIMIT_MS } from '../floor.js';
import { moderate } from '../moderator.mjs';
import { network } from './network.mjs';
import { rawClient } from './raw.mjs';
import { counters, dispatcherToken, enter, KEY, launchWithMicrophone, mood, news, press, release, start } from './walkie.mjs';

let browser;
let walkie;
const raws = [];
const networks = [];

before(async () => {
  browser = await launchWithMicrophone();
  walkie = await start();
});
afterEach(async () => {
  raws.splice(0).forEach((raw) => raw.close());
  await Promise.all(browser.contexts().map((context) => context.close()));
  // An open listener would keep the process running.
  await Promise.all(networks.splice(0).map((wire) => wire.cut()));
});
after(async () => {
  await browser?.close();
  await walkie?.stop();
});

const join = (room, name, options = {}) => enter(browser, options.pages ?? walkie.pages, { room, name, ...options });
const someNetwork = async () => {
  const wire = await network(walkie.server.port);
  networks.push(wire);
  return wire;
};
const rogue = async (room) => {
  const raw = await rawClient(walkie.tcp, room);
  raws.push(raw);
  return raw;
};

const speaks = (page, who) => page.locator('#speaker', { hasText: who === null ? 'The floor is free' : who === 'You' ? 'You speak' : `${who} speaks` }).waitFor();
const isMood = (page, wanted) => until(async () => (await mood(page)) === wanted, async () => `${wanted}: ${await page.locator('#room').innerText()}`);
const hears = async (page, seconds) => {
  const from = (await counters(page)).heard;
  await until(async () => (await counters(page)).heard >= from + seconds, async () => `${seconds} s are heard: ${JSON.stringify(await counters(page))}`);
};
const everybody = (count, ...pages) => Promise.all(pages.map((page) => until(async () => (await page.locator('#people li').count()) === count, `${count} faces`)));

test('one talks, the other two hear it, as Opus', async (t) => {
  const pages = await Promise.all(['Ann', 'Bob', 'Cas'].map((name) => join('hears', name)));
  const [ann, bob, cas] = pages;
  await everybody(3, ...pages);
  await press(ann);
  await isMood(ann, 'talking');
  await until(async () => (await news(ann)) === 'You have the floor. Speak now.', 'Ann is told');
  for (const page of [bob, cas]) {
    await speaks(page, 'Ann');
    await hears(page, 2);
    await page.locator('#people li.speaking', { hasText: 'Ann' }).waitFor();
  }
  await release(ann);
  for (const page of pages) await speaks(page, null);
  const said = await counters(ann);
  assert.ok(said.opus > 0, 'everybody can decode Opus, so it is Opus');
  for (const page of [bob, cas]) {
    const heard = await counters(page);
    t.diagnostic(`${JSON.stringify(heard)} of ${said.sent} frames`);
    assert.ok(heard.peak > 0.02, 'the beep is in what was played, and not silence');
    assert.equal(heard.ignored, 0);
    assert.deepEqual(page.faults, []);
  }
});

test('the floor is taken: the second waits in the queue, and has it when the first gives it back', async () => {
  const [ann, bob, cas] = await Promise.all(['Ann', 'Bob', 'Cas'].map((name) => join('queue', name)));
  await everybody(3, ann, bob, cas);
  await press(ann);
  await isMood(ann, 'talking');
  await speaks(bob, 'Ann');
  await press(bob);
  await until(async () => (await news(bob)) === 'Ann has the floor. You are 1st in the queue.', async () => `Bob is told: ${await news(bob)}`);
  await press(cas);
  await until(async () => (await news(cas)) === 'Ann has the floor. You are 2nd in the queue.', async () => `Cas is told: ${await news(cas)}`);
  await until(async () => (await ann.locator('#queue .name').allInnerTexts()).join() === 'Bob,Cas', 'Ann sees who waits');
  await release(ann);
  await isMood(bob, 'talking');
  await until(async () => (await news(cas)) === 'Bob has the floor. You are 1st in the queue.', async () => `Cas moves up: ${await news(cas)}`);
  await hears(ann, 1);
  await release(cas);
  await until(async () => (await ann.locator('#queue li').count()) === 0, 'who lets go waits no more');
  await release(bob);
  await speaks(cas, null);
});

test('a holder that is killed loses the floor to the next', async () => {
  const [ann, bob, cas] = await Promise.all(['Ann', 'Bob', 'Cas'].map((name) => join('killed', name)));
  await press(ann);
  await isMood(ann, 'talking');
  await speaks(bob, 'Ann');
  await press(bob);
  await isMood(bob, 'waiting');
  await ann.context().close();
  await isMood(bob, 'talking');
  await everybody(2, bob, cas);
  await hears(cas, 1);
});

test('a link that is cut: the page says so, comes back, and plays what was missed', async (t) => {
  const wire = await someNetwork();
  const [ann, bob] = await Promise.all([join('cut', 'Ann'), join('cut', 'Bob', { pages: await walkie.pagesFor(wire.websocket) })]);
  await everybody(2, ann, bob);
  await press(ann);
  await hears(bob, 0.5);
  await wire.cut();
  await bob.getByRole('alert').filter({ hasText: 'Link lost: nothing that you say is sent.' }).waitFor();
  await everybody(1, ann);
  const from = (await counters(ann)).sent;
  await until(async () => (await counters(ann)).sent >= from + 150, 'three seconds are said');
  await wire.mend();
  await bob.locator('#state[data-state=live]').waitFor();
  await bob.getByRole('alert').waitFor({ state: 'hidden' });
  // Live talk continues at once, and the page offers the missed talk.
  await hears(bob, 0.5);
  const offer = bob.getByRole('button', { name: /^Play what was missed \(\d+ s\)$/ });
  await offer.waitFor();
  const [, seconds] = /\((\d+) s\)/.exec(await offer.innerText());
  assert.ok(Number(seconds) >= 3, `${seconds} s`);
  await release(ann);
  await speaks(bob, null);
  await offer.click();
  assert.equal(await news(bob), 'Plays what was missed: Ann.');
  // Live talk interrupts the replay, and the missed talk is not lost.
  await press(ann);
  await until(async () => (await news(bob)).startsWith('Somebody speaks: the replay has ended.'), async () => `it is told: ${await news(bob)}`);
  await offer.waitFor();
  await release(ann);
  await speaks(bob, null);
  const before = (await counters(bob)).heard;
  await offer.click();
  assert.equal(await news(bob), 'Plays what was missed: Ann.');
  await until(async () => (await counters(bob)).heard >= before + Number(seconds) - 1, 'it is given to the loudspeaker');
  await until(async () => (await news(bob)) === 'All that was missed was played.', async () => `it is played: ${await news(bob)}`);
  t.diagnostic(`${seconds} s were offered, ${((await counters(bob)).heard - before).toFixed(2)} s played`);
  await offer.waitFor({ state: 'hidden' });
  assert.deepEqual(bob.faults, []);
});

test('a speaker whose link is cut sees that nothing is sent, and the floor is free', async () => {
  const wire = await someNetwork();
  const [ann, bob] = await Promise.all([join('mute', 'Ann', { pages: await walkie.pagesFor(wire.websocket) }), join('mute', 'Bob')]);
  await press(ann);
  await speaks(bob, 'Ann');
  await wire.cut();
  await ann.getByRole('alert').filter({ hasText: 'Link lost' }).waitFor();
  assert.equal(await news(ann), 'The link was lost. Your talk is not sent any more.');
  await speaks(bob, null);
  await press(bob);
  await isMood(bob, 'talking');
});

test('on a link that stands still, talk older than 400 ms is dropped and not sent later', async (t) => {
  const wire = await someNetwork();
  const [ann, bob] = await Promise.all([join('still', 'Ann', { pages: await walkie.pagesFor(wire.websocket) }), join('still', 'Bob')]);
  await everybody(2, ann, bob);
  await press(ann);
  await hears(bob, 0.5);
  wire.standStill('toServer', true);
  await until(async () => (await counters(ann)).dropped >= 50, async () => `a second is dropped: ${JSON.stringify(await counters(ann))}`);
  wire.standStill('toServer', false);
  await hears(bob, 1);
  await release(ann);
  await speaks(bob, null);
  const [said, heard] = [await counters(ann), await counters(bob)];
  t.diagnostic(`said ${said.sent} frames, dropped ${said.dropped}; heard ${heard.heard} s, ${heard.late} late, ${heard.missing} missing`);
  assert.ok(heard.missing >= 40, 'what was dropped is missing');
  assert.ok(heard.heard <= said.sent * 0.02, 'and is not played later');
});

test('a listener whose link stands still hears live talk afterwards, and is offered the rest', async (t) => {
  const wire = await someNetwork();
  const [ann, bob] = await Promise.all([join('behind', 'Ann'), join('behind', 'Bob', { pages: await walkie.pagesFor(wire.websocket) })]);
  await everybody(2, ann, bob);
  await press(ann);
  await hears(bob, 0.5);
  wire.standStill('toClient', true);
  const from = (await counters(ann)).sent;
  await until(async () => (await counters(ann)).sent >= from + 100, 'two seconds are said');
  wire.standStill('toClient', false);
  await hears(bob, 0.5);
  await bob.getByRole('button', { name: /^Play what was missed \([12] s\)$/ }).waitFor();
  await release(ann);
  await speaks(bob, null);
  const [said, heard] = [await counters(ann), await counters(bob)];
  t.diagnostic(`said ${said.sent} frames; heard ${heard.heard} s, ${heard.late} late, ${heard.missing} missing`);
  assert.ok(heard.late + heard.missing >= 70, 'what came late was not played');
});

test('a client without the floor is not played, whatever it publishes', async (t) => {
  const bob = await join('rogue', 'Bob');
  const raw = await rogue('rogue');
  raw.speak();
  await until(async () => (await counters(bob)).ignored >= 50, async () => `the frames came: ${JSON.stringify(await counters(bob))}`);
  assert.equal((await counters(bob)).heard, 0);
  await assert.rejects(raw.register('dispatch/rogue'), { code: 103 }, 'and it cannot make itself a dispatcher');
  await assert.rejects(raw.link.rpc('registry.join', { scope: 'floor', group: 'dispatch/rogue' }), { code: 103 });
  // When the same client has the floor, it is heard.
  await raw.register();
  await hears(bob, 0.5);
  t.diagnostic(JSON.stringify(await counters(bob)));
  // The history does not contain the other frames either: a late client is offered only the talk that had the floor.
  raw.close();
  await speaks(bob, null);
  const late = await join('rogue', 'Late');
  const offer = late.getByRole('button', { name: /^Play what was missed/ });
  await offer.waitFor();
  await offer.click();
  await until(async () => (await news(late)) === 'All that was missed was played.', async () => news(late));
  const { heard } = await counters(late);
  const { ignored, heard: live } = await counters(bob);
  assert.ok(heard > 0 && heard <= live + 0.5, `${heard} s of ${live} s, and none of ${ignored} frames`);
});

test('a dispatcher interrupts, and only the dispatcher is heard', async () => {
  const [ann, bob, control] = await Promise.all([join('alarm', 'Ann'), join('alarm', 'Bob'), join('alarm', 'Control', { token: dispatcherToken('alarm') })]);
  await everybody(3, ann, bob, control);
  await bob.locator('#people li', { hasText: 'Control' }).filter({ hasText: 'dispatcher' }).waitFor();
  await press(ann);
  await speaks(bob, 'Ann');
  await control.getByRole('button', { name: 'Interrupt and talk' }).waitFor();
  await press(control);
  await isMood(control, 'talking');
  await bob.locator('#speaker', { hasText: /^Dispatcher \S+ Control speaks$/ }).waitFor();
  await until(async () => (await news(ann)) === 'The dispatcher speaks. Your talk has ended.', async () => `Ann is told: ${await news(ann)}`);
  await release(ann);
  await hears(bob, 1);
  await press(ann);
  await until(async () => (await news(ann)) === 'The dispatcher Control speaks. You are 1st in the queue.', async () => `Ann waits: ${await news(ann)}`);
  await release(control);
  await isMood(ann, 'talking');
});

test('a talk ends at its limit, and the moderator takes the floor from a client that keeps it', LIMIT, async (t) => {
  const stop = new AbortController();
  const told = [];
  const moderator = moderate({ http: walkie.server.http, key: KEY, log: (line) => told.push(line), signal: stop.signal });
  const [ann, bob, cas] = await Promise.all([join('limit', 'Ann'), join('limit', 'Bob'), join('hog', 'Cas')]);
  const raw = await rogue('hog');
  await raw.register();
  raw.speak();
  await press(ann);
  await isMood(ann, 'talking');
  await press(cas);
  await isMood(cas, 'waiting');
  await until(async () => (await news(ann)) === 'Your time is over in 5 seconds.', 'Ann is warned');
  await until(async () => (await news(ann)) === 'Your time is over: a talk has 30 seconds. Press again to speak again.', 'Ann is told');
  await speaks(bob, null);
  await isMood(cas, 'talking');
  assert.match(told.join('\n'), /^floor\/hog was taken from /);
  const { heard } = await counters(cas);
  t.diagnostic(`${heard} s were heard of a talk that did not end; ${told}`);
  assert.ok(heard <= LIMIT_MS / 1000 + 0.5, 'nothing is heard beyond the limit');
  stop.abort();
  await moderator;
});

test('without Opus in the room pages speak PCM', async () => {
  const [ann, bob] = await Promise.all([join('pcm', 'Ann'), join('pcm', 'Bob')]);
  const raw = await rogue('pcm');
  await raw.link.rpc('registry.join', { scope: 'floor', group: 'room/pcm', meta: { name: 'Terminal', codecs: ['pcm'] } });
  await everybody(3, ann, bob);
  await press(ann);
  await hears(bob, 1);
  await release(ann);
  const { opus, sent } = await counters(ann);
  assert.equal(opus, 0);
  assert.ok(sent > 0 && (await counters(bob)).peak > 0.02);
});
