// The pages in Chromium against the real server. Chromium's fake microphone beeps.
import assert from 'node:assert/strict';
import { after, afterEach, before, test } from 'node:test';
import { LIMIT, until } from '../../../tests/e2e/patience.mjs';
import { LIMIT_MS } from '../floor.js';
import { FRAME_MS } from '../frames.js';
import { DELAY_MS } from '../jitter.js';
import { moderate } from '../moderator.mjs';
import { ANNOUNCE_AFTER_MS, PENDING_MS } from '../room.js';
import { network } from './network.mjs';
import { rawClient } from './raw.mjs';
import { counters, dispatcherToken, enter, KEY, launchWithMicrophone, letSay, mood, news, press, pressStill, release, start } from './walkie.mjs';

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
/** Something is heard. Whatever the load, a page plays the first frame of a talk, and a frame after 200 ms of late ones. */
const hears = async (page) => {
  const from = (await counters(page)).heard;
  await until(async () => (await counters(page)).heard > from, async () => `it is heard: ${JSON.stringify(await counters(page))}`);
};
/** This much has been heard since the page was opened, and not more. For a page that stands still. */
const hasHeard = async (page, seconds) => {
  await until(async () => (await counters(page)).heard >= seconds, async () => `${seconds} s are heard: ${JSON.stringify(await counters(page))}`);
  assert.equal((await counters(page)).heard, seconds);
};
const everybody = (count, ...pages) => Promise.all(pages.map((page) => until(async () => (await page.locator('#people li').count()) === count, `${count} faces`)));

test('one talks, the other two hear it, as Opus', async (t) => {
  const still = { standsStill: true };
  const pages = await Promise.all([['Ann', { ...still, isGated: true }], ['Bob', still], ['Cas']].map(([name, options]) => join('hears', name, options)));
  const [ann, bob, cas] = pages;
  await everybody(3, ...pages);
  await pressStill(ann);
  assert.equal(await news(ann), 'You have the floor. Speak now.');
  for (const page of [bob, cas]) {
    await speaks(page, 'Ann');
    await page.locator('#people li.speaking', { hasText: 'Ann' }).waitFor();
  }
  // Everybody knows who speaks before the first frame: then no frame is ignored.
  await letSay(ann, 120);
  await until(async () => { const { sent, dropped } = await counters(ann); return sent + dropped >= 120; }, async () => `she says it: ${JSON.stringify(await counters(ann))}`);
  await release(ann);
  for (const page of pages) await speaks(page, null);
  const said = await counters(ann);
  assert.equal(said.opus, said.sent, 'everybody can decode Opus, so it is Opus');
  const all = ({ heard, late, ignored }) => Math.round(heard / 0.02) + late + ignored;
  for (const page of [bob, cas]) {
    await until(async () => all(await counters(page)) >= said.sent, async () => `${said.sent} frames came: ${JSON.stringify(await counters(page))}`);
  }
  const [heard, live] = [await counters(bob), await counters(cas)];
  t.diagnostic(`${JSON.stringify(heard)} and in real time ${JSON.stringify(live)} of ${JSON.stringify(said)}`);
  assert.deepEqual([all(heard), all(live)], [said.sent, said.sent], 'each frame once');
  // A page that stands still hears the first 97 frames of a talk: those that are due within 2 s. Too many frames at once are refused.
  const first = Math.round(heard.heard / 0.02);
  assert.ok(first <= 97 && first >= 97 - said.dropped, `${first} frames are heard, and ${said.dropped} were dropped`);
  assert.ok(heard.peak > 0.02, 'the beep is in what was played, and not silence');
  assert.equal(heard.ignored, 0);
  assert.ok(live.heard > 0, 'and it is heard in real time');
  // A client that comes later is offered all of it, also as Opus.
  const late = await join('hears', 'Late', still);
  await late.getByRole('button', { name: /^Play what was missed/ }).click();
  await hasHeard(late, Number((said.sent * 0.02).toFixed(2)));
  assert.ok((await counters(late)).peak > 0.02);
  for (const page of [...pages, late]) assert.deepEqual(page.faults, []);
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
  await hears(ann);
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
  await hears(cas);
});

