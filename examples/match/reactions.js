// The reactions of the crowd without a page: taps into commands, publications into totals, totals into a pulse.
// It depends on no page and no connection: the tests run it in Node.

/** The reactions of the crowd; the namespace of the channel has the same options. */
export const OPTIONS = ['applause', 'boo'];
/** Taps within this time are sent as one command. */
export const COLLECT_MS = 250;
/** Maximum number of taps in one command. */
export const MOST_AT_ONCE = 100;
/** The current totals arrive with the reply to a subscription, or right after it. */
export const PRESENT_WITHIN_MS = 1_000;
/** How far back the pulse goes. */
export const PULSE_SECONDS = 120;

const each = (number) => Object.fromEntries(OPTIONS.map((option) => [option, number(option)]));

/**
 * Returns a function to call for each tap. Taps within COLLECT_MS are sent together, by option.
 * @param {(option: string, n: number) => void} send  @param {typeof setTimeout} [later] how to wait
 */
export function collectTaps(send, later = setTimeout) {
  const taps = new Map(); // option → how many
  const flush = () => {
    const collected = [...taps];
    taps.clear();
    collected.forEach(([option, n]) => send(option, n));
  };
  return (option) => {
    if (taps.size === 0) later(flush, COLLECT_MS);
    taps.set(option, Math.min((taps.get(option) ?? 0) + 1, MOST_AT_ONCE));
  };
}

/** Whether a publication's data are totals of the crowd, not an event of the match. */
export const isReactions = (data) => typeof data?.reactions === 'object' && data.reactions !== null && Number.isInteger(data.seq);

/** The reactions of a channel without reactions so far. */
export const noReactions = () => ({ totals: each(() => 0), seq: 0, opened: 0, isClosed: false });

/**
 * The reactions after one more publication. The same object if the publication is older than the known totals.
 * `seq` grows within one opening, and a later opening begins at zero.
 */
export function follow(known, { reactions, seq, opened = 0, closed = false }) {
  const isSameOpening = opened === known.opened;
  if (isSameOpening ? seq < known.seq : opened < known.opened) return known;
  const totals = each((option) => (Number.isFinite(reactions[option]) ? reactions[option] : 0));
  // Closed reactions stay closed: opening them again is another opening.
  return { totals, seq, opened, isClosed: closed === true || (isSameOpening && known.isClosed) };
}

/** How much each total has risen. The totals of another opening are all new. */
export function rise(before, after) {
  const from = after.opened === before.opened ? before.totals : noReactions().totals;
  return each((option) => Math.max(0, after.totals[option] - from[option]));
}

const NOTHING = rise(noReactions(), noReactions());

/**
 * The totals of a channel across lost links. Call subscribed() for each reply to a subscription, take(publication), and lost().
 * @param {(reactions: object, risen: object) => void} show the known totals, and how much they rose while this page watched
 */
export function trackReactions(show) {
  let known = noReactions();
  let beginning; // runs until the current totals have arrived
  const lost = () => {
    clearTimeout(beginning);
    beginning = undefined;
  };
  const subscribed = () => {
    lost();
    show(known, NOTHING);
    beginning = setTimeout(() => {
      beginning = undefined;
      known = noReactions();
      show(known, NOTHING);
    }, PRESENT_WITHIN_MS);
  };
  const take = ({ data, offset }) => {
    const isBeginning = beginning !== undefined;
    // They replace the known totals even if they are lower: a restarted server counts from zero. Only closing totals have an offset.
    const isPresent = isBeginning && !offset;
    if (isPresent) lost();
    const before = isPresent ? noReactions() : known;
    const after = follow(before, data);
    if (after === before) return;
    known = after;
    show(known, isBeginning ? NOTHING : rise(before, after));
  };
  return { subscribed, take, lost };
}

/** Reactions per second, from rises of the totals. */
export class Pulse {
  #seconds = new Map(); // whole second → what rose in it, by option; in the order of time

  /** Counts a rise. @param {number} atMs its time, by a monotonic clock */
  add(risen, atMs) {
    const second = Math.floor(atMs / 1000);
    const before = this.#seconds.get(second) ?? noReactions().totals;
    this.#seconds.set(second, each((option) => before[option] + risen[option]));
    for (const old of this.#seconds.keys()) if (old < second - PULSE_SECONDS) this.#seconds.delete(old); else break;
  }

  /** The last two minutes, oldest first: for each option one number for each whole second, without the current second. */
  perSecond(nowMs) {
    const now = Math.floor(nowMs / 1000);
    return each((option) => Array.from({ length: PULSE_SECONDS }, (_, index) => this.#seconds.get(now - PULSE_SECONDS + index)?.[option] ?? 0));
  }
}

/** A line of a chart: the points of a polyline in a box of the given size, for numbers from 0 to `most`. */
export function points(numbers, most, width, height) {
  const x = (index) => (index * width) / (numbers.length - 1);
  const y = (number) => height - (number * height) / most;
  return numbers.map((number, index) => `${round(x(index))},${round(y(number))}`).join(' ');
}

const round = (number) => Math.round(number * 100) / 100;

/** The chart in words, for users who cannot see it. */
export function summary(perSecond) {
  const told = OPTIONS.map((option) => {
    const numbers = perSecond[option];
    const all = numbers.reduce((sum, number) => sum + number, 0);
    return `${option} ${all} in all, at most ${Math.max(...numbers)} a second, ${numbers.at(-1)} now`;
  });
  return `In the last two minutes: ${told.join('; ')}.`;
}
