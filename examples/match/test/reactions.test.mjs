// The reactions of the crowd without a page.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  COLLECT_MS, MOST_AT_ONCE, PRESENT_WITHIN_MS, PULSE_SECONDS, Pulse, collectTaps, follow, isReactions, noReactions, points, rise, summary, trackReactions,
} from '../reactions.js';

const told = (applause, boo, more) => ({ reactions: { applause, boo }, seq: applause + boo, ...more });
const fold = (...publications) => publications.reduce(follow, noReactions());

test('taps of a moment are sent at once, by option, and the next ones later', () => {
  const sent = [];
  const waiting = [];
  const tap = collectTaps((option, n) => sent.push([option, n]), (flush, ms) => waiting.push({ flush, ms }));
  for (const option of ['applause', 'boo', 'applause', 'applause']) tap(option);
  assert.deepEqual(sent, []);
  assert.deepEqual(waiting.map(({ ms }) => ms), [COLLECT_MS]);
  waiting.pop().flush();
  assert.deepEqual(sent, [['applause', 3], ['boo', 1]]);
  tap('boo');
  waiting.pop().flush();
  assert.deepEqual(sent.at(-1), ['boo', 1]);
});

test('no command counts more than the server takes', () => {
  const sent = [];
  let flush;
  const tap = collectTaps((option, n) => sent.push(n), (due) => { flush = due; });
  for (let taps = 0; taps < MOST_AT_ONCE + 7; taps += 1) tap('applause');
  flush();
  assert.deepEqual(sent, [MOST_AT_ONCE]);
});

test('only totals are taken for reactions', () => {
  assert.ok(isReactions(told(1, 0)));
  const others = [null, undefined, 7, 'reactions', [], {}, { type: 'goal' }, { reactions: null, seq: 1 }, { reactions: { applause: 1 } }, { reactions: 3, seq: 3 }];
  for (const data of others) assert.ok(!isReactions(data), JSON.stringify(data));
});

test('totals follow the channel, and older ones are ignored', () => {
  assert.deepEqual(fold(told(2, 1)), { totals: { applause: 2, boo: 1 }, seq: 3, opened: 0, isClosed: false });
  const known = fold(told(2, 1));
  assert.equal(follow(known, told(1, 1)), known, 'a lower seq changes nothing');
  assert.equal(follow(known, told(2, 2)).seq, 4);
  assert.deepEqual(fold({ reactions: { applause: 4, hooray: 9 }, seq: 13 }).totals, { applause: 4, boo: 0 }, 'options that no button has are not shown');
  assert.deepEqual(fold({ reactions: { applause: 'many', boo: null }, seq: 1 }).totals, { applause: 0, boo: 0 });
});

test('a later opening starts from zero, and an earlier one is ignored', () => {
  const first = fold(told(5, 5, { opened: 100 }));
  const second = follow(first, told(1, 0, { opened: 200 }));
  assert.equal(second.seq, 1);
  assert.equal(follow(second, told(9, 9, { opened: 100 })), second);
  assert.equal(follow(second, told(9, 9)), second, 'the namespace’s own come before every opening');
});

test('the last totals close, whatever still comes of the same opening', () => {
  const closed = fold(told(5, 5, { opened: 100 }), told(5, 5, { opened: 100, closed: true }));
  assert.equal(closed.isClosed, true);
  assert.equal(follow(closed, told(5, 6, { opened: 100 })).isClosed, true);
  assert.equal(follow(closed, told(0, 0, { opened: 200 })).isClosed, false);
});

test('a rise is the difference to the totals before', () => {
  assert.deepEqual(rise(fold(told(2, 1)), fold(told(5, 1))), { applause: 3, boo: 0 });
  assert.deepEqual(rise(fold(told(5, 1)), fold(told(2, 4))), { applause: 0, boo: 3 }, 'nothing rises by less than nothing');
  assert.deepEqual(rise(fold(told(5, 5, { opened: 1 })), fold(told(2, 0, { opened: 2 }))), { applause: 2, boo: 0 }, 'of another opening all is new');
});

