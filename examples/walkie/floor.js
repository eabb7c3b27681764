// Who may speak in a room, who waits, who is there: the entries of the registry's scope `floor`, and the rules that all clients share. Pure.

import { FRAME_MS } from './frames.js';

/** So long a talk is at most. */
export const LIMIT_MS = 30_000;
/** So much later than the one before it a client of the queue asks for the floor: time for the other to get it. */
export const RANK_MS = 300;
/** From this place on all ask at the same time: a long queue of clients that do not ask keeps nobody from it for longer. */
export const RANK_MAX = 10;
/** The last frames of a talk may come behind the word that it has ended. */
const TAIL_MS = 400;

const NAME_MAX = 40;
/** The longest face that is one sign: families and flags have many parts. */
const FACE_MAX = 30;
const signs = new Intl.Segmenter(undefined, { granularity: 'grapheme' });

/** One line of text, without what moves a cursor, turns the direction of writing or hides. */
const line = (value) => (typeof value === 'string' ? value.slice(0, 10 * NAME_MAX).replace(/[\p{C}\p{Zl}\p{Zp}]+/gu, ' ').trim() : '');
const nameOf = (value) => [...line(value)].slice(0, NAME_MAX).join('') || 'Somebody';
/** One pictogram: letters would pass for a part of the name. */
function faceOf(value) {
  const [first] = typeof value === 'string' ? signs.segment(value.slice(0, FACE_MAX)) : [];
  return first && /^\p{Extended_Pictographic}/u.test(first.segment) ? first.segment : '🙂';
}
/** Metadata are what a client says of itself: anything. */
const person = (meta) => ({ name: nameOf(meta?.name), face: faceOf(meta?.face), codecs: Array.isArray(meta?.codecs) ? meta.codecs : [] });
const waiter = (meta) => ({ ...person(meta), since: Number(meta?.since) || 0 });

export class Floor {
  /** Talks that had the floor, as `client/talk`: only these are played, also out of the history. */
  #talks = new Map();
  #last = null; // the talk that has just ended: { client, talk, untilMs }
  /** When the floor became free; null: it is not free. */
  #freeSinceMs = null;

  constructor(room) {
    this.names = { floor: `floor/${room}`, dispatch: `dispatch/${room}`, people: `room/${room}`, queue: `queue/${room}` };
    this.clear();
  }

  /** Before the entries are listed anew. */
  clear() {
    const before = { holder: this.holder, dispatcher: this.dispatcher };
    this.#freeSinceMs = null;
    Object.assign(this, { holder: null, dispatcher: null, people: new Map(), waiting: new Map(), dispatchers: new Set() });
    return before;
  }

  /** A name or a member of a listing, as the change that would have made it. `before`: what `clear` gave; a talk that goes on keeps its beginning. */
  list(change, nowMs, before = {}) {
    const known = [before.holder, before.dispatcher].find((one) => one && one.client === change.client && one.talk === change.meta?.talk);
    this.apply(change, known?.sinceMs ?? nowMs);
  }

  /** A change of the scope. */
  apply({ change, name, group, client, meta }, nowMs) {
    const { names } = this;
    this.learn({ change, name, client, meta });
    if (name === names.floor) this.holder = this.#owner(this.holder, change, client, meta, nowMs);
    if (name === names.dispatch) this.dispatcher = this.#owner(this.dispatcher, change, client, meta, nowMs);
    const hasLeft = change === 'left';
    if (group === names.people) this.#member(this.people, hasLeft, client, person(meta));
    if (group === names.queue) this.#member(this.waiting, hasLeft, client, waiter(meta));
    // The group of dispatchers is given by tokens only.
    if (group === names.dispatch) hasLeft ? this.dispatchers.delete(client) : this.dispatchers.add(client);
    this.#freeSinceMs = this.isFree ? (this.#freeSinceMs ?? nowMs) : null;
  }

  /** The floor is known from now on. */
  open(nowMs) {
    if (this.isFree) this.#freeSinceMs ??= nowMs;
  }

  #member(members, hasLeft, client, entry) {
    if (hasLeft) members.delete(client);
    else members.set(client, entry);
  }

  #owner(owner, change, client, meta, nowMs) {
    if (change === 'registered') return { client, talk: meta?.talk, sinceMs: nowMs, ...person(meta) };
    // Who changes the metadata of the name does not begin anew.
    if (change === 'updated' || owner?.client !== client) return owner;
    this.#last = { client, talk: owner.talk, untilMs: nowMs + TAIL_MS };
    return null;
  }

  /** A change of before: it shows that a talk had the floor, and nothing of how things are now. */
  learn({ change, name, client, meta }) {
    const { floor, dispatch } = this.names;
    if (change === 'registered' && (name === floor || name === dispatch)) this.#talks.set(`${client}/${meta?.talk}`, person(meta));
    // Two talks a second for ten minutes.
    if (this.#talks.size > 1200) this.#talks.delete(this.#talks.keys().next().value);
  }

  /** Who had the floor for this talk, or undefined. */
  speakerOf(client, talk) { return this.#talks.get(`${client}/${talk}`); }

  /** Who is heard: a dispatcher before the holder of the floor, each for 30 s. */
  speaker(nowMs) {
    const owner = this.dispatcher ?? this.holder;
    return owner && nowMs - owner.sinceMs < LIMIT_MS ? { ...owner, isDispatcher: owner === this.dispatcher } : null;
  }

  /**
   * Whether a frame is played. Who has come in the middle of a talk learns from its frames how long it has been.
   * @param {{talk: number, sequence: number}} frame
   */
  isHeard(client, { talk, sequence }, nowMs) {
    const owner = this.dispatcher ?? this.holder;
    if (owner?.client === client && owner.talk === talk) owner.sinceMs = Math.min(owner.sinceMs, nowMs - sequence * FRAME_MS);
    const speaker = this.speaker(nowMs);
    if (speaker) return speaker.client === client && speaker.talk === talk;
    const last = this.#last;
    return !this.dispatcher && !this.holder && last?.client === client && last.talk === talk && nowMs < last.untilMs;
  }

  get isFree() { return !this.holder && !this.dispatcher; }

  /** The clients that wait, the next first: dispatchers, then by the time of joining, then by client id. */
  get queue() {
    const rank = ([client, { since }]) => [this.dispatchers.has(client) ? 0 : 1, since, client];
    const compare = (one, other) => (one === other ? 0 : one < other ? -1 : 1);
    return [...this.waiting].sort((one, other) => {
      const [a, b] = [rank(one), rank(other)];
      return a.map((part, n) => compare(part, b[n])).find(Boolean) ?? 0;
    }).map(([client]) => client);
  }

  /** How long this client waits from now on before it asks for the floor, milliseconds; null: the floor is taken. */
  patienceMs(client, nowMs) {
    if (!this.isFree) return null;
    const { queue } = this;
    const place = queue.indexOf(client);
    // From the moment in which the floor became free: whatever else changes meanwhile puts nothing off.
    return Math.max(0, (this.#freeSinceMs ?? nowMs) + Math.min(place < 0 ? queue.length : place, RANK_MAX) * RANK_MS - nowMs);
  }

  /** What everybody in the room can hear. */
  get codec() {
    return [...this.people.values()].every(({ codecs }) => codecs.includes('opus')) ? 'opus' : 'pcm';
  }
}
