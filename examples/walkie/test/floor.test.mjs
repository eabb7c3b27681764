// The rules of the floor: which speaker is heard, which client is next, and which talks of the history had the floor.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CHOICE, FACES } from '../faces.js';
import { Floor, LIMIT_MS, RANK_MAX, RANK_MS } from '../floor.js';
import { encodeFrame } from '../frames.js';
import { missedTalks } from '../missed.js';

const registered = (name, client, talk = 1) => ({ change: 'registered', name, client, meta: { name: client, face: 'fox', talk } });
const unregistered = (name, client) => ({ change: 'unregistered', name, client });
const joined = (group, client, meta = {}) => ({ change: 'joined', group, client, meta });

const frame = (talk, sequence = 0) => ({ talk, sequence });

function floorWith(...changes) {
  const floor = new Floor('a');
  changes.forEach((change) => floor.apply(change, 0));
  return floor;
}

test('only the holder of the floor is heard, with the announced talk', () => {
  const floor = floorWith(registered('floor/a', 'ann', 7), registered('floor/other', 'bob', 8));
  assert.equal(floor.isHeard('ann', frame(7), 1_000), true);
  assert.equal(floor.isHeard('ann', frame(8), 1_000), false);
  assert.equal(floor.isHeard('bob', frame(8), 1_000), false);
  assert.equal(floor.isHeard('ann', frame(7), LIMIT_MS), false, 'the limit is over');
  floor.apply({ change: 'updated', name: 'floor/a', client: 'ann', meta: { talk: 9 } }, LIMIT_MS);
  assert.equal(floor.isHeard('ann', frame(9), LIMIT_MS), false, 'other metadata are not another talk');
});

test('the last frames of a talk are heard, until another client has the floor', () => {
  const floor = floorWith(registered('floor/a', 'ann'), unregistered('floor/a', 'ann'));
  assert.equal(floor.isHeard('ann', frame(1), 100), true);
  assert.equal(floor.isHeard('ann', frame(1), 1_000), false);
  floor.apply(registered('floor/a', 'bob', 2), 50);
  assert.equal(floor.isHeard('ann', frame(1), 100), false);
  floor.apply(unregistered('floor/a', 'ann'), 60);
  assert.equal(floor.speaker(100).client, 'bob', 'the end of an owner of before changes nothing');
});

test('while a dispatcher speaks, only the dispatcher is heard', () => {
  const floor = floorWith(registered('floor/a', 'ann'), registered('dispatch/a', 'control', 2));
  assert.equal(floor.isHeard('ann', frame(1), 10), false);
  assert.equal(floor.isHeard('control', frame(2), 10), true);
  assert.equal(floor.speaker(10).isDispatcher, true);
  floor.apply(unregistered('floor/a', 'ann'), 20);
  assert.equal(floor.patienceMs('bob', 20), null, 'the floor is not free');
});

test('the queue: dispatchers, then by time, then by client; each waits for those before it', () => {
  const floor = floorWith(
    joined('queue/a', 'late', { since: 30 }), joined('queue/a', 'b', { since: 10 }), joined('queue/a', 'a', { since: 10 }),
    joined('queue/a', 'control', { since: 99 }), joined('dispatch/a', 'control'), joined('queue/other', 'x', { since: 1 }),
  );
  assert.deepEqual(floor.queue, ['control', 'a', 'b', 'late']);
  assert.deepEqual(['control', 'late', 'stranger'].map((client) => floor.patienceMs(client, 0)), [0, 3 * RANK_MS, 4 * RANK_MS]);
  floor.apply(registered('floor/a', 'control'), 0);
  assert.equal(floor.patienceMs('a', 0), null);
  floor.apply({ change: 'left', group: 'queue/a', client: 'control' }, 0);
  assert.deepEqual(floor.queue, ['a', 'b', 'late']);
});

test('what clients say of themselves cannot break a page', () => {
  const floor = floorWith(joined('room/a', 'x', null), joined('room/a', 'y', { name: {}, face: 'f'.repeat(100), codecs: 'opus' }), joined('queue/a', 'z', { since: 'soon' }));
  assert.deepEqual(floor.people.get('x'), { name: 'Somebody', face: 'somebody', codecs: [] });
  assert.equal(floor.people.get('y').face, 'somebody', 'letters would pass for a part of the name');
  assert.equal(floor.codec, 'pcm', 'one who names no codec gets PCM');
  assert.equal(floor.waiting.get('z').since, 0);
  assert.equal(floorWith(joined('room/a', 'x', { codecs: ['opus', 'pcm'] })).codec, 'opus');
});

