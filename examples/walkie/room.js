// One client in one room: it asks for the floor, waits for it, speaks, listens, and reads missed talks. It does not depend on a page or on
// sound.

import { Floor, LIMIT_MS } from './floor.js';
import { followFloor } from './follow.js';
import { decodeFrame, newTalk } from './frames.js';
import { Refusal } from './link.js';
import { missedTalks } from './missed.js';
import { Turn } from './turn.js';

const SCOPE = 'floor';
/** Frames may arrive before the change that gave their speaker the floor. */
export const PENDING_MS = 400;
const PENDING_MAX = 50;
const AGAIN_MS = 500;
const HISTORY_PAGE = 300;
const HISTORY_MAX = 6_000;
export const ANNOUNCE_AFTER_MS = 1_500;
/** A shorter missed time is not offered. */
const MISSED_MIN_S = 0.4;

export class Room {
  #pending = []; // frames of speakers that are not known yet: { frame, publication, untilMs }
  #missed = []; // publications that were not received live
  #unplayed = []; // talks whose replay was interrupted
  #own = new Set(); // the ids that this client has had
  #liveFrom = null; // the first offset that this connection has received live
  #expected = null; // the next offset of the channel
  #isCaughtUp = false;
  #position; // { offset, epoch } of the last publication that was received
  #isAsking = false;
  #isQueued = false;
  #timer = null;
  #gapTimer = null;
  #announceTimer = null;
  #worked;
  #before = { sent: 0, dropped: 0, sentOpus: 0 }; // of turns that are over
  state = 'connecting';
  isWanted = false;
  /** Whether the holder of the floor is known. */
  isFloorKnown = false;
  isMissedPartial = false;
  ignored = 0;
  /** @type {Turn | null} */
  turn = null;

  /**
   * @param {Link} link
   * @param {string} room
   * @param {{name: string, face: string, codecs: string[]}} me
   * @param {object} events onChange(), onFrame(frame) which returns false if the frame is too late to be played,
   *   onTurn(turn), onTurnEnd(reason) which may be a promise, onWarning(), onMissed(seconds), onRefusal(error)
   * @param {{isDispatcher?: boolean, position?: {offset: number, epoch: string}}} [options] `position`: where this client was before
   */
  constructor(link, room, me, events, { isDispatcher = false, position = null } = {}) {
    Object.assign(this, { link, room, me, events, isDispatcher });
    this.channel = `talk:${room}`;
    this.floor = new Floor(room);
    this.#position = position;
    link.onState = (state, reason) => this.#onState(state, reason);
    this.#worked = followFloor(link, this.floor, { onChange: () => this.#onFloor(), onError: (error) => events.onRefusal(error) });
    link.subscribe(this.channel, {
      onSubscribed: () => this.#enter().catch(() => {}),
      onPublication: (publication) => this.#onPublication(publication),
      onError: (error) => events.onRefusal(error),
    });
  }

