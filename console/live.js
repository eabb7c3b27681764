// The live connection: Centrifugo's client protocol in JSON over a WebSocket. Without a WebSocket the pages poll.
import { Failure } from './ask.js';
import { read } from './read.js';
import { look, prefix, token } from './session.js';
import { link } from './state.js';

const RETRY_MS = [200, 500, 1000, 2000, 5000];
const SOCKET_AGAIN_MS = 30_000;
const HIDDEN_MS = 5000;
const SILENCE_MS = 10_000;
const FOLLOWED_SILENCE_MS = 16_000; // followed operations are pushed every 10 s, slow ones later

let socket = null;
let ready = false;
let wasReady = false;
let wanted = false;
let attempt = 0;
let refusedSockets = 0;
let nextId = 1;
let timer = null;
let refresh = null;
let silence = null;
let pingMs = 25_000;
let hidden = null;
const subscriptions = new Map(); // channel → Set of {data, failed, back}
const replies = new Map(); // id → function

export function start() {
  if (wanted) return;
  wanted = true;
  open();
}

export const tryNow = () => ready || open();

export function stop() {
  wanted = false;
  clearTimeout(timer);
  socket?.close();
}

async function open() {
  clearTimeout(timer);
  try {
    const key = await token();
    if (key && wanted) connect(key);
  } catch {
    again('cut');
  }
}

function again(kind) {
  const wait = kind === 'polling' ? SOCKET_AGAIN_MS : RETRY_MS[Math.min(attempt, RETRY_MS.length - 1)];
  attempt += 1;
  link.set({ kind, retryAt: Date.now() + wait });
  clearTimeout(timer);
  if (wanted) timer = setTimeout(open, wait);
}

function connect(key) {
  const address = new URL(`${prefix}/connection/websocket`, location.href);
  address.protocol = address.protocol.replace('http', 'ws');
  socket?.close();
  const opened = new WebSocket(address);
  socket = opened;
  opened.addEventListener('open', () => command({ connect: { token: key.token } }, (reply) => connected(key, reply)));
  opened.addEventListener('message', (event) => {
    link.set({ heardAt: Date.now() });
    clearTimeout(silence);
    silence = setTimeout(() => silent(opened), subscriptions.size ? FOLLOWED_SILENCE_MS : pingMs + SILENCE_MS);
    for (const line of String(event.data).split('\n')) if (line) take(read(line));
  });
  opened.addEventListener('close', () => socket === opened && closed());
}

// A node that hangs does not close its connections.
function silent(opened) {
  if (socket !== opened) return;
  [socket, ready] = [null, false];
  replies.clear();
  clearTimeout(refresh);
  opened.close();
  again('cut');
}

function connected(key, { error, connect: { ping } = {} }) {
  if (error) {
    socket.close();
    return;
  }
  ready = true;
  if (ping) pingMs = ping * 1000;
  refusedSockets = 0;
  attempt = 0;
  link.set({ kind: 'live', heardAt: Date.now(), retryAt: 0 });
  refreshIn(key.ttl);
  if (!document.hidden) [...subscriptions.keys()].forEach(subscribeTo);
  if (wasReady) tellBack();
  wasReady = true;
}

/** Tells the followers that the connection or the page is back: what was pushed meanwhile is lost. */
function tellBack() {
  for (const sinks of subscriptions.values()) for (const sink of sinks) sink.back?.();
}

function refreshIn(ttl) {
  clearTimeout(refresh);
  refresh = setTimeout(async () => {
    try {
      const key = await token();
      if (!key || !ready) return;
      command({ refresh: { token: key.token } });
      refreshIn(key.ttl);
    } catch {
      // The node will end the connection, and then the page shows that it is cut off.
    }
  }, ttl * 800);
}

async function closed() {
  const was = ready;
  ready = false;
  replies.clear();
  [silence, refresh].forEach(clearTimeout);
  if (!wanted) return;
  if (!was) refusedSockets += 1;
  try {
    const session = await look();
    if (session.role) again(refusedSockets >= 2 ? 'polling' : 'connecting');
  } catch {
    again('cut');
  }
}

function command(fields, done) {
  const id = nextId++;
  if (done) replies.set(id, done);
  socket.send(JSON.stringify({ id, ...fields }));
}

const refuse = (channel, { code, message, reason }) =>
  subscriptions.get(channel)?.forEach((sink) => sink.failed(new Failure('refused', { code, message: message ?? reason })));

function take({ id, push, ...reply }) {
  if (id) {
    replies.get(id)?.(reply);
    replies.delete(id);
  } else if (push?.pub) subscriptions.get(push.channel)?.forEach((sink) => sink.data(push.pub.data));
  else if (push?.unsubscribe) refuse(push.channel, push.unsubscribe);
  else if (!push) socket.send('{}');
}

const subscribeTo = (channel) => command({ subscribe: { channel } }, ({ error }) => error && refuse(channel, error));
const leave = (channel) => command({ unsubscribe: { channel } });

/** Base64url of the JSON, without padding, because channel names cannot contain quotes and spaces. */
function packed(value) {
  const text = String.fromCharCode(...new TextEncoder().encode(JSON.stringify(value)));
  return btoa(text).replaceAll('+', '-').replaceAll('/', '_').replace(/=+$/, '');
}

/** Follows a channel of the console. `path`: `trace` with its target, `live:<operation>` with its parameters; `sink` is `{data(pushed), failed(failure), back()}`. */
export function follow(path, value, sink) {
  const channel = `$console:${path}:${packed(value)}`;
  const sinks = subscriptions.get(channel) ?? new Set();
  sinks.add(sink);
  subscriptions.set(channel, sinks);
  if (ready && sinks.size === 1) subscribeTo(channel);
  return () => {
    sinks.delete(sink);
    if (sinks.size) return;
    subscriptions.delete(channel);
    if (ready) leave(channel);
  };
}

// A hidden page needs no figures, so the node need not work for it.
document.addEventListener('visibilitychange', () => {
  clearTimeout(hidden);
  if (document.hidden) {
    hidden = setTimeout(() => {
      if (ready) [...subscriptions.keys()].forEach(leave);
      hidden = 'left';
    }, HIDDEN_MS);
  } else if (hidden === 'left') {
    hidden = null;
    if (ready) [...subscriptions.keys()].forEach(subscribeTo);
    tellBack();
  }
});

// A request has failed: check the connection at once, not with the next ping.
link.on(({ kind, retryAt }) => {
  if (kind !== 'cut' || !wanted) return;
  const wait = retryAt - Date.now();
  if (ready) socket.close();
  else if (wait < 0 || wait > RETRY_MS.at(-1)) again('cut');
});