test('a link that is cut: the page says so, comes back, and plays what was missed', async () => {
  const wire = await someNetwork();
  const bob = await join('cut', 'Bob', { standsStill: true, pages: await walkie.pagesFor(wire.websocket) });
  const ann = await rogue('cut');
  await ann.register();
  await speaks(bob, 'Rogue');
  await ann.say(50);
  await hasHeard(bob, 1);
  await wire.cut();
  await bob.getByRole('alert').filter({ hasText: 'Link lost: nothing that you say is sent.' }).waitFor();
  const members = () => ann.link.rpc('registry.members', { scope: 'floor', group: 'room/cut' });
  await until(async () => !(await members()).members?.length, 'the others see that Bob is gone');
  await ann.say(150);
  await wire.mend();
  await bob.clock.runFor(3_000);
  await bob.locator('#state[data-state=live]').waitFor();
  await bob.getByRole('alert').waitFor({ state: 'hidden' });
  // The page offers the missed talk, and live talk continues.
  const offer = bob.getByRole('button', { name: 'Play what was missed (3 s)', exact: true });
  await offer.waitFor();
  await speaks(bob, 'Rogue');
  await ann.say(25);
  await hasHeard(bob, 1.5);
  assert.equal((await counters(bob)).late, 0);
  await ann.unregister();
  await speaks(bob, null);
  await offer.click();
  assert.equal(await news(bob), 'Plays what was missed: Rogue.');
  await hasHeard(bob, 4.5);
  // Live talk interrupts the replay, and the missed talk is not lost.
  await ann.register();
  await speaks(bob, 'Rogue');
  await ann.say(5);
  await until(async () => (await news(bob)).startsWith('Somebody speaks: the replay has ended.'), async () => `it is told: ${await news(bob)}`);
  await offer.waitFor();
  await ann.unregister();
  await speaks(bob, null);
  await hasHeard(bob, 4.6);
  await offer.click();
  assert.equal(await news(bob), 'Plays what was missed: Rogue.');
  await hasHeard(bob, 7.6);
  await bob.clock.runFor(3_000);
  assert.equal(await news(bob), 'Plays what was missed: Rogue.');
  // A replay begins 100 ms after the press.
  await bob.clock.runFor(200);
  await until(async () => (await news(bob)) === 'All that was missed was played.', async () => `it is played: ${await news(bob)}`);
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
  await hears(bob);
  wire.standStill('toServer', true);
  await until(async () => (await counters(ann)).dropped >= 50, async () => `a second is dropped: ${JSON.stringify(await counters(ann))}`);
  wire.standStill('toServer', false);
  // The page counts missing frames when it plays one that was recorded after them.
  await until(async () => (await counters(bob)).missing >= 40, async () => `what was dropped is missing, and live talk is heard: ${JSON.stringify(await counters(bob))}`);
  await release(ann);
  await speaks(bob, null);
  const [said, heard] = [await counters(ann), await counters(bob)];
  t.diagnostic(`said ${said.sent} frames, dropped ${said.dropped}; heard ${heard.heard} s, ${heard.late} late, ${heard.missing} missing`);
  assert.ok(Math.round(heard.heard / 0.02) + heard.late + heard.ignored <= said.sent, 'and does not come later');
});

test('a listener whose link stands still hears live talk afterwards, and is offered the rest', async (t) => {
  const wire = await someNetwork();
  const bob = await join('behind', 'Bob', { standsStill: true, pages: await walkie.pagesFor(wire.websocket) });
  const ann = await rogue('behind');
  await ann.register();
  await speaks(bob, 'Rogue');
  await ann.say(50);
  await hasHeard(bob, 1);
  wire.standStill('toClient', true);
  await ann.say(100);
  // Frame 149 was due 10 ms ago, and frame 150 is due in 10 ms.
  await bob.clock.runFor(DELAY_MS + 150 * FRAME_MS - 10);
  wire.standStill('toClient', false);
  await ann.say(25);
  await hasHeard(bob, 1.5);
  const heard = await counters(bob);
  t.diagnostic(JSON.stringify(heard));
  // The server drops frames that wait too long; the others come late.
  assert.equal(heard.late + heard.missing, 100, 'what came late was not played');
  await bob.clock.runFor(ANNOUNCE_AFTER_MS);
  await bob.getByRole('button', { name: 'Play what was missed (2 s)', exact: true }).click();
  await hasHeard(bob, 3.5);
});

test('a client without the floor is not played, whatever it publishes', async () => {
  const bob = await join('rogue', 'Bob', { standsStill: true });
  const raw = await rogue('rogue');
  await raw.say(100);
  // The page keeps 50 frames for 400 ms: the change that gives them the floor may come.
  await until(async () => (await counters(bob)).ignored >= 50, async () => `the frames came: ${JSON.stringify(await counters(bob))}`);
  await bob.clock.runFor(PENDING_MS + 1);
  const { ignored, heard } = await counters(bob);
  assert.deepEqual({ ignored, heard }, { ignored: 100, heard: 0 });
  await assert.rejects(raw.register('dispatch/rogue'), { code: 103 }, 'and it cannot make itself a dispatcher');
  await assert.rejects(raw.link.rpc('registry.join', { scope: 'floor', group: 'dispatch/rogue' }), { code: 103 });
  // When the same client has the floor, it is heard.
  await raw.register();
  await speaks(bob, 'Rogue');
  await raw.say(50);
  await hasHeard(bob, 1);
  assert.equal((await counters(bob)).ignored, 100);
  // The history does not contain the other frames either: a late client is offered only the talk that had the floor.
  raw.close();
  await speaks(bob, null);
  const late = await join('rogue', 'Late', { standsStill: true });
  await late.getByRole('button', { name: 'Play what was missed (1 s)', exact: true }).click();
  await hasHeard(late, 1);
  await late.clock.runFor(1_200);
  await until(async () => (await news(late)) === 'All that was missed was played.', async () => news(late));
  await hasHeard(late, 1);
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
  await hears(bob);
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
  // The warning stands for 5 s only: all news are kept.
  const newsOf = await ann.evaluateHandle(() => {
    const element = document.getElementById('news');
    const texts = [];
    new MutationObserver(() => texts.push(element.textContent)).observe(element, { childList: true });
    return texts;
  });
  const isTold = (text) => until(async () => (await newsOf.jsonValue()).includes(text), text);
  await press(ann);
  await isMood(ann, 'talking');
  await press(cas);
  await isMood(cas, 'waiting');
  await isTold('Your time is over in 5 seconds.');
  await isTold('Your time is over: a talk has 30 seconds. Press again to speak again.');
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
  await until(async () => (await counters(bob)).peak > 0.02, 'the beep is played');
  await release(ann);
  const { opus, sent } = await counters(ann);
  assert.equal(opus, 0);
  assert.ok(sent > 0);
});
