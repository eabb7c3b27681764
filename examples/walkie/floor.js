// Who may speak in a room, who waits, who is there: the entries of the registry's scope `floor`, and the rules that all clients share. Pure.

/** So long a talk is at most. */
export const LIMIT_MS = 30_000;
/** So much later than the one before it a client of the queue asks for the floor: time for the other to get it. */
export const RANK_MS = 300;
/** The last frames of a talk may come behind the word that it has ended. */
const TAIL_MS = 400;

const word = (value, length) => (typeof value === 'string' ? value : '').slice(0, length);
/** Metadata are what a client says of itself: anything. */
const person = (meta) => ({
  name: word(meta?.name, 40) || 'Somebody', face: word(meta?.face, 8) || '🙂', codecs: Array.isArray(meta?.codecs) ? meta.codecs : [],
});
const waiter = (meta) => ({ ...person(meta), since: Number(meta?.since) || 0 });

export class Floor {
  /** Talks that had the floor, as `client/talk`: only these are played, also out of the history. */
  #talks = new Map();
  #last = null; // the talk that has just ended: { client, talk, untilMs }

  constructor(room) {
    this.names = { floor: `floor/${room}`, dispatch: `dispatch/${room}`, people: `room/${room}`, queue: `queue/${room}` };
    this.clear();
  }

  /** Before the entries are listed anew. */
  clear() {
    const before = { holder: this.holder, dispatcher: this.dispatcher };
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

  /** Whether a frame is played. */
  isHeard(client, talk, nowMs) {
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

  /** How long this client waits before it asks for the floor, milliseconds; null: the floor is taken. */
  patienceMs(client) {
    if (!this.isFree) return null;
    const { queue } = this;
    const place = queue.indexOf(client);
    return (place < 0 ? queue.length : place) * RANK_MS;
  }

  /** What everybody in the room can hear. */
  get codec() {
    return [...this.people.values()].every(({ codecs }) => codecs.includes('opus')) ? 'opus' : 'pcm';
  }
}
