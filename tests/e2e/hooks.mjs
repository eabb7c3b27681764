// Parts that the tests of hooks share: backends whose answers a test decides, and clients over every transport.
import { createServer } from 'node:http';
import { connect } from 'node:net';
import { Centrifuge as Json } from 'centrifuge';
import { Centrifuge as Protobuf } from 'centrifuge/build/protobuf';
import { EventSource } from 'eventsource';
import WebSocket from 'ws';
import { PATIENCE, until } from './patience.mjs';
import { withJsonPayloads } from './payloads.mjs';
import { freePort, Server } from './server.mjs';

/** The transports of the official SDK: name, client, transport. */
export const SDK_WAYS = [
  ['WebSocket', Json, 'websocket'],
  ['WebSocket, Protobuf', Protobuf, 'websocket'],
  ['HTTP streaming', Json, 'http_stream'],
  ['HTTP streaming, Protobuf', Protobuf, 'http_stream'],
  ['server-sent events', Json, 'sse'],
];

/** A list of values in order of arrival. */
export class Heard {
  constructor() { this.all = []; }

  /** The first value from index `from` on that fits. */
  async first(fits, from = 0) {
    let found;
    await until(() => (found = this.all.slice(from).find(fits)) !== undefined, () => `${fits} among ${JSON.stringify(this.all)}`);
    return found;
  }
}

const over = (headers) => ({
  websocket: class extends WebSocket { constructor(url, protocols) { super(url, protocols, { headers }); } },
  fetch: (url, init) => fetch(url, { ...init, headers: { ...init?.headers, ...headers } }),
  eventsource: class extends EventSource {
    constructor(url) { super(url, { fetch: (to, init) => fetch(to, { ...init, headers: { ...init?.headers, ...headers } }) }); }
  },
});

/** A client of the official SDK. `headers`: fields of its requests. `emulated`: fields that it sends in its connect command. */
export function sdkClient(server, [, Client, transport], { headers = {}, emulated, ...options } = {}) {
  const endpoint = transport === 'websocket' ? server.websocket : `${server.http}/connection/${transport}`;
  const client = withJsonPayloads(new Client([{ transport, endpoint }], {
    ...over(headers), readableStream: ReadableStream, emulationEndpoint: `${server.http}/emulation`,
    minReconnectDelay: 100, maxReconnectDelay: 500, timeout: PATIENCE, ...(emulated && { headers: emulated }), ...options,
  }));
  const heard = new Heard();
  for (const name of ['connecting', 'connected', 'disconnected', 'publication']) client.on(name, (context) => heard.all.push({ ...context, name }));
  client.on('error', ({ error }) => heard.all.push({ ...error, name: 'error' }));
  client.heard = heard;
  /** The beginnings and ends of its connection. An attempt to connect that fails is none. */
  client.story = () => heard.all.map(({ name }) => name).filter((name) => ['connecting', 'connected', 'disconnected'].includes(name));
  client.until = (name, code) => heard.first((event) => event.name === name && (code === undefined || event.code === code));
  return client;
}

/** A subscription that records its events. */
export function subscribe(client, channel, options) {
  const subscription = client.newSubscription(channel, { minResubscribeDelay: 100, maxResubscribeDelay: 500, ...options });
  const heard = new Heard();
  for (const name of ['subscribing', 'subscribed', 'unsubscribed', 'publication']) subscription.on(name, (context) => heard.all.push({ ...context, name }));
  subscription.on('error', ({ error }) => heard.all.push({ ...error, name: 'error' }));
  subscription.heard = heard;
  subscription.until = (name, code) => heard.first((event) => event.name === name && (code === undefined || event.code === code));
  subscription.subscribe();
  return subscription;
}

const parsed = (line) => line.replace(/^data: /, '').trim();

async function readLines(body, heard) {
  let rest = '';
  const decoder = new TextDecoder();
  try {
    for await (const part of body) {
      const lines = (rest + decoder.decode(part, { stream: true })).split('\n');
      rest = lines.pop();
      heard.all.push(...lines.map(parsed).filter((line) => line.startsWith('{')).map((line) => JSON.parse(line)));
    }
  } catch { /* the test has closed it */ }
}

/** Opens a one-way transport. Returns its messages and a function that closes it. `request`: the connect request. */
export const ONE_WAY = {
  uni_websocket(server, request, headers) {
    const [heard, socket] = [new Heard(), new WebSocket(`ws://127.0.0.1:${server.port}/connection/uni_websocket`, { headers })];
    socket.on('open', () => socket.send(JSON.stringify(request)));
    socket.on('message', (data) => heard.all.push(JSON.parse(data)));
    socket.on('close', (code, reason) => heard.all.push({ disconnect: { code, reason: `${reason}` } }));
    return { heard, close: () => socket.close() };
  },
  uni_http_stream: (server, request, headers) => stream(server, 'uni_http_stream', { method: 'POST', body: JSON.stringify(request), headers }),
  uni_sse: (server, request, headers) => stream(server, `uni_sse?cf_connect=${encodeURIComponent(JSON.stringify(request))}`, { headers }),
};

