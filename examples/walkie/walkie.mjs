#!/usr/bin/env node
// The walkie-talkie in a terminal, over a bare TCP socket. `node walkie.mjs --help` says how.
//
// Received sound goes to standard output as PCM (16 kHz, mono, 16 bits), messages go to standard error.

import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { FRAME_MS, FRAME_SAMPLES, SAMPLE_RATE } from './frames.js';
import { dialLines } from './lines.mjs';
import { Link } from './link.js';
import { AGE_MAX_MS } from './outbox.js';
import { readWav } from './pcm.js';
import { Room } from './room.js';
import { dispatcherRoom } from './token.js';
import * as words from './words.js';

const USAGE = `node walkie.mjs HOST PORT ROOM NAME [--say FILE.wav] [--play COMMAND] [--missed] [--token TOKEN]

  --say FILE.wav   takes the floor, or queues for it, says the file (PCM, mono, 16 kHz, 16 bits; 30 s of it at most), and ends
  --play COMMAND   gives what is heard to a command, e.g. 'aplay -q -f S16_LE -r 16000' (ALSA) or 'play -q -t raw -e signed -b 16 -r 16000 -' (SoX)
  --missed         begins with what the history has
  --token TOKEN    a token of the server; one of a dispatcher of this room interrupts

The port is that of tcp.port, 8001 unless it is configured. Press Ctrl-C to go.`;

const { values: options, positionals } = parseArgs({
  allowPositionals: true,
  options: { say: { type: 'string' }, play: { type: 'string' }, token: { type: 'string' }, missed: { type: 'boolean' }, help: { type: 'boolean' } },
});
if (options.help || positionals.length !== 4) {
  console.error(USAGE);
  process.exit(options.help ? 0 : 2);
}
const [host, port, roomName, name] = positionals;
const tell = (text) => text && console.error(text);
const fail = (text) => { tell(text); process.exit(1); };

/** The file to send, as frames of 20 ms; the last frame is filled up with silence. */
function framesOf(file) {
  const pcm = readWav(readFileSync(file));
  return Array.from({ length: Math.ceil(pcm.length / (2 * FRAME_SAMPLES)) }, (_, n) => {
    const frame = new Uint8Array(2 * FRAME_SAMPLES);
    frame.set(pcm.subarray(n * frame.length, (n + 1) * frame.length));
    return frame;
  });
}

let frames = [];
try {
  if (options.say) frames = framesOf(options.say);
} catch (error) {
  fail(`${options.say}: ${error.message}`);
}
const player = options.play && spawn(options.play, { shell: true, stdio: ['pipe', 'inherit', 'inherit'] });
player?.stdin.on('error', () => {});
player?.on('error', (error) => fail(`the command of --play: ${error.message}`)).on('exit', (code) => fail(`the command of --play has ended${code ? ` with ${code}` : ''}`));
const loudspeaker = player?.stdin ?? (process.stdout.isTTY ? null : process.stdout);
loudspeaker?.on('error', () => process.exit(0));

const BEHIND_MAX = (2 * SAMPLE_RATE * AGE_MAX_MS) / 1000;
let deaf = 0; // frames of Opus
/** Writes a frame that has just arrived. Returns false if the reader of the sound is behind: then the frame is missed. */
function hear(frame) {
  if (loudspeaker?.writableLength > BEHIND_MAX) return false;
  play(frame);
  return true;
}
function play({ codec, payload }) {
  if (codec === 'pcm') loudspeaker?.write(payload);
  else if (deaf++ === 0) tell('this talk is Opus, which the terminal cannot play; pages send PCM from the next talk on, while this terminal is here');
}

let state = '';
let speaking = '';
let waiting = '';
let ending = null; // why the talk of --say has ended
function show() {
  if (room.state !== state) tell({ connecting: '', live: `connected; room ${room.room}`, lost: `${words.LOST} (${room.reason})`, closed: '' }[room.state]);
  state = room.state;
  if (state === 'closed' && ending === null) fail(`The server does not let this terminal in: ${room.reason || 'the connection was closed'}.`);
  if (!room.isFloorKnown) return;
  const speaker = room.floor.speaker(Date.now());
  const now = !speaker ? 'the floor is free' : speaker.client === room.link.client ? 'you speak' : `${speaker.isDispatcher ? 'the dispatcher ' : ''}${speaker.name} speaks`;
  if (now !== speaking) tell(now);
  speaking = now;
  const place = room.isWanted && !room.turn && room.place ? words.waiting(speaker, room.place) : '';
  if (place !== waiting) tell(place);
  waiting = place;
}

/** Sends the file in real time. Frames that were due while this program was stopped are dropped, as a microphone's would be. */
async function say(turn) {
  const beganMs = Date.now();
  for (const [n, frame] of frames.entries()) {
    const dueMs = beganMs + n * FRAME_MS;
    await sleep(Math.max(0, dueMs - Date.now()));
    if (turn.isOver) return;
    turn.send(frame, dueMs);
  }
  await sleep(FRAME_MS);
  room.unwant();
}

const link = new Link(dialLines(host, Number(port)), { token: options.token });
const room = new Room(link, roomName, { name, face: 'terminal', codecs: ['pcm'] }, {
  onChange: show,
  onFrame: hear,
  onTurn: (turn) => { say(turn); },
  onTurnEnd: (reason) => {
    tell(words.ENDED[reason]);
    ending = reason;
  },
  onWarning: () => tell(words.WARNING),
  onMissed: (seconds) => {
    if (!seconds) return;
    if (options.missed) room.takeMissed().forEach((talk) => { tell(`${talk.name} said:`); talk.frames.forEach(play); });
    else tell(`${Math.round(seconds)} s of talk were missed (--missed plays them)`);
  },
  onRefusal: (error) => fail(words.refused(error)),
}, { isDispatcher: dispatcherRoom(options.token ?? '') === roomName });
link.connect();
if (options.say) {
  room.want();
  while (ending === null || room.turn) await sleep(FRAME_MS);
  tell(`said ${((room.sent * FRAME_MS) / 1000).toFixed(2)} s, ${room.dropped} frames dropped`);
  // Give back the floor before the program ends.
  await sleep(100);
  link.disconnect();
  process.exit(ending === 'released' ? 0 : 1);
}
