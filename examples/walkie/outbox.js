// Outgoing frames. If the link is behind, frames older than 400 ms are dropped. Pure.

import { FRAME_MS } from './frames.js';

export const AGE_MAX_MS = 400;
/**
 * Maximum number of frames that the server has not acknowledged. The system's sockets buffer minutes of Opus before `bufferedAmount` shows
 * that nothing leaves, so the acknowledgements of the server say whether the link is behind.
 */
const UNACKNOWLEDGED_MAX = AGE_MAX_MS / FRAME_MS;

export class Outbox {
  #waiting = []; // { bytes, capturedMs }
  #unacknowledged = 0;
  sent = 0;
  dropped = 0;

  /** Adds a frame and returns the frames to send now. */
  push(bytes, capturedMs, nowMs) {
    this.#waiting.push({ bytes, capturedMs });
    return this.take(nowMs);
  }

  acknowledge(nowMs) {
    this.#unacknowledged = Math.max(0, this.#unacknowledged - 1);
    return this.take(nowMs);
  }

  /** The frames to send now, the oldest first. */
  take(nowMs) {
    const fresh = this.#waiting.filter(({ capturedMs }) => nowMs - capturedMs <= AGE_MAX_MS);
    this.dropped += this.#waiting.length - fresh.length;
    const out = fresh.splice(0, UNACKNOWLEDGED_MAX - this.#unacknowledged);
    this.#waiting = fresh;
    this.#unacknowledged += out.length;
    this.sent += out.length;
    return out.map(({ bytes }) => bytes);
  }

  /** Handles a sent frame that did not arrive: the link is lost, or the server has refused it. */
  lose() {
    this.#unacknowledged = Math.max(0, this.#unacknowledged - 1);
    this.sent -= 1;
    this.dropped += 1;
  }
}
