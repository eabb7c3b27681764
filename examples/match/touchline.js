// A small client of Touchline: JSON commands and replies over one WebSocket, as in docs/reference/protocol.md. Read it to learn the protocol;
// the official centrifuge SDKs do the same and more.

const FIRST_PAUSE_MS = 200;
const LONGEST_PAUSE_MS = 20_000;
const REPLY_TIMEOUT_MS = 5_000;

/** An error of the server: its number and text. */
export class Refusal extends Error {
  constructor({ code, message, temporary = false }) {
    super(`${message} (${code})`);
    Object.assign(this, { code, isTemporary: temporary });
  }
}

/** One lasting connection: it reconnects by itself and recovers the publications that its subscriptions missed. */
export class Touchline {
  #socket = null;
  #lastId = 0;
  #waiting = new Map(); // command id → { resolve, reject, timer }
  #subscriptions = new Map(); // channel → subscription
  #attempts = 0;
  #timer = null;
  #silence = null;
  #isWanted = false;

  /** @param {string} url of the WebSocket endpoint  @param {{token?: string, onState?: (state: string, reason?: string) => void}} [options] */
  constructor(url, { token = '', onState = () => {} } = {}) {
    Object.assign(this, { url, token, onState });
    // A phone that wakes up or finds its network again should not wait for the next attempt.
    globalThis.addEventListener?.('online', () => this.#hurry());
    // A socket may not notice for minutes that its network is gone.
    globalThis.addEventListener?.('offline', () => this.#drop('offline'));
    globalThis.document?.addEventListener('visibilitychange', () => document.visibilityState === 'visible' && this.#hurry());
  }

  connect() {
    if (!this.#isWanted) this.#open();
    this.#isWanted = true;
    return this;
  }

  disconnect() {
    this.#isWanted = false;
    clearTimeout(this.#timer);
    if (this.#socket) this.#drop('disconnected');
    else this.onState('closed', 'disconnected');
  }

  /**
   * Follows a channel for as long as the connection is wanted.
   * @param {object} handlers onSubscribed({recovered, wasHere}), onPublication(publication, {isCaughtUp}), onJoin(info), onLeave(info),
   *   onError(refusal) when the server has refused for good
   */
  subscribe(channel, handlers) {
    const subscription = { channel, handlers, position: null };
    this.#subscriptions.set(channel, subscription);
    if (this.#socket?.isReady) this.#subscribe(subscription);
  }

  history(channel, options = { limit: -1 }) { return this.#ask({ history: { channel, ...options } }); }
  presenceStats(channel) { return this.#ask({ presence_stats: { channel } }); }
  publish(channel, data) { return this.#ask({ publish: { channel, data } }); }
  rpc(method, data) { return this.#ask({ rpc: { method, data } }); }

  /** Sends a message without a reply, such as reactions. Without a connection it is lost. */
  send(method, data) {
    if (this.#socket?.isReady) this.#socket.send(JSON.stringify({ send: { data: { method, data } } }));
  }

  /** Sends one command. The promise resolves to its reply, or fails with a Refusal. */
  #ask(command) {
    return new Promise((resolve, reject) => this.#send(command, resolve, reject));
  }

  /** Sends one command. Its reply is processed before the next line, because the pushes of a subscription follow its reply at once. */
  #send(command, resolve, reject) {
    const id = ++this.#lastId;
    const timer = setTimeout(() => this.#settle(id, null, new Error('no answer in time')), REPLY_TIMEOUT_MS);
    this.#waiting.set(id, { resolve, reject, timer });
    try { this.#socket.send(JSON.stringify({ id, ...command })); } catch (error) { this.#settle(id, null, error); }
  }

  #settle(id, result, error) {
    const waiting = this.#waiting.get(id);
    if (!waiting) return;
    this.#waiting.delete(id);
    clearTimeout(waiting.timer);
    if (error) waiting.reject(error); else waiting.resolve(result);
  }

  #open() {
    clearTimeout(this.#timer);
    this.onState('connecting');
    const socket = new WebSocket(this.url);
    this.#socket = socket;
    socket.onopen = () => this.#introduce(socket);
    // One frame may contain several messages, one per line.
    socket.onmessage = ({ data }) => data.split('\n').filter(Boolean).forEach((line) => this.#hear(socket, JSON.parse(line)));
    socket.onclose = ({ code, reason }) => socket === this.#socket && this.#lost(code, reason);
  }

  async #introduce(socket) {
    try {
      const { ping = 0 } = (await this.#ask({ connect: { token: this.token, name: 'match' } })).connect;
      Object.assign(socket, { isReady: true, patienceMs: ping ? (ping + 10) * 1000 : 0 });
      this.#heard(socket);
      this.onState('live');
      this.#subscriptions.forEach((subscription) => this.#subscribe(subscription));
    } catch (error) {
      socket.close();
    }
  }

  #subscribe(subscription) {
    const { channel, handlers, position } = subscription;
    const subscribed = ({ subscribe: { recoverable, positioned, recovered = false, publications = [], offset = 0, epoch = '' } }) => {
      // The missed publications lead from our offset to the newest one. Totals of reactions have no offset.
      const top = publications.filter((publication) => publication.offset).at(-1)?.offset ?? offset;
      if (recoverable || positioned) subscription.position = { offset: top, epoch };
      handlers.onSubscribed?.({ recovered, wasHere: position !== null });
      publications.forEach((publication) => handlers.onPublication?.(publication, { isCaughtUp: recovered }));
    };
    const refused = (error) => {
      // A refusal is final; a temporary error is retried with the next connection.
      if (error instanceof Refusal && !error.isTemporary) handlers.onError?.(error);
      else this.#socket?.close();
    };
    this.#send({ subscribe: { channel, ...(position && { recover: true, ...position }) } }, subscribed, refused);
  }

  /** Processes one line of the server: a reply to a command, a push, or an empty object, which is a ping. */
  #hear(socket, line) {
    this.#heard(socket);
    if (line.id) return this.#settle(line.id, line, line.error && new Refusal(line.error));
    if (!line.push) return this.#answerPing(socket);
    const { channel, pub, join, leave, unsubscribe } = line.push;
    const subscription = this.#subscriptions.get(channel);
    if (!subscription) return;
    const { handlers } = subscription;
    if (pub) {
      if (pub.offset && subscription.position) subscription.position.offset = pub.offset;
      handlers.onPublication?.(pub, { isCaughtUp: false });
    }
    if (join) handlers.onJoin?.(join.info);
    if (leave) handlers.onLeave?.(leave.info);
    // From 2500 on, the client should subscribe again by itself (2500 = insufficient state: recover).
    if (unsubscribe?.code >= 2500) this.#subscribe(subscription);
    else if (unsubscribe) {
      this.#subscriptions.delete(channel);
      handlers.onError?.(new Refusal({ code: unsubscribe.code, message: unsubscribe.reason }));
    }
  }

  #answerPing(socket) {
    socket.send('{}');
    // Only a connection that has lasted counts as good, so that a server that accepts and drops clients at once is not flooded.
    this.#attempts = 0;
  }

  /** A server that promised pings and is silent for longer is gone, even if the socket seems open. */
  #heard(socket) {
    clearTimeout(this.#silence);
    if (socket.patienceMs) this.#silence = setTimeout(() => this.#drop('no ping'), socket.patienceMs);
  }

  /** Gives up the socket at once: the closing handshake over a dead network takes minutes. */
  #drop(reason) {
    this.#socket?.close();
    if (this.#socket) this.#lost(0, reason);
  }

  #lost(code, reason) {
    this.#socket = null;
    clearTimeout(this.#silence);
    [...this.#waiting.keys()].forEach((id) => this.#settle(id, null, new Error('the connection was lost')));
    const isFinal = (code >= 3500 && code < 4000) || (code >= 4500 && code < 5000);
    if (isFinal) this.#isWanted = false;
    if (!this.#isWanted) return this.onState('closed', reason);
    this.onState('reconnecting', reason);
    // Full jitter: clients that lost their connections together do not reconnect together.
    const longest = Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** this.#attempts++);
    this.#timer = setTimeout(() => this.#open(), Math.random() * longest);
  }

  #hurry() {
    if (!this.#isWanted || this.#socket) return;
    this.#attempts = 0;
    this.#open();
  }
}
