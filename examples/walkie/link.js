// A lasting connection over any transport: it reconnects and subscribes again by itself. examples/match/touchline.js has more of the protocol.

const FIRST_PAUSE_MS = 200;
const LONGEST_PAUSE_MS = 5_000;
const REPLY_TIMEOUT_MS = 8_000;

/** An error of the server: its number and text. */
export class Refusal extends Error {
  constructor({ code, message, temporary = false }) {
    super(`${message} (${code})`);
    Object.assign(this, { code, isTemporary: temporary });
  }
}

export class Link {
  #dial;
  #token;
  #socket = null;
  #lastId = 0;
  #waiting = new Map(); // command id → { resolve, reject, timer }
  #subscriptions = new Map(); // channel → { onSubscribed(), onPublication(publication), onError(refusal) }
  #attempts = 0;
  #timer = null;
  #silence = null;
  #patienceMs = 0;
  #isWanted = false;
  /** The id of this connection; it changes with each. */
  client = '';
  /** @type {(state: 'connecting' | 'live' | 'lost' | 'closed', reason: string) => void} */
  onState = () => {};

  /** @param {(handlers: {onOpen, onReply, onClose}) => {send, close}} dial opens a transport */
  constructor(dial, { token = '' } = {}) {
    this.#dial = dial;
    this.#token = token;
    // A socket may not notice for a while that its network is gone.
    globalThis.addEventListener?.('offline', () => this.#drop('this device is offline'));
    globalThis.addEventListener?.('online', () => this.#isWanted && !this.#socket && this.#open());
  }

  get isLive() { return this.client !== ''; }

  connect() {
    this.#isWanted = true;
    this.#open();
  }

  disconnect() {
    this.#isWanted = false;
    clearTimeout(this.#timer);
    this.#drop('');
  }

  /** Follows a channel for as long as the connection is wanted. */
  subscribe(channel, handlers) {
    this.#subscriptions.set(channel, handlers);
    if (this.isLive) this.#subscribe(channel, handlers);
  }

  async history(channel, { limit, since }) { return (await this.#ask({ history: { channel, limit, since } })).history; }
  publish(channel, data) { return this.#ask({ publish: { channel, data } }); }
  async rpc(method, data) { return (await this.#ask({ rpc: { method, data } })).rpc.data; }

  #ask(command) {
    return new Promise((resolve, reject) => {
      const id = ++this.#lastId;
      const timer = setTimeout(() => this.#settle(id, null, new Error('no answer in time')), REPLY_TIMEOUT_MS);
      this.#waiting.set(id, { resolve, reject, timer });
      if (this.#socket) this.#socket.send({ id, ...command });
      else this.#settle(id, null, new Error('there is no link'));
    });
  }

  #settle(id, reply, error) {
    const waiting = this.#waiting.get(id);
    if (!waiting) return;
    this.#waiting.delete(id);
    clearTimeout(waiting.timer);
    if (error) waiting.reject(error); else waiting.resolve(reply);
  }

  #open() {
    clearTimeout(this.#timer);
    this.onState('connecting', '');
    const socket = this.#dial({
      onOpen: () => this.#introduce(socket),
      onReply: (reply) => socket === this.#socket && this.#hear(reply),
      onClose: (code, reason) => socket === this.#socket && this.#lost(code, reason),
    });
    this.#socket = socket;
  }

  async #introduce(socket) {
    try {
      const { client, ping = 0 } = (await this.#ask({ connect: { token: this.#token, name: 'walkie' } })).connect;
      this.client = client;
      this.#patienceMs = ping && (ping + 4) * 1000;
      this.onState('live', '');
      this.#subscriptions.forEach((handlers, channel) => this.#subscribe(channel, handlers));
    } catch (error) {
      if (socket !== this.#socket) return;
      // A refusal is final: the same token would be refused again.
      if (error instanceof Refusal && !error.isTemporary) this.#isWanted = false;
      this.#drop(error.message);
    }
  }

  async #subscribe(channel, handlers) {
    try {
      await this.#ask({ subscribe: { channel } });
      handlers.onSubscribed?.();
    } catch (error) {
      // A refusal is final; a temporary error is retried with the next connection.
      if (error instanceof Refusal && !error.isTemporary) handlers.onError?.(error);
      else this.#drop(error.message);
    }
  }

  #hear(reply) {
    this.#attend();
    if (reply.id) return this.#settle(reply.id, reply, reply.error && new Refusal(reply.error));
    if (!reply.push) {
      this.#attempts = 0;
      return this.#socket.send({});
    }
    const { channel, pub, unsubscribe } = reply.push;
    const handlers = this.#subscriptions.get(channel);
    if (pub) handlers?.onPublication?.(pub);
    if (unsubscribe && handlers) {
      // From 2500 on the client subscribes again by itself.
      if (unsubscribe.code >= 2500) this.#subscribe(channel, handlers);
      else handlers.onError?.(new Refusal({ code: unsubscribe.code, message: unsubscribe.reason }));
    }
  }

  /** A server that promised pings and is silent for longer is gone, even if the socket seems open. */
  #attend() {
    clearTimeout(this.#silence);
    if (this.#patienceMs) this.#silence = setTimeout(() => this.#drop('the server is silent'), this.#patienceMs);
  }

  #drop(reason) {
    const socket = this.#socket;
    if (!socket) return;
    this.#lost(0, reason);
    socket.close();
  }

  #lost(code, reason) {
    this.#socket = null;
    this.client = '';
    this.#patienceMs = 0;
    clearTimeout(this.#silence);
    [...this.#waiting.keys()].forEach((id) => this.#settle(id, null, new Error('the link was lost')));
    if ((code >= 3500 && code < 4000) || (code >= 4500 && code < 5000)) this.#isWanted = false;
    if (!this.#isWanted) return this.onState('closed', reason);
    this.onState('lost', reason);
    // Clients that lost their connections together do not reconnect together.
    const longest = Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** this.#attempts++);
    this.#timer = setTimeout(() => this.#open(), Math.random() * longest);
  }
}
