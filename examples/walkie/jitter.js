// When to play a frame. Frames of one talk are played 20 ms apart, 80 ms after their arrival, so that small network delays are not heard. Pure.

import { FRAME_MS } from './frames.js';

export const DELAY_MS = 80;
/** If frames are late for this long, the link has become slower, and the talk is played later from then on. */
const LATE_MS = 200;
/** A frame that would be played this much later than now was sent faster than speech. */
const EARLY_MS = 2_000;

/** One talk as it arrives. */
export class Jitter {
  #origin = null; // the time at which frame 0 is, or would have been, played
  #next = 0;
  #lateSince = null;
  #dropped = 0; // late frames since the last one that was played
  late = 0;
  missing = 0;
  played = 0;

  /**
   * When to play this frame, milliseconds by the clock of `nowMs`. null: it is not played.
   * A gap between frames stays silent.
   */
  take(sequence, nowMs) {
    if (this.#origin === null) {
      this.#origin = nowMs + DELAY_MS - sequence * FRAME_MS;
      this.#next = sequence;
    }
    const at = this.#origin + sequence * FRAME_MS;
    // This includes a repeated frame, and one that arrives after a later one.
    if (sequence < this.#next || at > nowMs + EARLY_MS) {
      this.late += 1;
      return null;
    }
    if (at < nowMs) {
      this.#lateSince ??= nowMs;
      if (nowMs - this.#lateSince < LATE_MS) {
        this.late += 1;
        this.#dropped += 1;
        return null;
      }
      this.#origin += nowMs + DELAY_MS - at;
    }
    this.#lateSince = null;
    this.missing += Math.max(0, sequence - this.#next - this.#dropped);
    this.#dropped = 0;
    this.#next = sequence + 1;
    this.played += 1;
    return this.#origin + sequence * FRAME_MS;
  }
}
