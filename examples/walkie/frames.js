// A frame of talk: 20 ms of sound behind a header of 12 bytes. Pure, for pages and the terminal.
//
//   byte 0      version 1 in the high half, codec in the low half: 0 = PCM (16 kHz, mono, 16 bits, little-endian), 1 = Opus
//   byte 1      0
//   bytes 2-3   number of the frame within its talk, from 0, big-endian as the other numbers
//   bytes 4-7   when it was recorded: Unix milliseconds of the speaker's clock, their lower 32 bits
//   bytes 8-11  number of the talk, random: all frames from one press of the button to its release

export const FRAME_MS = 20;
export const SAMPLE_RATE = 16_000;
export const FRAME_SAMPLES = (SAMPLE_RATE * FRAME_MS) / 1000;
const HEADER = 12;
const VERSION = 1;
const CODECS = ['pcm', 'opus'];

/** @param {{codec: 'pcm' | 'opus', sequence: number, capturedMs: number, talk: number, payload: Uint8Array}} frame */
export function encodeFrame({ codec, sequence, capturedMs, talk, payload }) {
  const bytes = new Uint8Array(HEADER + payload.length);
  const view = new DataView(bytes.buffer);
  view.setUint8(0, (VERSION << 4) | CODECS.indexOf(codec));
  view.setUint16(2, sequence);
  view.setUint32(4, capturedMs % 2 ** 32);
  view.setUint32(8, talk);
  bytes.set(payload, HEADER);
  return bytes;
}

/** The frame in these bytes, or null: anybody in the room may publish anything. */
export function decodeFrame(bytes) {
  if (!(bytes instanceof Uint8Array) || bytes.length < HEADER) return null;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const codec = CODECS[view.getUint8(0) & 15];
  const payload = bytes.subarray(HEADER);
  if (view.getUint8(0) >> 4 !== VERSION || !codec) return null;
  if (codec === 'pcm' && payload.length !== 2 * FRAME_SAMPLES) return null;
  return { codec, sequence: view.getUint16(2), capturedMs: view.getUint32(4), talk: view.getUint32(8), payload };
}

/** A number for a new talk. */
export const newTalk = () => crypto.getRandomValues(new Uint32Array(1))[0];

/** How much later one moment of recording is than another, across the overflow of 32 bits. */
export const laterMs = (one, other) => (one - other) | 0;
