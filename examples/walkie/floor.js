// The floor of a room: the current speaker, the queue, the present clients. It has the entries of the registry's scope `floor` and the
// common rules. Pure.

import { FACES } from './faces.js';
import { FRAME_MS } from './frames.js';

/** Maximum length of a talk. */
export const LIMIT_MS = 30_000;
/** A queued client asks for the floor this much later than the one before it, so that the other can get it. */
export const RANK_MS = 300;
/** From this place on all clients ask at the same time, so that clients that do not ask cannot delay the others any longer. */
export const RANK_MAX = 10;
/** The last frames of a talk may arrive after the change that ended it. */
const TAIL_MS = 400;

const NAME_MAX = 40;

/** One line of text, without characters that move a cursor, change the direction of writing or are invisible. */
const line = (value) => (typeof value === 'string' ? value.slice(0, 10 * NAME_MAX).replace(/[\p{C}\p{Zl}\p{Zp}]+/gu, ' ').trim() : '');
const nameOf = (value) => [...line(value)].slice(0, NAME_MAX).join('') || 'Somebody';
/** The name of a known face. Other text could be mistaken for a part of the name. */
const faceOf = (value) => (typeof value === 'string' && value in FACES ? value : 'somebody');
/** Metadata come from the client and may be anything. */
const person = (meta) => ({ name: nameOf(meta?.name), face: faceOf(meta?.face), codecs: Array.isArray(meta?.codecs) ? meta.codecs : [] });
const waiter = (meta) => ({ ...person(meta), since: Number(meta?.since) || 0 });

export class Floor {
  /** Talks that had the floor, as `client/talk`. Only these are played, also from the history. */
  #talks = new Map();
  #last = null; // the talk that has just ended: { client, talk, untilMs }
  /** The time when the floor became free. null: it is not free. */
  #freeSinceMs = null;

  constructor(room) {
    this.names = { floor: `floor/${room}`, dispatch: `dispatch/${room}`, people: `room/${room}`, queue: `queue/${room}` };
    this.clear();
  }

  /** Clears the entries before they are listed again. */
  clear() {
    const before = { holder: this.holder, dispatcher: this.dispatcher };
    this.#freeSinceMs = null;
    Object.assign(this, { holder: null, dispatcher: null, people: new Map(), waiting: new Map(), dispatchers: new Set() });
    return before;
  }

  /** A name or a member of a listing, as the change that would have made it. `before` is the result of `clear`; a talk that continues keeps its beginning. */
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
    // Only a token can make a client a dispatcher.
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
    // A change of the name's metadata does not start a new turn.
    if (change === 'updated' || owner?.client !== client) return owner;
    this.#last = { client, talk: owner.talk, untilMs: nowMs + TAIL_MS };
    return null;
  }

  /** An earlier change: it shows that a talk had the floor, but not the current state. */
  learn({ change, name, client, meta }) {
    const { floor, dispatch } = this.names;
    if (change === 'registered' && (name === floor || name === dispatch)) this.#talks.set(`${client}/${meta?.talk}`, person(meta));
    // Two talks a second for ten minutes.
    if (this.#talks.size > 1200) this.#talks.delete(this.#talks.keys().next().value);
  }

  /** The speaker who had the floor for this talk, or undefined. */
  speakerOf(client, talk) { return this.#talks.get(`${client}/${talk}`); }

  /** The speaker who is heard: a dispatcher before the holder of the floor, each for 30 s. */
  speaker(nowMs) {
    const owner = this.dispatcher ?? this.holder;
    return owner && nowMs - owner.sinceMs < LIMIT_MS ? { ...owner, isDispatcher: owner === this.dispatcher } : null;
  }

  /**
   * Whether a frame is played. A client that joins during a talk learns from the frames how long the talk has lasted.
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

  /** How long this client waits before it asks for the floor, milliseconds. null: the floor is taken. */
  patienceMs(client, nowMs) {
    if (!this.isFree) return null;
    const { queue } = this;
    const place = queue.indexOf(client);
    // Counted from the moment when the floor became free, so that other changes do not delay it.
    return Math.max(0, (this.#freeSinceMs ?? nowMs) + Math.min(place < 0 ? queue.length : place, RANK_MAX) * RANK_MS - nowMs);
  }

  /** The codec that each client in the room can play. */
  get codec() {
    return [...this.people.values()].every(({ codecs }) => codecs.includes('opus')) ? 'opus' : 'pcm';
  }
}
