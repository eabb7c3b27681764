// The client of the terminal, alone and together with a page.
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { until } from '../../../tests/e2e/patience.mjs';
import { spawn } from '../../../tests/e2e/processes.mjs';
import { rawClient } from './raw.mjs';
import { counters, dispatcherToken, enter, expiredToken, launchWithMicrophone, press, release, start } from './walkie.mjs';

const program = new URL('../walkie.mjs', import.meta.url).pathname;
/** The bytes of a frame: 20 ms of PCM. */
const FRAME = 640;
let walkie;
let directory;
const terminals = [];

before(async () => {
  directory = mkdtempSync(join(tmpdir(), 'walkie-wav-'));
  walkie = await start();
});
after(async () => {
  terminals.forEach((one) => one.child.kill());
  await walkie?.stop();
  rmSync(directory, { recursive: true, force: true });
});

/** A terminal in the room: its messages, its received sound, and its end. */
function terminal(room, name, ...more) {
  const child = spawn(process.execPath, [program, '127.0.0.1', String(walkie.tcp), room, name, ...more], { stdio: ['ignore', 'pipe', 'pipe'] });
  const one = { child, text: '', sound: Buffer.alloc(0), end: new Promise((resolve) => child.once('exit', (code) => resolve(code))) };
  child.stdout.on('data', (data) => { one.sound = Buffer.concat([one.sound, data]); });
  child.stderr.on('data', (data) => { one.text += data; });
  terminals.push(one);
  return one;
}
const says = (one, words) => until(() => one.text.includes(words), () => `“${words}” in:\n${one.text}`);

/**
 * The bytes that a speaker has sent, by its own account. On a busy machine it drops frames that are older than 400 ms, as it must; the others
 * are heard in their order.
 */
function sentBytes(speaker, pcm) {
  const [, seconds, dropped] = /said (\d+\.\d\d) s, (\d+) frames dropped\n/.exec(speaker.text) ?? assert.fail(speaker.text);
  const sent = Math.round(Number(seconds) / 0.02);
  assert.equal((sent + Number(dropped)) * FRAME, pcm.length, speaker.text);
  return sent * FRAME;
}

/** Whether the sound consists of whole frames of `pcm`, each once and in their order. Each frame has other noise. */
function isPart(sound, pcm) {
  const framesOf = (bytes) => Array.from({ length: bytes.length / FRAME }, (_, n) => bytes.subarray(n * FRAME, (n + 1) * FRAME));
  const all = framesOf(pcm);
  return sound.length % FRAME === 0 && framesOf(sound).every((frame) => {
    while (all.length > 0) if (all.shift().equals(frame)) return true;
    return false;
  });
}

/** A WAV file with noise of `count` frames. */
function wav(name, frames) {
  const pcm = randomBytes(FRAME * frames);
  const head = Buffer.alloc(44);
  head.write('RIFF....WAVEfmt ');
  head.writeUInt32LE(36 + pcm.length, 4);
  [[16, 32], [1, 16], [1, 16], [16_000, 32], [32_000, 32], [2, 16], [16, 16]].reduce((at, [value, bits]) => (bits === 32 ? head.writeUInt32LE(value, at) : head.writeUInt16LE(value, at)), 16);
  head.write('data', 36);
  head.writeUInt32LE(pcm.length, 40);
  const file = join(directory, name);
  writeFileSync(file, Buffer.concat([head, pcm]));
  return { file, pcm };
}

test('a listener gets exactly the sent sound, and a late client finds it in the history', async (t) => {
  const { file, pcm } = wav('one.wav', 50);
  const listener = terminal('wav', 'Listener');
  await says(listener, 'the floor is free');
  const speaker = terminal('wav', 'Speaker', '--say', file);
  assert.equal(await speaker.end, 0, speaker.text);
  const sent = sentBytes(speaker, pcm);
  await until(() => listener.sound.length >= sent, () => `${listener.sound.length} of ${sent} bytes`);
  assert.equal(listener.sound.length, sent);
  assert.ok(isPart(listener.sound, pcm), 'the same bytes');
  await says(listener, 'Speaker speaks');
  assert.match(speaker.text, /you speak\n/);
  const late = terminal('wav', 'Late', '--missed');
  await says(late, 'Speaker said:');
  await until(() => late.sound.length >= sent, 'all of it');
  assert.ok(late.sound.equals(listener.sound), 'and the same bytes out of the history');
  t.diagnostic(`${sent} of ${pcm.length} bytes live, and ${late.sound.length} out of the history`);
});

