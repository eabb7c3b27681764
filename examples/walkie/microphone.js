// The microphone: asks for permission, cuts the sound into frames, and encodes them.

import { FRAME_MS, FRAME_SAMPLES, SAMPLE_RATE } from './frames.js';
import { toPcm } from './pcm.js';

const OPUS = { codec: 'opus', sampleRate: SAMPLE_RATE, numberOfChannels: 1, bitrate: 24_000, opus: { frameDuration: FRAME_MS * 1000 } };

const SPEECH = { channelCount: 1, echoCancellation: true, noiseSuppression: true, autoGainControl: true };

/** The kind of trouble for each name of a browser error. */
const TROUBLE = {
  NotAllowedError: 'denied', NotFoundError: 'none', NotReadableError: 'busy', OverconstrainedError: 'none', SecurityError: 'denied',
};

/** Whether this browser can encode and decode Opus. */
export async function hasOpus() {
  if (!globalThis.AudioEncoder || !globalThis.AudioDecoder) return false;
  const decoder = { codec: 'opus', sampleRate: SAMPLE_RATE, numberOfChannels: 1 };
  const answers = await Promise.all([AudioEncoder.isConfigSupported(OPUS), AudioDecoder.isConfigSupported(decoder)]).catch(() => []);
  return answers.length > 0 && answers.every(({ supported }) => supported);
}

export class Microphone {
  #context;
  #track;
  #encoder = null;
  #onFrame = null; // (payload, capturedMs) while the user talks
  #epochMs = 0; // the time at which the context's clock was zero
  #onTrouble;

  /** @param {(trouble: string) => void} onTrouble the microphone is gone: `ended` */
  constructor(onTrouble) { this.#onTrouble = onTrouble; }

  get isOpen() { return this.#track?.readyState === 'live'; }

  /** Asks for the microphone. Returns null, or the kind of trouble: insecure, denied, none, busy, broken. */
  async open() {
    if (!navigator.mediaDevices?.getUserMedia) return globalThis.isSecureContext ? 'broken' : 'insecure';
    try {
      const stream = await navigator.mediaDevices.getUserMedia({ audio: SPEECH });
      [this.#track] = stream.getAudioTracks();
      this.#track.onended = () => this.#onTrouble('ended');
      // The track is off until the user talks.
      this.#track.enabled = false;
      this.#context = new AudioContext({ latencyHint: 'interactive' });
      await this.#context.audioWorklet.addModule(new URL('capture.worklet.js', import.meta.url));
      const capture = new AudioWorkletNode(this.#context, 'capture', { numberOfOutputs: 0 });
      capture.port.onmessage = ({ data }) => this.#take(data);
      this.#context.createMediaStreamSource(stream).connect(capture);
      return null;
    } catch (error) {
      return TROUBLE[error.name] ?? 'broken';
    }
  }

  /** Passes on frames until `stop`. */
  async start(codec, onFrame) {
    await this.#context.resume();
    this.#epochMs = Date.now() - this.#context.currentTime * 1000;
    this.#onFrame = onFrame;
    this.#encoder = codec === 'opus' ? this.#opus() : null;
    this.#track.enabled = true;
  }

  /** Resolves when the last frame has been passed on. */
  async stop() {
    if (!this.#onFrame) return;
    this.#track.enabled = false;
    await this.#encoder?.flush().catch(() => {});
    if (this.#encoder && this.#encoder.state !== 'closed') this.#encoder.close();
    this.#encoder = this.#onFrame = null;
  }

  #opus() {
    const encoder = new AudioEncoder({
      output: (chunk) => {
        const payload = new Uint8Array(chunk.byteLength);
        chunk.copyTo(payload);
        this.#onFrame?.(payload, chunk.timestamp / 1000);
      },
      error: () => this.#onTrouble('broken'),
    });
    encoder.configure(OPUS);
    return encoder;
  }

  #take({ samples, atS }) {
    if (!this.#onFrame || !this.#track.enabled) return;
    const capturedMs = Math.round(this.#epochMs + atS * 1000);
    if (!this.#encoder) return this.#onFrame(toPcm(samples), capturedMs);
    if (this.#encoder.state !== 'configured') return;
    const sound = { format: 'f32', sampleRate: SAMPLE_RATE, numberOfFrames: FRAME_SAMPLES, numberOfChannels: 1, timestamp: capturedMs * 1000, data: samples };
    const data = new AudioData(sound);
    this.#encoder.encode(data);
    data.close();
  }
}
