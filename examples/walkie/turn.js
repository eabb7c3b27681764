// One talk of this client, from the moment it has the floor: numbers the frames, keeps the limit, and does not overload a slow link.

import { LIMIT_MS } from './floor.js';
import { encodeFrame } from './frames.js';
import { Outbox } from './outbox.js';

const WARNING_MS = 5_000;
/** Listeners count from the moment they learn of the talk, which may be a little earlier. */
const MARGIN_MS = 200;

export class Turn {
  #outbox = new Outbox();
  #sequence = 0;
  #timers;

  /** @param {{talk: number, codec: 'pcm' | 'opus', publish: (bytes: Uint8Array) => Promise, onWarning: () => void, onLimit: () => void}} options */
  constructor({ talk, codec, publish, onWarning, onLimit }) {
    Object.assign(this, { talk, codec, publish });
    this.#timers = [setTimeout(onWarning, LIMIT_MS - WARNING_MS), setTimeout(onLimit, LIMIT_MS - MARGIN_MS)];
  }

  get sent() { return this.#outbox.sent; }
  get sentOpus() { return this.codec === 'opus' ? this.sent : 0; }
  get dropped() { return this.#outbox.dropped; }

  /** Sends 20 ms of sound. */
  send(payload, capturedMs) {
    const { codec, talk } = this;
    this.#transmit(this.#outbox.push(encodeFrame({ codec, sequence: this.#sequence++, capturedMs, talk, payload }), capturedMs, Date.now()));
  }

  #transmit(frames) {
    for (const bytes of frames) {
      this.publish(bytes).then(() => this.#transmit(this.#outbox.acknowledge(Date.now())), () => this.#outbox.lose());
    }
  }

  end() { this.#timers.forEach(clearTimeout); }
}
