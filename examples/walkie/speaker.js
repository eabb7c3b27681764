// The loudspeaker: plays frames as they arrive, and talks from the history one after the other.

import { FRAME_MS, SAMPLE_RATE } from './frames.js';
import { Jitter } from './jitter.js';
import { fromPcm } from './pcm.js';

/** Silence between two missed talks. */
const BETWEEN_S = 0.4;

export class Speaker {
  #context = new AudioContext({ latencyHint: 'interactive' });
  #talk = null; // the current talk: { key, jitter, decoder }
  #before = { late: 0, missing: 0 }; // of talks that are over
  #playing = new Set();
  /** Seconds of sound that were passed to the loudspeaker. */
  heardS = 0;
  /** The largest sample of that sound, 0 to 1. */
  peak = 0;

  get late() { return this.#before.late + (this.#talk?.jitter.late ?? 0); }
  get missing() { return this.#before.missing + (this.#talk?.jitter.missing ?? 0); }
  /** Starts sound: a browser plays nothing before the user has interacted with the page. */
  get isOn() { return this.#context.state === 'running'; }
  on() { return this.#context.resume(); }

  /** Plays a frame that has just arrived. Returns false if it is too late. */
  take(frame) {
    if (this.#talk?.key !== frame.talk) this.#begin(frame.talk);
    const { jitter, decode } = this.#talk;
    const atMs = jitter.take(frame.sequence, this.#context.currentTime * 1000);
    if (atMs === null) return false;
    decode(frame, atMs / 1000);
    return true;
  }

  #begin(key) {
    if (this.#talk) {
      this.#before = { late: this.late, missing: this.missing };
      this.#talk.decode.close();
    }
    this.#talk = { key, jitter: new Jitter(), decode: this.#decoder() };
  }

  /** A function that plays frames of one talk, each at its time; call `close` after the last one. */
  #decoder() {
    let decoder = null;
    const open = () => {
      decoder = new AudioDecoder({ output: (data) => this.#playData(data), error: () => { decoder = null; } });
      decoder.configure({ codec: 'opus', sampleRate: SAMPLE_RATE, numberOfChannels: 1 });
    };
    const decode = ({ codec, payload }, atS) => {
      if (codec === 'pcm') return this.#play(fromPcm(payload), SAMPLE_RATE, atS);
      if (!globalThis.AudioDecoder) return;
      if (decoder?.state !== 'configured') open();
      decoder.decode(new EncodedAudioChunk({ type: 'key', timestamp: Math.round(atS * 1e6), data: payload }));
    };
    decode.close = () => {
      const one = decoder;
      one?.flush().catch(() => {}).finally(() => one.state !== 'closed' && one.close());
    };
    return decode;
  }

  #playData(data) {
    const samples = new Float32Array(data.numberOfFrames);
    data.copyTo(samples, { planeIndex: 0, format: 'f32-planar' });
    this.#play(samples, data.sampleRate, data.timestamp / 1e6);
    data.close();
  }

  #play(samples, rate, atS) {
    if (samples.length === 0) return;
    const buffer = this.#context.createBuffer(1, samples.length, rate);
    buffer.copyToChannel(samples, 0);
    const source = this.#context.createBufferSource();
    source.buffer = buffer;
    source.connect(this.#context.destination);
    source.start(Math.max(atS, this.#context.currentTime));
    this.#playing.add(source);
    source.onended = () => this.#playing.delete(source);
    this.heardS += samples.length / rate;
    this.peak = samples.reduce((peak, sample) => Math.max(peak, Math.abs(sample)), this.peak);
  }

  /** Plays missed talks, one after the other. Returns the end of each, milliseconds from now. */
  replay(talks) {
    let atS = this.#context.currentTime + 0.1;
    return talks.map(({ frames }) => {
      const decode = this.#decoder();
      for (const frame of frames) {
        decode(frame, atS);
        atS += FRAME_MS / 1000;
      }
      decode.close();
      const endMs = (atS - this.#context.currentTime) * 1000;
      atS += BETWEEN_S;
      return endMs;
    });
  }

  /** Stops all sound at once. */
  silence() {
    this.#playing.forEach((source) => source.stop());
    this.#playing.clear();
  }
}