test('a second speaker queues, and a dispatcher does not', async () => {
  const [second, third] = [25, 25].map((frames, n) => wav(`queue-${n}.wav`, frames));
  const listener = terminal('queue', 'Listener');
  await says(listener, 'the floor is free');
  // The first speaker has the floor until the second waits.
  const first = await rawClient(walkie.tcp, 'queue');
  await first.register();
  await says(listener, 'Rogue speaks');
  await first.say(20);
  const bob = terminal('queue', 'Bob', '--say', second.file);
  await says(bob, 'Rogue has the floor. You are 1st in the queue.');
  await first.say(20);
  await first.unregister();
  assert.equal(await bob.end, 0, bob.text);
  first.close();
  const [one, other] = [40 * FRAME, sentBytes(bob, second.pcm)];
  await until(() => listener.sound.length >= one + other, () => `both are heard: ${listener.text}`);
  assert.equal(listener.sound.length, one + other);
  assert.ok(listener.sound.subarray(0, one).every((byte) => byte === 77) && isPart(listener.sound.subarray(one), second.pcm), 'one behind the other');
  // So long that the dispatcher comes before its end.
  const cas = terminal('queue', 'Cas', '--say', wav('cas.wav', 1_000).file);
  await says(listener, 'Cas speaks');
  const control = terminal('queue', 'Control', '--say', third.file, '--token', dispatcherToken('queue'));
  assert.equal(await control.end, 0, control.text);
  assert.equal(await cas.end, 1, 'who is interrupted fails');
  assert.match(cas.text, /The dispatcher speaks\. Your talk has ended\./);
});

test('a speaker that is killed gives the floor to the next', async () => {
  const { file } = wav('long.wav', 1_000);
  const short = wav('short.wav', 10);
  const ann = terminal('killed', 'Ann', '--say', file);
  await says(ann, 'you speak');
  const bob = terminal('killed', 'Bob', '--say', short.file);
  await says(bob, 'You are 1st in the queue.');
  ann.child.kill('SIGKILL');
  assert.equal(await bob.end, 0, bob.text);
});

test('a speaker that is frozen gives the floor to the next, and sends nothing old when it continues', async () => {
  const { file } = wav('frozen.wav', 900);
  const short = wav('behind.wav', 10);
  const listener = terminal('frozen', 'Listener');
  await says(listener, 'the floor is free');
  const ann = terminal('frozen', 'Ann', '--say', file);
  await says(ann, 'you speak');
  const bob = terminal('frozen', 'Bob', '--say', short.file);
  await says(bob, 'You are 1st in the queue.');
  ann.child.kill('SIGSTOP');
  assert.equal(await bob.end, 0, bob.text);
  const sent = sentBytes(bob, short.pcm);
  await until(() => listener.sound.length >= sent && isPart(listener.sound.subarray(-sent), short.pcm), 'Bob is heard');
  const heard = listener.sound.length;
  ann.child.kill('SIGCONT');
  assert.equal(await ann.end, 1, ann.text);
  assert.match(ann.text, /The link was lost\. Your talk is not sent any more\./);
  assert.equal(listener.sound.length, heard, 'what was due meanwhile is not sent');
});

test('a floor that is free goes to the first of the queue while the scope changes without end', async () => {
  const { file } = wav('busy.wav', 10);
  const ann = await rawClient(walkie.tcp, 'busy');
  await ann.register();
  // A client that waits in the queue before Bob and does not ask for the floor.
  const others = await Promise.all(Array.from({ length: 8 }, () => rawClient(walkie.tcp, 'other')));
  await others[0].link.rpc('registry.join', { scope: 'floor', group: 'queue/busy', meta: { name: 'Dead', since: 1 } });
  const bob = terminal('busy', 'Bob', '--say', file);
  await says(bob, 'You are 2nd in the queue.');
  let n = 0;
  const noise = setInterval(() => others.forEach(({ link }) => link.rpc('registry.join', { scope: 'floor', group: 'room/other', meta: { name: `x${n++}` } }).catch(() => {})), 40);
  try {
    await ann.unregister();
    await until(() => bob.child.exitCode !== null, () => `Bob speaks while the scope changes: ${bob.text}`);
    assert.equal(bob.child.exitCode, 0, bob.text);
  } finally {
    clearInterval(noise);
    [ann, ...others].forEach((one) => one.close());
  }
});

