// The match as a fold: the recorded match, and the events that a reporter can send.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { beforeTheMatch, isPlaying, lastGoal, reduce } from '../match.js';

const recording = JSON.parse(readFileSync(new URL('../matches/city-united.json', import.meta.url)));
const fold = (events) => events.reduce((match, event, index) => reduce(match, event, { offset: index + 1 }), beforeTheMatch());

test('the recorded match is played to its end', () => {
  const match = fold(recording.events.map(({ data }) => data));
  const goals = (side) => recording.events.filter(({ data }) => data.type === 'goal' && data.team === side).length;
  assert.deepEqual(match.score, { home: goals('home'), away: goals('away') });
  assert.deepEqual(match.score, { home: 3, away: 2 });
  assert.equal(match.phase, 'full time');
  assert.equal(match.entries.length, recording.events.length);
  assert.equal(match.home.name, 'Harbour City');
});

test('every recorded event has a time, a shape that is known, and something to say', () => {
  let last = 0;
  for (const { at, data } of recording.events) {
    assert.ok(at >= last, `${at} comes after ${last}`);
    last = at;
    const [entry] = fold([data]).entries;
    assert.ok(entry.headline || entry.text, JSON.stringify(data));
  }
});

test('the clock of the recording moves at least every two minutes while they play, and never back', () => {
  assert.equal(recording.events[0].data.type, 'lineup');
  let match = beforeTheMatch();
  let last = 0;
  for (const { at, data } of recording.events) {
    assert.ok(at - last <= (isPlaying(match) ? 120 : 240), `nothing happens between ${last} and ${at}`);
    assert.ok((data.minute ?? match.minute) >= match.minute, `${match.minute}′ is followed by ${data.minute}′`);
    match = reduce(match, data);
    last = at;
  }
});

test('goals count for their team, and the headline shows the score', () => {
  const match = fold([{ type: 'kick_off', minute: 1 }, { type: 'goal', team: 'away', minute: 3, player: 'Novak' }, { type: 'goal', team: 'home', minute: 9 }]);
  assert.deepEqual(match.score, { home: 1, away: 1 });
  assert.match(match.entries[0].headline, /1–1/);
  assert.equal(match.entries[1].text, 'Novak');
});

test('a goal that is taken back does not count, and the next one does', () => {
  const events = [{ type: 'goal', team: 'home', minute: 3 }, { type: 'goal', team: 'away', minute: 5 }, { type: 'no_goal', team: 'away' }];
  const match = fold(events);
  assert.deepEqual(match.score, { home: 1, away: 0 });
  assert.equal(match.minute, 5);
  assert.deepEqual([match.entries[0].headline, match.entries[0].text], ['No goal for Away! 1–0', 'The goal does not count.']);
  assert.match(fold([...events, { type: 'goal', team: 'away', minute: 9 }]).entries[0].headline, /1–1$/);
  assert.equal(fold([{ type: 'no_goal', team: 'home', text: 'Offside.' }]).entries[0].text, 'Offside.');
});

test('a score does not fall below zero', () => {
  const untaken = ['home', 'home', '__proto__', undefined].map((team) => ({ type: 'no_goal', team }));
  assert.deepEqual(fold(untaken).score, { home: 0, away: 0 });
  assert.deepEqual(fold([...untaken, { type: 'goal', team: 'home' }]).score, { home: 1, away: 0 });
});

test('the last goal that counts is known', () => {
  const [home, away] = ['home', 'away'].map((team) => ({ type: 'goal', team }));
  const [noHome, noAway] = ['home', 'away'].map((team) => ({ type: 'no_goal', team }));
  const offset = (...events) => lastGoal(fold(events))?.offset;
  assert.equal(offset(), undefined);
  assert.equal(offset(home, away, { type: 'text', text: 'Corner' }), 2);
  assert.equal(offset(home, away, noAway), 1);
  assert.equal(offset(home, away, noHome), 2);
  assert.equal(offset(home, home, noHome, noHome), undefined);
  assert.equal(offset(home, noHome, noHome, home, home, noHome), 4);
  assert.equal(offset(home, { type: 'lineup' }), undefined);
});

test('a line-up begins a new match', () => {
  const match = fold([{ type: 'goal', team: 'home', minute: 3 }, { type: 'lineup', home: { name: 'A', short: 'A', color: '#000' } }]);
  assert.deepEqual(match.score, { home: 0, away: 0 });
  assert.equal(match.entries.length, 1);
});

test('the ball rolls between a kick-off and a whistle', () => {
  assert.equal(isPlaying(fold([{ type: 'kick_off' }])), true);
  assert.equal(isPlaying(fold([{ type: 'kick_off' }, { type: 'half_time' }])), false);
});

test('an event of an unknown type is shown by its text and breaks nothing', () => {
  const [entry] = fold([{ type: 'streaker', text: 'A dog on the pitch' }]).entries;
  assert.equal(entry.text, 'A dog on the pitch');
});

test('nothing that can be published breaks the fold', () => {
  const typed = [{ type: 'constructor' }, { type: 'goal' }, { type: 'goal', team: '__proto__' }, { type: 'lineup', home: null }, { type: 'card' }];
  const match = fold([null, 7, 'words', [], {}, ...typed]);
  assert.deepEqual(match.score, { home: 0, away: 0 });
  assert.equal(match.home.name, 'Home');
  assert.equal(isPlaying(match), false);
  assert.equal(fold(['words']).entries[0].text, 'words');
});

test('the fold changes nothing that was there before', () => {
  const before = fold([{ type: 'kick_off', minute: 1 }]);
  const copy = structuredClone(before);
  const after = reduce(before, { type: 'goal', team: 'home', minute: 2 });
  assert.deepEqual(before, copy);
  assert.equal(after.entries[1], before.entries[0], 'what was told stays the same entry');
});
