// The client module in Node, against a server whose messages the test decides.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createRequire } from 'node:module';
import { afterEach, test } from 'node:test';
import { until } from '../../../tests/e2e/patience.mjs';
import { Touchline } from '../touchline.js';

const { WebSocket, WebSocketServer } = createRequire(new URL('../../../tests/e2e/package.json', import.meta.url))('ws');
// In a browser, a socket reports a failure only by its close.
globalThis.WebSocket = class extends WebSocket {
  constructor(url) { super(url).on('error', () => {}); }
};

let listener;
let client;
afterEach(() => {
  client.disconnect();
  listener.clients.forEach((socket) => socket.terminate());
  listener.close();
});

/** A server that answers commands from a table: name → (request, number of connections) → result, error, or nothing. */
async function serve(answers) {
  const heard = [];
  const links = [];
  listener = new WebSocketServer({ port: 0, host: '127.0.0.1' });
  listener.on('connection', (socket) => {
    links.push(socket);
    socket.on('message', (data) => {
      const { id, ...command } = JSON.parse(data);
      const [name = 'pong'] = Object.keys(command);
      heard.push({ ...command[name], name });
      const answer = answers[name]?.(command[name], links.length);
      if (answer) socket.send(JSON.stringify({ id, ...(answer.code ? { error: answer } : { [name]: answer }) }));
    });
  });
  await once(listener, 'listening');
  return { heard, links, url: `ws://127.0.0.1:${listener.address().port}` };
}

function start(url, handlers = {}) {
  const states = [];
  const seen = [];
  client = new Touchline(url, { onState: (state, reason) => states.push(reason ? `${state}: ${reason}` : state) });
  client.subscribe('match:live', { onPublication: ({ data }, { isCaughtUp }) => seen.push(isCaughtUp ? `${data} caught up` : data), ...handlers });
  client.connect();
  return { states, seen };
}

const publication = (data, offset) => JSON.stringify({ push: { channel: 'match:live', pub: { data, offset } } });
const connect = () => ({ client: 'c', ping: 25, pong: true });
const named = (heard, name) => heard.filter((command) => command.name === name);

test('several messages in a frame, a last newline, and a ping that is answered', async () => {
  const { url, links, heard } = await serve({ connect, subscribe: () => ({ recoverable: true, offset: 0, epoch: 'e' }) });
  const { seen } = start(url);
  await until(() => named(heard, 'subscribe').length === 1);
  links[0].send(`${publication('a', 1)}\n{}\n${publication('b', 2)}\n`);
  await until(() => seen.length === 2 && named(heard, 'pong').length === 1);
  assert.deepEqual(seen, ['a', 'b']);
});

test('after a lost link it asks for what comes after the last publication, and says what was caught up', async () => {
  const subscribe = ({ recover }) =>
    recover
      ? { recoverable: true, recovered: true, offset: 4, epoch: 'e', publications: [{ data: 'c', offset: 5 }, { data: 'd', offset: 6 }] }
      : { recoverable: true, offset: 3, epoch: 'e' };
  const { url, links, heard } = await serve({ connect, subscribe });
  const { seen, states } = start(url);
  await until(() => named(heard, 'subscribe').length === 1);
  links[0].send(publication('b', 4));
  await until(() => seen.length === 1);
  links[0].terminate();
  await until(() => seen.length === 3);
  assert.deepEqual(named(heard, 'subscribe')[1], { name: 'subscribe', channel: 'match:live', recover: true, offset: 4, epoch: 'e' });
  assert.deepEqual(seen, ['b', 'c caught up', 'd caught up']);
  assert.deepEqual(states, ['connecting', 'live', 'reconnecting', 'connecting', 'live']);
  links[1].terminate();
  await until(() => named(heard, 'subscribe').length === 3);
  assert.equal(named(heard, 'subscribe')[2].offset, 6, 'what was caught up counts');
});

test('what comes in one frame with the reply to a subscription counts', async () => {
  const { url, links, heard } = await serve({ connect });
  const { seen } = start(url);
  await until(() => named(heard, 'subscribe').length === 1);
  const reply = JSON.stringify({ id: 2, subscribe: { recoverable: true, offset: 3, epoch: 'e' } });
  links[0].send(`${reply}\n${publication('b', 4)}`);
  await until(() => seen.length === 1);
  links[0].terminate();
  await until(() => named(heard, 'subscribe').length === 2);
  assert.equal(named(heard, 'subscribe')[1].offset, 4);
});

