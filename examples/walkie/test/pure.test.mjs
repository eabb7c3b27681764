// The modules without I/O: frames, sound, the playback delay, the frames that a bad link drops, the wire format.
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import protobuf from '../../../tests/e2e/node_modules/protobufjs/index.js';
import { decodeFrame, encodeFrame, FRAME_SAMPLES, laterMs } from '../frames.js';
import { DELAY_MS, Jitter } from '../jitter.js';
import { Outbox } from '../outbox.js';
import { Framer, fromPcm, readWav, toPcm } from '../pcm.js';
import { COMMAND, decode, encode, REPLY } from '../wire.js';

test('a frame comes out as it went in, and random bytes are not a frame', () => {
  for (const codec of ['pcm', 'opus']) {
    const payload = new Uint8Array(randomBytes(codec === 'pcm' ? 2 * FRAME_SAMPLES : 71));
    const frame = { codec, sequence: 65_535, capturedMs: 1_795_665_397_289, talk: 4_294_967_295, payload };
    assert.deepEqual(decodeFrame(encodeFrame(frame)), { ...frame, capturedMs: frame.capturedMs % 2 ** 32 });
  }
  const good = encodeFrame({ codec: 'pcm', sequence: 1, capturedMs: 1, talk: 1, payload: new Uint8Array(2 * FRAME_SAMPLES) });
  for (const bad of [null, { a: 1 }, new Uint8Array(0), good.subarray(0, 11), good.subarray(0, 100), Uint8Array.from([0x20, ...good.subarray(1)]), Uint8Array.from([0x1f, ...good.subarray(1)])]) {
    assert.equal(decodeFrame(bad), null);
  }
  assert.equal(laterMs(5, 2 ** 32 - 15), 20, 'the clock of 32 bits has turned');
});

test('sound of any rate becomes frames of 16 kHz', () => {
  for (const rate of [8_000, 16_000, 44_100, 48_000]) {
    const framer = new Framer(rate);
    // A second of 400 Hz in blocks of the size that a browser gives.
    const samples = Float32Array.from({ length: rate }, (_, n) => Math.sin((2 * Math.PI * 400 * n) / rate));
    const frames = Array.from({ length: Math.ceil(rate / 128) }, (_, n) => framer.take(samples.subarray(n * 128, (n + 1) * 128))).flat();
    assert.ok(frames.length >= 49 && frames.length <= 50, `${rate}: ${frames.length} frames`);
    const all = frames.flatMap((frame) => [...frame]);
    const crossings = all.filter((sample, n) => n > 0 && all[n - 1] < 0 && sample >= 0).length;
    assert.ok(crossings >= 390 && crossings <= 400, `${rate}: ${crossings} Hz`);
  }
  const pcm = toPcm(Float32Array.of(0, 1, -1, 2, 0.5));
  assert.deepEqual([...fromPcm(pcm)].map((sample) => Math.round(sample * 100)), [0, 100, -100, 100, 50]);
});

test('a WAV file is read, and a broken one causes an error with the reason', () => {
  const chunk = (name, body) => Buffer.concat([Buffer.from(name), Buffer.from(Uint32Array.of(body.length).buffer), body]);
  const format = (rate) => Buffer.from(Uint8Array.from([1, 0, 1, 0, ...new Uint8Array(Uint32Array.of(rate, 2 * rate).buffer), 2, 0, 16, 0]));
  const wav = (rate, ...more) => Buffer.concat([Buffer.from('RIFF....WAVE'), chunk('fmt ', format(rate)), ...more]);
  const sound = randomBytes(10);
  assert.deepEqual(Buffer.from(readWav(wav(16_000, chunk('LIST', Buffer.from('ab')), chunk('data', sound)))), sound);
  assert.throws(() => readWav(Buffer.from('hello, this is text')), /not a WAV/);
  assert.throws(() => readWav(wav(44_100, chunk('data', sound))), /16 kHz/);
  assert.throws(() => readWav(wav(16_000)), /no sound/);
});

test('frames are played in order and 20 ms apart; late, doubled and early ones are not', () => {
  const jitter = new Jitter();
  assert.equal(jitter.take(0, 1_000), 1_000 + DELAY_MS);
  assert.equal(jitter.take(1, 1_050), 1_020 + DELAY_MS, 'the network has delayed it, and nobody hears that');
  assert.equal(jitter.take(1, 1_051), null, 'it comes again');
  assert.equal(jitter.take(4, 1_080), 1_080 + DELAY_MS, 'two are missing, and their time is silent');
  assert.equal(jitter.take(3, 1_081), null, 'behind a later one');
  assert.equal(jitter.take(5, 1_200), null, 'late');
  assert.equal(jitter.take(2_000, 1_201), null, 'a frame of a minute later');
  assert.deepEqual({ late: jitter.late, missing: jitter.missing, played: jitter.played }, { late: 4, missing: 2, played: 3 });
});

