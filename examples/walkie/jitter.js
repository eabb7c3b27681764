// When to play a frame. Frames of one talk are played 20 ms apart, 80 ms behind their arrival, so that small delays of the network are not heard. Pure.

import { FRAME_MS } from './frames.js';

export const DELAY_MS = 80;
/** Frames that have been late for so long are no exception: the link has become slower, and the talk is played later from then on. */
const LATE_MS = 200;
/** A frame that would be played so much later than now was sent faster than it can be spoken. */
const EARLY_MS = 2_000;

/** One talk as it arrives. */
export class Jitter {
  #origin = null; // when the frame 0 is, or would have been, played
  #next = 0;
  #lateSince = null;
  #dropped = 0; // late frames since the last one that was played
  late = 0;
  missing = 0;
  played = 0;

  /**
   * When to play this frame, in milliseconds of the clock that `nowMs` is of; null: it is not played.
   * A gap between frames stays silent.
   */
  take(sequence, nowMs) {
    if (this.#origin === null) {
      this.#origin = nowMs + DELAY_MS - sequence * FRAME_MS;
      this.#next = sequence;
    }
    const at = this.#origin + sequence * FRAME_MS;
    // Also one that comes again, or behind a later one.
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