/** Tracks totals with the mocked clock of the test. `shown` has for each update: applause, its rise, whether the reactions are closed. */
function track(t) {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const shown = [];
  const tracked = trackReactions(({ totals, isClosed }, risen) => shown.push([totals.applause, risen.applause, isClosed]));
  return { ...tracked, shown, say: (data, offset) => tracked.take({ data, offset }), pass: (ms = PRESENT_WITHIN_MS) => t.mock.timers.tick(ms) };
}

test('the present totals have not risen, those after them have', (t) => {
  const { shown, subscribed, say, pass } = track(t);
  subscribed();
  say(told(40, 0));
  say(told(42, 0));
  pass();
  assert.deepEqual(shown, [[0, 0, false], [40, 0, false], [42, 2, false]]);
});

test('in a channel without reactions, the first totals count as a rise', (t) => {
  const { shown, subscribed, say, pass } = track(t);
  subscribed();
  pass();
  say(told(1, 0));
  assert.deepEqual(shown.at(-1), [1, 1, false]);
});

test('after a lost link the present totals count, even if they are lower or there are none', (t) => {
  const { shown, subscribed, say, lost, pass } = track(t);
  subscribed();
  say(told(40, 0));
  lost();
  subscribed();
  assert.deepEqual(shown.at(-1), [40, 0, false], 'what is known stays until the present ones come');
  say(told(3, 0));
  say(told(4, 0));
  assert.deepEqual(shown.slice(-2), [[3, 0, false], [4, 1, false]]);
  lost();
  subscribed();
  pass();
  assert.deepEqual(shown.at(-1), [0, 0, false]);
});

test('a link that is lost before the present totals came shows nothing more', (t) => {
  const { shown, subscribed, lost, pass } = track(t);
  subscribed();
  lost();
  pass();
  assert.equal(shown.length, 1);
});

test('totals that closed during a lost link are read afterwards, and a new opening follows them', (t) => {
  const { shown, subscribed, say, lost } = track(t);
  subscribed();
  say(told(40, 0, { opened: 100 }));
  lost();
  subscribed();
  say(told(60, 0, { opened: 100, closed: true }), 17);
  assert.deepEqual(shown.at(-1), [60, 0, true]);
  say(told(5, 0, { opened: 200 }));
  assert.deepEqual(shown.at(-1), [5, 0, false]);
  say(told(4, 0, { opened: 200 }));
  say(told(9, 0, { opened: 200 }));
  assert.deepEqual(shown.slice(-2), [[5, 0, false], [9, 4, false]], 'what is older is not shown');
});

test('the pulse counts by the second and forgets after two minutes', () => {
  const pulse = new Pulse();
  pulse.add({ applause: 3, boo: 0 }, 5_100);
  pulse.add({ applause: 1, boo: 2 }, 5_900);
  pulse.add({ applause: 7, boo: 0 }, 6_000);
  const seen = pulse.perSecond(6_500);
  assert.equal(seen.applause.length, PULSE_SECONDS);
  assert.deepEqual([seen.applause.at(-1), seen.boo.at(-1)], [4, 2], 'the second that has only begun is left out');
  assert.deepEqual(pulse.perSecond(8_000).applause.slice(-3), [4, 7, 0]);
  assert.equal(pulse.perSecond((5 + PULSE_SECONDS) * 1000).applause[0], 4);
  assert.equal(pulse.perSecond((6 + PULSE_SECONDS) * 1000).applause[0], 7);
  pulse.add({ applause: 1, boo: 0 }, 500_000);
  assert.deepEqual(pulse.perSecond(6_500).applause.filter(Boolean), [], 'what has been forgotten is gone');
});

test('a chart reaches from edge to edge, and its words say the same', () => {
  assert.equal(points([0, 5, 10], 10, 120, 40), '0,40 60,20 120,0');
  assert.equal(
    summary({ applause: [0, 4, 2], boo: [0, 0, 0] }),
    'In the last two minutes: applause 6 in all, at most 4 a second, 2 now; boo 0 in all, at most 0 a second, 0 now.',
  );
});