  /** The position of this client in the channel; null before it is known. */
  get position() { return this.#position; }
  get sent() { return this.#before.sent + (this.turn?.sent ?? 0); }
  get sentOpus() { return this.#before.sentOpus + (this.turn?.sentOpus ?? 0); }
  get dropped() { return this.#before.dropped + (this.turn?.dropped ?? 0); }
  /** Place in the queue, from 1; 0: not in it. */
  get place() { return this.floor.queue.indexOf(this.link.client) + 1; }

  #ask(method, data) { return this.link.rpc(`registry.${method}`, { scope: SCOPE, ...data }); }

  #onState(state, reason) {
    this.state = state;
    this.reason = reason;
    if (state === 'live') this.#own.add(this.link.client);
    if (state === 'lost' || state === 'closed') {
      this.#isAsking = this.#isQueued = false;
      this.#isCaughtUp = this.isFloorKnown = false;
      this.#expected = this.#liveFrom = null;
      if (this.turn) this.#end('lost');
    }
    this.events.onChange();
  }

  /** Shows this client to the others, and reads earlier talks. */
  async #enter() {
    await this.#ask('join', { group: this.floor.names.people, meta: this.#meta() });
    await this.#worked();
    await this.#catchUp();
    this.#consider();
  }

  #meta(more) {
    const { name, face, codecs } = this.me;
    return { name, face, codecs, ...more };
  }

  /** Updates this client's metadata, for example when it now has a microphone. */
  present() {
    if (this.link.isLive) this.#ask('join', { group: this.floor.names.people, meta: this.#meta() }).catch(() => {});
  }

  // ---- The floor

  /** Asks for the floor, now or when it is free. */
  want() {
    this.isWanted = true;
    this.#consider();
    this.events.onChange();
  }

  /** Gives the floor back, or leaves the queue. */
  unwant(reason = 'released') {
    this.isWanted = false;
    clearTimeout(this.#timer);
    this.#leaveQueue();
    if (this.turn) this.#end(reason);
    this.events.onChange();
  }

  #onFloor() {
    this.isFloorKnown = true;
    const { floor, link, turn } = this;
    if (turn && !turn.isOver && !this.isDispatcher && floor.dispatcher) this.unwant('dispatcher');
    const owner = this.isDispatcher ? floor.dispatcher : floor.holder;
    if (turn && turn.isKnown && owner?.client !== link.client) this.unwant('taken');
    else if (turn) turn.isKnown ||= owner?.client === link.client;
    this.#hearPending();
    this.#consider();
    this.events.onChange();
  }

  /** Asks for the floor if it is this client's turn, else joins the queue. */
  #consider() {
    clearTimeout(this.#timer);
    if (!this.isWanted || this.turn || this.#isAsking || !this.link.isLive) return;
    const patienceMs = this.isDispatcher && !this.floor.dispatcher ? 0 : this.floor.patienceMs(this.link.client, Date.now());
    if (patienceMs !== 0) this.#enterQueue();
    if (patienceMs !== null) this.#timer = setTimeout(() => this.#takeFloor(), patienceMs);
  }

  async #takeFloor() {
    const { names } = this.floor;
    const name = this.isDispatcher ? names.dispatch : names.floor;
    const talk = newTalk();
    this.#isAsking = true;
    try {
      await this.#ask('register', { name, meta: this.#meta({ talk, codecs: undefined }) });
      this.#isAsking = false;
      this.#leaveQueue();
      if (this.isWanted) this.#begin(name, talk);
      else await this.#ask('unregister', { name });
    } catch (error) {
      this.#isAsking = false;
      this.#notGiven(error);
    }
  }

  /** Handles a refused request for the floor: another client was faster, or the link is down. */
  #notGiven(error) {
    if (error instanceof Refusal && error.code !== 4001 && !error.isTemporary) {
      this.isWanted = false;
      this.events.onRefusal(error);
      return;
    }
    if (error.code === 4001) this.#enterQueue();
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#consider(), AGAIN_MS);
  }

  #enterQueue() {
    if (this.#isQueued) return;
    this.#isQueued = true;
    this.#ask('join', { group: this.floor.names.queue, meta: this.#meta({ since: Date.now(), codecs: undefined }) }).catch(() => { this.#isQueued = false; });
  }

  #leaveQueue() {
    if (!this.#isQueued) return;
    this.#isQueued = false;
    this.#ask('leave', { group: this.floor.names.queue }).catch(() => {});
  }