test('names are one line of plain text, faces are the name of a known drawing', () => {
  const shown = (name, face) => {
    const { name: a, face: b } = floorWith(joined('room/a', 'x', { name, face })).people.get('x');
    return [a, b];
  };
  assert.deepEqual(shown('A\x1b[2J\nb\u202ec\u2028d', 'owl'), ['A [2J b c d', 'owl']);
  assert.deepEqual(shown('\u200b\u202e', 'constructor'), ['Somebody', 'somebody']);
  assert.deepEqual(shown('\u{1f600}'.repeat(60), ['owl']), ['\u{1f600}'.repeat(40), 'somebody']);
});

test('each face has a label and a drawing', () => {
  for (const [name, { label, lines, solid = '' }] of Object.entries(FACES)) {
    assert.match(label, /^[A-Z][a-z]+$/, name);
    assert.match(lines, /^M[\d\s.,a-zA-Z-]+$/, name);
    assert.doesNotMatch(lines + solid, /NaN|undefined/, name);
  }
  for (const name of CHOICE) assert.ok(FACES[name], name);
});

test('whatever else changes, a free floor is asked for in time', () => {
  const floor = floorWith(joined('queue/a', 'dead', { since: 1 }), joined('queue/a', 'bob', { since: 2 }), registered('floor/a', 'ann'));
  floor.apply(unregistered('floor/a', 'ann'), 1_000);
  assert.equal(floor.patienceMs('bob', 1_000), RANK_MS);
  for (let nowMs = 1_000; nowMs < 1_000 + RANK_MS; nowMs += 20) {
    floor.apply(joined('room/b', `x${nowMs}`), nowMs);
    floor.apply({ change: 'updated', name: 'floor/b', client: 'y', meta: {} }, nowMs);
    assert.equal(floor.patienceMs('bob', nowMs), 1_000 + RANK_MS - nowMs);
  }
  for (let n = 0; n < 1_000; n++) floor.apply(joined('queue/a', `liar${n}`, { since: -n }), 1_100);
  assert.equal(floor.patienceMs('bob', 1_100), RANK_MAX * RANK_MS - 100, 'a queue of thousands that do not ask is no bar');
});

test('a client that joins during a talk learns its length from the frames', () => {
  const floor = new Floor('a');
  floor.list(registered('floor/a', 'ann', 5), 100_000);
  assert.equal(floor.isHeard('ann', frame(5, 1_400), 100_000), true);
  assert.equal(floor.speaker(101_999).client, 'ann');
  assert.equal(floor.speaker(102_000), null);
  assert.equal(floor.isHeard('bob', frame(6, 9_999), 101_000), false);
  assert.equal(floor.isHeard('ann', frame(6, 9_999), 101_000), false, 'another talk says nothing of this one');
  assert.equal(floor.speaker(101_000).client, 'ann');
});

test('a new listing keeps the beginning of a talk that continues', () => {
  const floor = floorWith(registered('floor/a', 'ann', 5));
  const before = floor.clear();
  floor.list(registered('floor/a', 'ann', 5), 20_000, before);
  assert.equal(floor.speaker(LIMIT_MS), null);
  floor.list(registered('floor/a', 'ann', 6), 20_000, before);
  assert.equal(floor.speaker(LIMIT_MS).client, 'ann');
});

test('missed talk: frames with the floor, in order, talk by talk, within the limit, and none of our own', () => {
  let time = 1_000;
  const publication = (client, talk, sequence, capturedMs = sequence * 20) => ({
    data: encodeFrame({ codec: 'opus', sequence, capturedMs, talk, payload: Uint8Array.of(sequence) }), info: { client }, time: (time += 20),
  });
  const publications = [
    publication('ann', 1, 0), publication('ann', 1, 2), publication('rogue', 66, 0), publication('ann', 1, 1), { data: new Uint8Array(3), info: { client: 'ann' }, time },
    publication('bob', 2, 0), publication('ann', 1, 3), publication('me', 3, 0), publication('cas', 4, 0, 2 ** 32 - 20), publication('cas', 4, 1, 0),
  ];
  time += LIMIT_MS;
  publications.push(publication('cas', 4, 2, 20));
  const allowed = new Set(['ann/1', 'bob/2', 'me/3', 'cas/4']);
  const talks = missedTalks(publications, (client, talk) => (allowed.has(`${client}/${talk}`) ? { name: client.toUpperCase(), face: 'fox' } : undefined), new Set(['me']));
  assert.deepEqual(talks.map(({ name, seconds, frames }) => [name, seconds, frames.map(({ sequence }) => sequence)]), [
    ['ANN', 0.06, [0, 1, 2]], ['BOB', 0.02, [0]], ['CAS', 0.04, [0, 1]],
  ]);
});