function stream(server, path, options) {
  const [heard, stop] = [new Heard(), new AbortController()];
  fetch(`${server.http}/connection/${path}`, { ...options, signal: stop.signal }).then((response) => readLines(response.body, heard)).catch(() => {});
  return { heard, close: () => stop.abort() };
}

/** A client over a plain TCP connection. */
export function lines(port) {
  const [heard, socket] = [new Heard(), connect(port, '127.0.0.1')];
  readLines(socket, heard);
  const say = (command) => socket.write(`${JSON.stringify(command)}\n`);
  const ask = (command) => (say(command), heard.first((message) => message.id === command.id));
  return { heard, say, ask, close: () => socket.destroy() };
}

/** A backend whose answers the test decides. `decide` gets path, request and header fields, and returns an object or answers by itself. */
export class Backend {
  static async start(decide) {
    const backend = new Backend();
    Object.assign(backend, { port: await freePort(), decide, questions: [] });
    await backend.listen();
    return backend;
  }

  async listen() {
    this.server = createServer((request, response) => {
      let body = '';
      request.on('data', (part) => (body += part)).on('end', async () => {
        const question = { path: request.url, headers: request.headers, raw: request.rawHeaders, ...JSON.parse(body || '{}') };
        this.questions.push(question);
        const answer = await this.decide(question, response);
        if (answer !== undefined) response.writeHead(200, { 'Content-Type': 'application/json' }).end(JSON.stringify(answer));
      });
    });
    // Some tests end the backend in the middle of an answer.
    this.server.on('clientError', (_, socket) => socket.destroy());
    await new Promise((resolve) => this.server.listen(this.port, '127.0.0.1', resolve));
  }

  url(path = '') { return `http://127.0.0.1:${this.port}${path}`; }

  /** The requests to a path. */
  of(path) { return this.questions.filter((question) => question.path === path); }

  /** Ends the backend: its port has no listener any more. */
  async stop() {
    const ended = new Promise((resolve) => this.server.close(resolve));
    this.server.closeAllConnections();
    await ended;
  }
}

/** Settings for `Server.start`: every hook is on and calls this backend. `more`: options of every hook, or of one hook by its path. */
export function withHooks(backend, more = {}) {
  const proxy = (path) => ({ endpoint: backend.url(path), timeout: '20s', ...more.all, ...more[path] });
  return {
    client: {
      // short: what expires must end in a test. The SDK in the same process answers the pings, so it stalls with the test.
      allow_anonymous_connect_without_token: false, expired_close_delay: '1s', expired_sub_close_delay: '1s', ping_interval: '2s', pong_timeout: '1900ms',
      proxy: { connect: { enabled: true, ...proxy('/connect') }, refresh: { enabled: true, ...proxy('/refresh') } },
    },
    channel_proxy: { subscribe: proxy('/subscribe'), publish: proxy('/publish'), sub_refresh: proxy('/sub_refresh') },
    rpc: { proxy: proxy('/rpc'), without_namespace: { proxy_enabled: true } },
    namespaces: [{ name: 'chat', subscribe_proxy_enabled: true, publish_proxy_enabled: true, sub_refresh_proxy_enabled: true }],
  };
}

/** Starts a server whose hooks call a backend, and ends both after the test. */
export async function serverFor(t, decide, more = {}, change = {}) {
  const backend = await Backend.start(decide);
  const server = await Server.start({ change: { ...withHooks(backend, more), ...change } });
  const clients = [];
  t.after(async () => {
    for (const client of clients) (client.disconnect ?? client.close).call(client);
    await server.stop('SIGKILL');
    await backend.stop();
  });
  const client = (options, way = SDK_WAYS[0]) => {
    clients.push(sdkClient(server, way, options));
    clients.at(-1).connect();
    return clients.at(-1);
  };
  return { backend, server, client, clients };
}

/** The number of calls of a hook with an outcome. */
export async function calls(server, hook, outcome) {
  const found = (await server.metrics()).match(new RegExp(`^touchline_hook_calls_total\\{(?=[^}]*hook="${hook}")(?=[^}]*outcome="${outcome}")[^}]*\\} (\\d+)`, 'm'));
  return Number(found?.[1] ?? 0);
}
