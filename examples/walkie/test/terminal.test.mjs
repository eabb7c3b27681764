// The client of the terminal, and it beside a page.
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { spawn } from '../../../tests/e2e/processes.mjs';
import { counters, dispatcherToken, enter, launchWithMicrophone, press, release, start, until } from './walkie.mjs';

const program = new URL('../walkie.mjs', import.meta.url).pathname;
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

/** A terminal in the room: what it has said, the sound that it has given out, and its end. */
function terminal(room, name, ...more) {
  const child = spawn(process.execPath, [program, '127.0.0.1', String(walkie.tcp), room, name, ...more], { stdio: ['ignore', 'pipe', 'pipe'] });
  const one = { child, text: '', sound: Buffer.alloc(0), end: new Promise((resolve) => child.once('exit', (code) => resolve(code))) };
  child.stdout.on('data', (data) => { one.sound = Buffer.concat([one.sound, data]); });
  child.stderr.on('data', (data) => { one.text += data; });
  terminals.push(one);
  return one;
}
const says = (one, words) => until(() => one.text.includes(words), () => `“${words}” in:\n${one.text}`);

/** Noise of so many frames, as a WAV file. */
function wav(name, frames) {
  const pcm = randomBytes(640 * frames);
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

test('what one says is exactly what another hears, and who comes later finds it in the history', async (t) => {
  const { file, pcm } = wav('one.wav', 50);
  const listener = terminal('wav', 'Listener');
  await says(listener, 'the floor is free');
  const speaker = terminal('wav', 'Speaker', '--say', file);
  assert.equal(await speaker.end, 0, speaker.text);
  await until(() => listener.sound.length >= pcm.length, () => `${listener.sound.length} of ${pcm.length} bytes`);
  assert.ok(listener.sound.equals(pcm), 'the same bytes');
  await says(listener, 'Speaker speaks');
  assert.match(speaker.text, /you speak\n[^]*said 1\.00 s, 0 frames dropped\n/);
  const late = terminal('wav', 'Late', '--missed');
  await says(late, 'Speaker said:');
  await until(() => late.sound.length >= pcm.length, 'all of it');
  assert.ok(late.sound.equals(pcm), 'and the same bytes out of the history');
  t.diagnostic(`${pcm.length} bytes live, and ${late.sound.length} out of the history`);
});

test('a second speaker queues, and a dispatcher does not', async () => {
  const [first, second, third] = [100, 25, 25].map((frames, n) => wav(`queue-${n}.wav`, frames));
  const listener = terminal('queue', 'Listener');
  await says(listener, 'the floor is free');
  const ann = terminal('queue', 'Ann', '--say', first.file);
  await says(listener, 'Ann speaks');
  const bob = terminal('queue', 'Bob', '--say', second.file);
  await says(bob, 'Ann has the floor. You are 1st in the queue.');
  assert.equal(await ann.end, 0, ann.text);
  assert.equal(await bob.end, 0, bob.text);
  await until(() => listener.sound.length >= first.pcm.length + second.pcm.length, () => `both are heard: ${listener.text}`);
  assert.ok(listener.sound.equals(Buffer.concat([first.pcm, second.pcm])), 'one behind the other');
  const cas = terminal('queue', 'Cas', '--say', first.file);
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
    await until(async () => (await counters(page)).heard >= 0.9, async () => JSON.stringify(await counters(page)));
    assert.deepEqual(page.faults, []);
  } finally {
    await browser.close();
  }
});

test('what is wrong is said plainly', async () => {
  const text = join(directory, 'text.wav');
  writeFileSync(text, 'this is text');
  for (const [words, code, told] of [
    [['127.0.0.1'], 2, /HOST PORT ROOM NAME/],
    [['127.0.0.1', String(walkie.tcp), 'a', 'b', '--say', text], 1, /this is not a WAV file/],
    [['127.0.0.1', String(walkie.tcp), 'a', 'b', '--token', 'x.y.z'], 1, /The server does not let this terminal in: invalid token/],
    [['127.0.0.1', String(walkie.tcp), 'a', 'b', '--say', join(directory, 'nothing.wav')], 1, /ENOENT/],
  ]) {
    const child = spawn(process.execPath, [program, ...words], { stdio: ['ignore', 'ignore', 'pipe'] });
    let said = '';
    child.stderr.on('data', (data) => { said += data; });
    assert.equal(await new Promise((resolve) => child.once('close', resolve)), code, said);
    assert.match(said, told);
  }
});