test('some codes are final, others are not', async () => {
  for (const [code, isFinal] of [[3001, false], [3500, true], [3999, true], [4000, false], [4500, true], [4999, true]]) {
    const { url, links } = await serve({ connect, subscribe: () => ({}) });
    const { states } = start(url);
    await until(() => states.includes('live'));
    links[0].close(code, 'why');
    await until(() => states.includes(isFinal ? 'closed: why' : 'reconnecting: why'));
    if (!isFinal) await until(() => links.length === 2);
    client.disconnect();
    listener.close();
  }
});

test('a refused command is an error with its number, a refused subscription is reported once', async () => {
  const refusals = [];
  const refuse = (code, message) => () => ({ code, message });
  const { url, heard } = await serve({ connect, subscribe: refuse(103, 'permission denied'), rpc: refuse(108, 'not available') });
  start(url, { onError: ({ code }) => refusals.push(code) });
  await until(() => refusals.length === 1);
  await assert.rejects(client.rpc('clap', {}), { code: 108, message: 'not available (108)' });
  assert.deepEqual(refusals, [103]);
  assert.equal(named(heard, 'connect').length, 1);
});

test('a temporary error is retried with the next link, and the client reports no refusal', async () => {
  const refusals = [];
  const subscribe = (_, links) => (links === 1 ? { code: 100, message: 'internal server error', temporary: true } : {});
  const { url, heard } = await serve({ connect, subscribe });
  start(url, { onError: ({ code }) => refusals.push(code) });
  await until(() => named(heard, 'subscribe').length === 2);
  assert.deepEqual(refusals, []);
});

test('a link that is lost while a subscription is under way does not count as a refusal', async () => {
  const refusals = [];
  const { url, links, heard } = await serve({ connect, subscribe: (_, count) => count > 1 && {} });
  const { states } = start(url, { onError: (error) => refusals.push(error) });
  await until(() => named(heard, 'subscribe').length === 1);
  links[0].terminate();
  await until(() => named(heard, 'subscribe').length === 2);
  assert.deepEqual(refusals, []);
  assert.equal(states.at(-1), 'live');
});

test('a server that accepts and drops clients gets fewer and fewer connects', async () => {
  const { url, links } = await serve({ connect, subscribe: () => ({}) });
  const { states } = start(url);
  // waits: the answer must leave first.
  listener.on('connection', (socket) => socket.on('message', () => setTimeout(() => socket.close(3004, 'sorry'), 5)));
  // waits: a client that comes back at once would open hundreds of links.
  await new Promise((resolve) => setTimeout(resolve, 3_000));
  await until(() => links.length >= 2);
  assert.ok(links.length < 20, `${links.length} links`);
  assert.ok(states.includes('reconnecting: sorry'));
});

test('unsubscribed for now comes back by itself, unsubscribed for good does not', async () => {
  const refusals = [];
  const { url, links, heard } = await serve({ connect, subscribe: () => ({ recoverable: true, offset: 1, epoch: 'e' }) });
  const { seen } = start(url, { onError: ({ code }) => refusals.push(code) });
  const unsubscribe = (code) => links[0].send(JSON.stringify({ push: { channel: 'match:live', unsubscribe: { code, reason: 'so' } } }));
  await until(() => named(heard, 'subscribe').length === 1);
  unsubscribe(2500);
  await until(() => named(heard, 'subscribe').length === 2);
  unsubscribe(2000);
  await until(() => refusals.length === 1);
  links[0].send(publication('late', 9));
  links[0].send('{}');
  await until(() => named(heard, 'pong').length > 0);
  assert.deepEqual(seen, []);
  assert.equal(named(heard, 'subscribe').length, 2);
});

test('what needs no answer has no id, and is lost without a link', async () => {
  const { url, heard } = await serve({ connect, subscribe: () => ({}) });
  start(url);
  client.send('reactions.add', { option: 'boo' });
  await until(() => named(heard, 'subscribe').length === 1);
  client.send('reactions.add', { option: 'applause' });
  await until(() => named(heard, 'send').length > 0);
  assert.deepEqual(named(heard, 'send'), [{ name: 'send', data: { method: 'reactions.add', data: { option: 'applause' } } }]);
});

test('totals at the end of a subscribe answer have no offset, and do not move the position', async () => {
  const publications = [{ data: 'missed', offset: 3 }, { data: 'totals' }];
  const { url, links, heard } = await serve({ connect, subscribe: (request, link) => ({ recoverable: true, recovered: link > 1, offset: 2, epoch: 'e', publications }) });
  const { seen } = start(url);
  await until(() => seen.length === 2);
  links[0].send(JSON.stringify({ push: { channel: 'match:live', pub: { data: 'more totals' } } }));
  await until(() => seen.length === 3);
  assert.deepEqual(seen, ['missed', 'totals', 'more totals']);
  links[0].terminate();
  await until(() => named(heard, 'subscribe').length === 2);
  assert.equal(named(heard, 'subscribe')[1].offset, 3);
});
