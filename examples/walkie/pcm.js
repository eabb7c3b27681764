// Sound samples: converts floats to 16 bits and back, changes the rate, and reads WAV files. Pure.

import { FRAME_SAMPLES, SAMPLE_RATE } from './frames.js';

/** Samples from -1 to 1 as bytes of PCM, 16 bits, little-endian. */
export function toPcm(samples) {
  const view = new DataView(new ArrayBuffer(samples.length * 2));
  samples.forEach((sample, n) => view.setInt16(2 * n, Math.round(Math.max(-1, Math.min(1, sample)) * 32767), true));
  return new Uint8Array(view.buffer);
}

export function fromPcm(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  return Float32Array.from({ length: bytes.length >> 1 }, (_, n) => view.getInt16(2 * n, true) / 32768);
}

/** Cuts sound of any rate into frames of 16 kHz. Each sample is the mean of the samples that it replaces, or the nearest one. */
export class Framer {
  #step;
  #left;
  #sum = 0;
  #count = 0;
  #frame = new Float32Array(FRAME_SAMPLES);
  #filled = 0;

  constructor(rate) {
    this.#step = rate / SAMPLE_RATE;
    this.#left = this.#step;
  }

  /** Adds samples and returns the frames that they complete. */
  take(samples) {
    const frames = [];
    for (const sample of samples) {
      this.#sum += sample;
      this.#count += 1;
      this.#left -= 1;
      for (; this.#left <= 0; this.#left += this.#step) {
        this.#frame[this.#filled++] = this.#count ? this.#sum / this.#count : sample;
        this.#sum = this.#count = 0;
        if (this.#filled < FRAME_SAMPLES) continue;
        frames.push(this.#frame);
        this.#frame = new Float32Array(FRAME_SAMPLES);
        this.#filled = 0;
      }
    }
    return frames;
  }
}

const CONVERT = 'ffmpeg -i FILE -ac 1 -ar 16000 -sample_fmt s16 OUT.wav';

/** The samples of a WAV file as PCM bytes. Throws an error that says what is wrong with the file. */
export function readWav(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const name = (at) => String.fromCharCode(...bytes.subarray(at, at + 4));
  if (bytes.length < 12 || name(0) !== 'RIFF' || name(8) !== 'WAVE') throw new Error('this is not a WAV file');
  let format = '';
  for (let at = 12; at + 8 <= bytes.length;) {
    const length = view.getUint32(at + 4, true);
    if (name(at) === 'fmt ') {
      format = [8, 10, 12, 22].map((field) => (field === 12 ? view.getUint32(at + field, true) : view.getUint16(at + field, true))).join(' ');
    }
    if (name(at) === 'data') {
      if (format !== `1 1 ${SAMPLE_RATE} 16`) throw new Error(`the WAV file must be PCM, mono, 16 kHz, 16 bits: ${CONVERT}`);
      return bytes.subarray(at + 8, at + 8 + length);
    }
    at += 8 + length + (length % 2);
  }
  throw new Error('the WAV file has no sound in it');
}