test('names cannot write to the terminal, and only a dispatcher of the room interrupts', async () => {
  const listener = terminal('names', 'Listener');
  await says(listener, 'the floor is free');
  const rogue = await rawClient(walkie.tcp, 'names');
  await rogue.link.rpc('registry.register', { scope: 'floor', name: 'floor/names', meta: { name: 'A\x1b[2J\u202eB', face: '\x1b', talk: 1 } });
  await says(listener, 'A [2J B speaks');
  assert.ok(!/[\x1b\u202e]/.test(listener.text), JSON.stringify(listener.text));
  const { file } = wav('names.wav', 5);
  const other = terminal('names', 'Other', '--say', file, '--token', dispatcherToken('elsewhere'));
  await says(other, 'You are 1st in the queue.');
  rogue.close();
  assert.equal(await other.end, 0, other.text);
});

test('a player that takes its sound too slowly costs sound, and doubles none', async () => {
  // The player reads nothing until this file exists. The kernel accepts about 200 KB of sound before the program can notice it.
  const go = join(directory, 'go');
  const play = `${process.execPath} -e "let n = 0; const timer = setInterval(() => { if (!fs.existsSync('${go}')) return; clearInterval(timer); process.stdin.on('data', (d) => { n += d.filter((byte) => byte === 77).length; if (d.includes(78)) console.error('took ' + n); }); }, 20)"`;
  const listener = terminal('slow', 'Listener', '--play', play);
  await says(listener, 'the floor is free');
  const speaker = await rawClient(walkie.tcp, 'slow');
  let talks = 0;
  // Short talks, so that none reaches the limit of a talk on a busy machine.
  const talk = async (frames, byte) => {
    await speaker.register();
    await speaker.say(frames, byte);
    await speaker.unregister();
  };
  await until(async () => {
    await talk(100);
    talks += 1;
    return listener.text.includes('s of talk were missed');
  }, () => `sound is missed: ${listener.text}`);
  writeFileSync(go, '');
  // The player has taken everything before when it takes another sound.
  await until(async () => {
    await talk(1, 78);
    return listener.text.includes('took ');
  }, () => `the player takes sound again: ${listener.text}`);
  speaker.close();
  listener.child.kill();
  const took = Number(/took (\d+)/.exec(listener.text)[1]);
  assert.ok(took > 0 && took < talks * 100 * FRAME, `${took} of ${talks} talks: ${listener.text}`);
});

test('a page and a terminal hear each other', async () => {
  const browser = await launchWithMicrophone();
  try {
    const { file } = wav('page.wav', 50);
    const listener = terminal('mixed', 'Listener');
    await says(listener, 'the floor is free');
    const page = await enter(browser, walkie.pages, { room: 'mixed', name: 'Page' });
    await until(async () => (await page.locator('#people li').count()) === 2, 'both are there');
    await press(page);
    await says(listener, 'Page speaks');
    await until(() => listener.sound.length >= 32_000, 'a second is heard');
    await release(page);
    assert.ok(listener.sound.some((byte) => byte !== 0), 'the beep, and not silence');
    const speaker = terminal('mixed', 'Speaker', '--say', file);
    assert.equal(await speaker.end, 0, speaker.text);
    await until(async () => (await counters(page)).heard > 0, async () => JSON.stringify(await counters(page)));
    assert.deepEqual(page.faults, []);
  } finally {
    await browser.close();
  }
});

test('errors are plain', async () => {
  const text = join(directory, 'text.wav');
  writeFileSync(text, 'this is text');
  for (const [words, code, told] of [
    [['127.0.0.1'], 2, /HOST PORT ROOM NAME/],
    [['127.0.0.1', String(walkie.tcp), 'a', 'b', '--say', text], 1, /this is not a WAV file/],
    [['127.0.0.1', String(walkie.tcp), 'a', 'b', '--token', 'x.y.z'], 1, /The server does not let this terminal in: invalid token/],
    [['127.0.0.1', String(walkie.tcp), 'a', 'b', '--say', join(directory, 'nothing.wav')], 1, /ENOENT/],
    [['127.0.0.1', String(walkie.tcp), 'a', 'b', '--token', expiredToken('a')], 1, /The server does not let this terminal in: exp of the token has passed \(109\)/],
    [['127.0.0.1', String(walkie.tcp), 'a', 'b', '--play', 'no-player-of-this-name'], 1, /the command of --play has ended with 127/],
  ]) {
    const child = spawn(process.execPath, [program, ...words], { stdio: ['ignore', 'ignore', 'pipe'] });
    let said = '';
    child.stderr.on('data', (data) => { said += data; });
    assert.equal(await new Promise((resolve) => child.once('close', resolve)), code, said);
    assert.match(said, told);
  }
});