  #begin(name, talk) {
    const codec = this.me.codecs.includes('opus') ? this.floor.codec : 'pcm';
    const publish = (bytes) => this.link.publish(this.channel, bytes);
    const turn = new Turn({ talk, codec, publish, onWarning: () => this.events.onWarning(), onLimit: () => this.unwant('limit') });
    this.turn = Object.assign(turn, { name, isOver: false, isKnown: false, endsMs: Date.now() + LIMIT_MS });
    this.events.onTurn(turn);
    this.events.onChange();
  }

  async #end(reason) {
    const { turn } = this;
    if (turn.isOver) return;
    turn.isOver = true;
    turn.end();
    this.isWanted = false;
    // The microphone's last frames are still sent.
    await this.events.onTurnEnd(reason);
    this.turn = null;
    const { sent, sentOpus, dropped } = this.#before;
    this.#before = { sent: sent + turn.sent, sentOpus: sentOpus + turn.sentOpus, dropped: dropped + turn.dropped };
    if (reason !== 'lost' && reason !== 'taken') await this.#ask('unregister', { name: turn.name }).catch(() => {});
    this.#consider();
    this.events.onChange();
  }

  // ---- Hearing

  #onPublication(publication) {
    const { data, info, offset } = publication;
    if (this.#isCaughtUp && offset > this.#expected) this.#readGap(this.#expected - 1, offset - 1);
    this.#liveFrom ??= offset;
    this.#expected = offset + 1;
    if (this.#isCaughtUp) this.#position = { ...this.#position, offset };
    if (info?.client === this.link.client) return;
    const frame = decodeFrame(data);
    if (!frame || !info) return this.#ignore();
    if (this.#hear(frame, publication)) return;
    this.#pending.push({ frame, publication, untilMs: Date.now() + PENDING_MS });
    if (this.#pending.length > PENDING_MAX) {
      this.#pending.shift();
      this.#ignore();
    }
    setTimeout(() => this.#hearPending(), PENDING_MS + 1);
  }

  #hear(frame, publication) {
    if (!this.floor.isHeard(publication.info.client, frame, Date.now())) return false;
    if (this.events.onFrame(frame) === false) {
      this.#missed.push(publication);
      this.#announceTimer ??= setTimeout(() => this.#announce(), ANNOUNCE_AFTER_MS);
    }
    return true;
  }

  #hearPending() {
    const nowMs = Date.now();
    this.#pending = this.#pending.filter(({ frame, publication, untilMs }) => {
      if (this.#hear(frame, publication)) return false;
      if (nowMs < untilMs) return true;
      this.#ignore();
      return false;
    });
  }

  /** Counts a frame of a client without the floor, or bytes that are not a frame. They have no other effect. */
  #ignore() { this.ignored += 1; }

  // ---- Missed talks

  get missed() {
    return [...this.#unplayed, ...missedTalks(this.#missed, (client, talk) => this.floor.speakerOf(client, talk), this.#own)];
  }

  /** Takes the missed talks, which then no longer count as missed. */
  takeMissed() {
    const talks = this.missed;
    this.#missed = [];
    this.#unplayed = [];
    this.isMissedPartial = false;
    this.events.onMissed(0);
    return talks;
  }

  /** Gives back talks that were not played to their end: they still count as missed. */
  giveBackMissed(talks) {
    this.#unplayed.unshift(...talks);
    this.#announce();
  }

  async #catchUp() {
    const { offset: top = 0, epoch } = await this.link.history(this.channel, { limit: 0 });
    // Publications that arrived live during the request for the position are not missed.
    const upTo = (this.#liveFrom ?? top + 1) - 1;
    const from = this.#position?.epoch === epoch ? this.#position.offset : 0;
    if (from < upTo) await this.#read(from, upTo, epoch);
    this.#expected ??= top + 1;
    this.#position = { offset: Math.max(top, this.#expected - 1), epoch };
    this.#isCaughtUp = true;
  }

  #readGap(from, upTo) {
    // Gaps of a bad link come in bursts: they are read together, with the publications between them.
    this.gap = { from: Math.min(from, this.gap?.from ?? from), upTo };
    clearTimeout(this.#gapTimer);
    this.#gapTimer = setTimeout(() => {
      const { gap } = this;
      this.gap = null;
      this.#read(gap.from, gap.upTo, this.#position.epoch).catch(() => {});
    }, ANNOUNCE_AFTER_MS);
  }

  /** Reads the publications after the offset `from` up to `upTo`. */
  async #read(from, upTo, epoch) {
    const known = new Set(this.#missed.map(({ offset }) => offset));
    for (let offset = from; offset < upTo;) {
      const page = await this.link.history(this.channel, { limit: HISTORY_PAGE, since: { offset, epoch } }).catch((error) => {
        // The history does not reach back so far: read from its beginning.
        if (error.code !== 112 || offset === 0) throw error;
        return null;
      });
      if (!page) { this.isMissedPartial = true; offset = 0; continue; }
      const publications = page.publications ?? [];
      if (!publications.length) break;
      this.#missed.push(...publications.filter((one) => one.offset > from && one.offset <= upTo && !known.has(one.offset)));
      offset = publications.at(-1).offset;
    }
    this.#announce();
  }

  /** Offers the missed talks. */
  #announce() {
    clearTimeout(this.#announceTimer);
    this.#announceTimer = null;
    this.#missed = this.#missed.sort((one, other) => one.offset - other.offset).slice(-HISTORY_MAX);
    const seconds = this.missed.reduce((sum, talk) => sum + talk.seconds, 0);
    if (seconds >= MISSED_MIN_S) this.events.onMissed(seconds);
  }
}