test('after a standstill old frames are dropped at once, and a link that stays slower is followed', () => {
  const jitter = new Jitter();
  jitter.take(0, 0);
  // Half a second of frames arrives in one moment: frames that are too late are dropped, and the others are played at their time.
  const played = Array.from({ length: 25 }, (_, n) => jitter.take(n + 1, 500)).filter((at) => at !== null);
  assert.equal(played[0], 500);
  assert.equal(jitter.late, 20);
  // From now on each frame arrives half a second later.
  const at = Array.from({ length: 50 }, (_, n) => jitter.take(n + 26, (n + 26) * 20 + 500));
  const first = at.findIndex((one) => one !== null);
  assert.equal(first, 10, '200 ms are lost');
  assert.ok(at.slice(first).every((one, n) => one === at[first] + n * 20));
});

test('a link that is behind gets no frame older than 400 ms', () => {
  const outbox = new Outbox();
  const take = (n, nowMs) => outbox.push(n, n * 20, nowMs);
  // The server acknowledges nothing: 20 frames are sent, and the others wait.
  const out = Array.from({ length: 100 }, (_, n) => take(n, n * 20)).flat();
  assert.deepEqual(out, Array.from({ length: 20 }, (_, n) => n));
  assert.equal(outbox.dropped, 100 - 20 - 21);
  // The acknowledgements continue: the first frame that is sent is 400 ms old.
  const rest = Array.from({ length: 20 }, () => outbox.acknowledge(99 * 20)).flat();
  assert.equal(rest[0], 79);
  assert.equal(outbox.sent + outbox.dropped, 99, 'one waits');
  const before = outbox.dropped;
  outbox.lose();
  assert.equal(outbox.dropped, before + 1);
});

test('commands and replies are those of the official library', () => {
  const { Command, Reply } = protobuf.parse(`
    syntax = "proto3";
    message Since { uint64 offset = 1; string epoch = 2; }
    message Connect { string token = 1; string name = 4; }
    message Subscribe { string channel = 1; }
    message Publish { string channel = 1; bytes data = 2; }
    message History { string channel = 1; int32 limit = 7; Since since = 8; }
    message Rpc { bytes data = 1; string method = 2; }
    message Command { uint32 id = 1; Connect connect = 4; Subscribe subscribe = 5; Publish publish = 7; History history = 10; Rpc rpc = 13; }
    message Info { string user = 1; string client = 2; bytes conn_info = 3; }
    message Publication { bytes data = 4; Info info = 5; uint64 offset = 6; map<string, string> tags = 7; uint64 time = 9; string epoch = 14; }
    message Push { string channel = 2; Publication pub = 4; }
    message Error { uint32 code = 1; string message = 2; bool temporary = 3; }
    message HistoryResult { repeated Publication publications = 1; string epoch = 2; uint64 offset = 3; }
    message Reply { uint32 id = 1; Error error = 2; Push push = 4; HistoryResult history = 11; }`, { keepCase: true }).root.nested;
  const commands = [
    { id: 1, connect: { token: 'ä', name: 'walkie' } }, { id: 300, publish: { channel: 'talk:a', data: new Uint8Array(randomBytes(700)) } },
    { id: 70_000, history: { channel: 'talk:a', limit: 300, since: { offset: 2 ** 40, epoch: 'x' } } }, { id: 4, rpc: { method: 'm', data: Uint8Array.of(0) } },
  ];
  for (const command of commands) {
    assert.deepEqual(Buffer.from(encode(command)), Buffer.from(Command.encodeDelimited(Command.fromObject(command)).finish()));
  }
  const publication = { data: randomBytes(300), info: { user: 'u', client: 'c', conn_info: randomBytes(5) }, offset: 2 ** 41, tags: { a: 'b' }, time: 1_795_665_397_289 };
  const frame = Buffer.concat([{ id: 7, error: { code: 4001, message: 'name taken', temporary: true } }, {}, { push: { channel: 'talk:a', pub: publication } }, { id: 8, history: { publications: [publication, publication], epoch: 'e', offset: 9 } }]
    .map((reply) => Buffer.from(Reply.encodeDelimited(Reply.fromObject(reply)).finish())));
  const [error, ping, push, history] = decode(new Uint8Array(frame));
  assert.deepEqual(error, { id: 7, error: { code: 4001, message: 'name taken', temporary: true } });
  assert.deepEqual(ping, {});
  assert.deepEqual({ ...push.push.pub, data: Buffer.from(push.push.pub.data) }, { data: publication.data, info: { user: 'u', client: 'c' }, offset: 2 ** 41, time: publication.time });
  assert.equal(history.history.publications.length, 2);
  assert.deepEqual([...encode({})], [0], 'the answer to a ping');
  assert.throws(() => decode(Uint8Array.of(5, 1)), /cut off/);
  assert.deepEqual(decode(encode({ id: 3 }, REPLY)), decode(encode({ id: 3 }, COMMAND)));
});
