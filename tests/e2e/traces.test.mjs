// Traces as a collector receives them: calls of the server API, calls to a backend, batches of events, commands of a consumer.
import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { after, before, describe, test } from 'node:test';
import { gunzipSync } from 'node:zlib';
import protobuf from 'protobufjs';
import WebSocket from 'ws';
import { Backend } from './hooks.mjs';
import { JetStream } from './jetstream.mjs';
import { Nats } from './nats.mjs';
import { until } from './patience.mjs';
import { freePort, KEY, Server } from './server.mjs';

const { root } = protobuf.parse(`syntax = "proto3";
  message Traces { repeated ResourceSpans resource_spans = 1; }
  message ResourceSpans { Resource resource = 1; repeated ScopeSpans scope_spans = 2; }
  message Resource { repeated KeyValue attributes = 1; }
  message ScopeSpans { repeated Span spans = 2; }
  message KeyValue { string key = 1; AnyValue value = 2; }
  message AnyValue { string string_value = 1; }
  message Status { string message = 2; int32 code = 3; }
  message Span {
    bytes trace_id = 1; bytes span_id = 2; bytes parent_span_id = 4; string name = 5; int32 kind = 6;
    repeated KeyValue attributes = 9; Status status = 15;
  }`, { keepCase: true });
const Traces = root.lookupType('Traces');
const [SERVER, CLIENT, PRODUCER, CONSUMER] = [2, 3, 4, 5];
const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';
const PARENT = `00-${TRACE}-00f067aa0ba902b7-01`;

const hex = (bytes) => Buffer.from(bytes).toString('hex');
const attributes = (list) => Object.fromEntries(list.map(({ key, value }) => [key, value.string_value]));

/** A collector of OTLP over HTTP. */
class Collector {
  static async start() {
    const collector = Object.assign(new Collector(), { spans: [], requests: [], port: await freePort(), status: 200 });
    collector.server = createServer((request, response) => {
      const parts = [];
      request.on('data', (part) => parts.push(part)).on('end', () => {
        collector.requests.push({ path: request.url, headers: request.headers });
        if (collector.hangs-- > 0) return;
        if (collector.status === 200) collector.take(Buffer.concat(parts), request.headers['content-encoding']);
        response.writeHead(collector.status, { 'Content-Type': 'application/x-protobuf' }).end();
      });
    });
    await new Promise((resolve) => collector.server.listen(collector.port, '127.0.0.1', resolve));
    return collector;
  }

  take(body, encoding) {
    for (const { resource, scope_spans } of Traces.decode(encoding === 'gzip' ? gunzipSync(body) : body).resource_spans) {
      for (const span of scope_spans.flatMap((scope) => scope.spans)) {
        this.spans.push({
          trace: hex(span.trace_id), id: hex(span.span_id), parent: hex(span.parent_span_id ?? []), name: span.name, kind: span.kind,
          status: span.status?.code ?? 0, about: attributes(span.attributes), resource: attributes(resource.attributes),
        });
      }
    }
  }

  async span(fits, what) {
    await until(() => this.spans.some(fits), () => `${what} among ${JSON.stringify(this.spans)}`);
    return this.spans.find(fits);
  }

  stop() {
    this.server.close();
    this.server.closeAllConnections();
  }
}

/** Starts a server that sends its spans to a collector. */
function traced(collector, change, settings = { enabled: true }, environment = []) {
  const words = ['env', `OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:${collector.port}`, 'OTEL_BSP_SCHEDULE_DELAY=100', ...environment];
  return Server.start({ change: { ...change, opentelemetry: settings }, on: { address: '127.0.0.1', words } });
}

async function publish(server, body, headers = {}) {
  const response = await fetch(`${server.http}/api/publish`, { method: 'POST', headers: { 'X-API-Key': KEY, ...headers }, body: JSON.stringify(body) });
  return response.json();
}

const historyOf = async (server, channel) => (await server.api('history', { channel, limit: 10 })).result.publications;

describe('traces', () => {
  let collector, backend, receiver, server;
  before(async () => {
    collector = await Collector.start();
    backend = await Backend.start((question) => (question.path === '/rpc' ? { result: { data: 1 } } : { error: { code: 1000, message: 'no' } }));
    receiver = await Backend.start(() => ({}));
    const rpc = { proxy: { endpoint: backend.url('/rpc') }, without_namespace: { proxy_enabled: true } };
    const events = [{ name: 'crm', endpoint: receiver.url(), types: ['connected'], batch_wait: '0s', delay: '0s' }];
    server = await traced(collector, { rpc, events });
  });
  after(async () => {
    await server?.stop();
    for (const part of [backend, receiver, collector]) part?.stop?.();
  });

  test('a call is a part of the trace of its caller, and its publication hands that on', async () => {
    await publish(server, { channel: 'history:traced', data: 1 }, { traceparent: PARENT, 'X-Request-ID': 'r-1' });
    const span = await collector.span(({ name, trace }) => name === 'api publish' && trace === TRACE, 'the span of the call');
    assert.deepEqual([span.kind, span.parent, span.status], [SERVER, '00f067aa0ba902b7', 0]);
    assert.deepEqual([span.about['touchline.caller'], span.about['touchline.request_id']], ['default', 'r-1']);
    assert.equal(span.resource['service.name'], 'touchline');
    const [{ tags }] = await historyOf(server, 'history:traced');
    assert.deepEqual(tags, { traceparent: `00-${TRACE}-${span.id}-01` });
    assert.equal(collector.requests[0].path, '/v1/traces');
  });

  test('a tag of the caller stays, and a parent that is not valid begins a new trace', async () => {
    await publish(server, { channel: 'history:tagged', data: 1, tags: { traceparent: 'mine', a: 'b' } }, { traceparent: PARENT });
    await publish(server, { channel: 'history:tagged', data: 2 }, { traceparent: 'nonsense' });
    const [mine, other] = await historyOf(server, 'history:tagged');
    assert.deepEqual(mine.tags, { traceparent: 'mine', a: 'b' });
    assert.match(other.tags.traceparent, /^00-[0-9a-f]{32}-[0-9a-f]{16}-01$/);
    assert.ok(!other.tags.traceparent.includes(TRACE));
  });

  test('a refusal is an error, and paths do not choose names of spans', async () => {
    await publish(server, { channel: 'nowhere:x', data: 1 });
    const refused = await collector.span(({ about }) => about['touchline.error.code'] === '102', 'the refused call');
    assert.deepEqual([refused.name, refused.status], ['api publish', 2]);
    await fetch(`${server.http}/api/${'x'.repeat(50)}`, { method: 'POST', headers: { 'X-API-Key': KEY }, body: '{}' });
    await collector.span(({ name }) => name === 'api unknown', 'the call of nothing');
  });

  test('a broadcast hands its trace on in every channel', async () => {
    const headers = { 'X-API-Key': KEY, traceparent: PARENT };
    await fetch(`${server.http}/api/broadcast`, { method: 'POST', headers, body: JSON.stringify({ channels: ['history:b1', 'history:b2'], data: 1 }) });
    const all = await Promise.all(['history:b1', 'history:b2'].map((channel) => historyOf(server, channel)));
    assert.ok(all.every(([{ tags }]) => tags.traceparent.startsWith(`00-${TRACE}-`)));
  });

  test('hooks and events are spans, and their receivers get the trace context', async () => {
    const client = new WebSocket(server.websocket);
    await new Promise((resolve) => client.once('open', resolve));
    client.send(JSON.stringify({ id: 1, connect: {} }));
    client.send(JSON.stringify({ id: 2, rpc: { method: 'm', data: 1 } }));
    const question = await collector.span(({ name }) => name === 'hook rpc', 'the question');
    assert.deepEqual([question.kind, question.status, question.about['touchline.hook']], [CLIENT, 0, 'rpc.proxy']);
    assert.equal(backend.questions.find(({ path }) => path === '/rpc').headers.traceparent, `00-${question.trace}-${question.id}-01`);
    const batch = await collector.span(({ name }) => name === 'events crm', 'the events');
    assert.deepEqual([batch.kind, batch.about['touchline.events']], [PRODUCER, '1']);
    assert.equal(receiver.questions[0].headers.traceparent, `00-${batch.trace}-${batch.id}-01`);
    client.close();
  });
});

test('a command of a consumer is a part of the trace of its message', async () => {
  const [nats, collector] = [await Nats.start(), await Collector.start()];
  const stream = await JetStream.connect(nats.port);
  await stream.create('NEWS', ['news.>']);
  const consumers = [{
    name: 'news', enabled: true, type: 'nats_jetstream',
    nats_jetstream: { url: nats.url, stream_name: 'NEWS', durable_consumer_name: 'touchline', deliver_policy: 'all', subjects: ['news.>'] },
  }];
  const server = await traced(collector, { consumers });
  try {
    const command = JSON.stringify({ method: 'publish', payload: { channel: 'history:consumed', data: 1 } });
    await stream.publish('news.one', command, { traceparent: PARENT });
    const span = await collector.span(({ name }) => name === 'consume publish', 'the command');
    assert.deepEqual([span.kind, span.trace, span.parent], [CONSUMER, TRACE, '00f067aa0ba902b7']);
    const [{ tags }] = await historyOf(server, 'history:consumed');
    assert.equal(tags.traceparent, `00-${TRACE}-${span.id}-01`);
  } finally {
    await server.stop();
    stream.close();
    await nats.stop();
    collector.stop();
  }
});

test('each part can be switched off, and nothing is made unless it is asked for', async () => {
  const collector = await Collector.start();
  const quiet = await traced(collector, {}, { enabled: false });
  await publish(quiet, { channel: 'history:off', data: 1 }, { traceparent: PARENT });
  assert.equal((await historyOf(quiet, 'history:off'))[0].tags, undefined);
  await quiet.stop();
  const passing = await traced(collector, {}, { enabled: true, api: false });
  await publish(passing, { channel: 'history:passed', data: 1 }, { traceparent: PARENT });
  assert.equal((await historyOf(passing, 'history:passed'))[0].tags.traceparent, PARENT, 'what is not traced is handed on all the same');
  await passing.stop();
  const untagged = await traced(collector, {}, { enabled: true, publications: false });
  await publish(untagged, { channel: 'history:untagged', data: 1 }, { traceparent: PARENT });
  assert.equal((await historyOf(untagged, 'history:untagged'))[0].tags, undefined);
  await untagged.stop();
  assert.deepEqual([...new Set(collector.spans.map(({ name }) => name))].sort(), ['api history', 'api publish']);
  collector.stop();
});

test('a collector that is away or refuses has no effect on clients, and the last spans arrive at the stop', async () => {
  const collector = await Collector.start();
  collector.status = 503;
  const server = await traced(collector, {}, { enabled: true }, ['OTEL_SERVICE_NAME=live', 'OTEL_EXPORTER_OTLP_TIMEOUT=500']);
  for (let n = 0; n < 20; n += 1) await publish(server, { channel: 'history:away', data: n });
  await until(() => collector.requests.length > 0, () => 'the collector was asked');
  collector.status = 200;
  await publish(server, { channel: 'history:away', data: 'last' }, { traceparent: PARENT });
  assert.equal(await server.stop(), 0);
  const last = await collector.span(({ trace }) => trace === TRACE, 'the last span');
  assert.equal(last.resource['service.name'], 'live');
  collector.stop();
});

test('a traceparent that is not one is neither a parent nor a tag', async () => {
  const collector = await Collector.start();
  const passing = await traced(collector, {}, { enabled: true, api: false });
  const valid = PARENT.slice(3);
  const wrong = ['00-1-1-01', `01-${valid}`, `ff-${valid}`, `00-${valid}-`, `${PARENT}-x`, PARENT.toUpperCase(), `00-${'0'.repeat(32)}-00f067aa0ba902b7-01`,
    `00-${'1'.repeat(3001)}-00f067aa0ba902b7-01`, `00-+${valid.slice(1)}`, `00-${TRACE}-00f067aa0ba902b7-<script>`];
  for (const [n, traceparent] of wrong.entries()) await publish(passing, { channel: 'history:wrong', data: n }, { traceparent });
  const twice = new Headers({ 'X-API-Key': KEY, traceparent: PARENT });
  twice.append('traceparent', PARENT);
  await fetch(`${passing.http}/api/publish`, { method: 'POST', headers: twice, body: JSON.stringify({ channel: 'history:wrong', data: 'twice' }) });
  const all = await historyOf(passing, 'history:wrong');
  assert.deepEqual(all.map(({ tags }) => tags), all.map(() => undefined));
  await passing.stop();
  collector.stop();
});

test('a collector that never answers is given up, and the next batches arrive', async () => {
  const collector = await Collector.start();
  collector.hangs = 1;
  const server = await traced(collector, {}, { enabled: true }, ['OTEL_EXPORTER_OTLP_TIMEOUT=500']);
  await publish(server, { channel: 'history:hung', data: 1 });
  await until(() => collector.requests.length > 0, () => 'the collector was asked');
  await publish(server, { channel: 'history:hung', data: 2 }, { traceparent: PARENT });
  await collector.span(({ trace }) => trace === TRACE, 'the span behind the batch that hung');
  assert.equal(await server.stop(), 0);
  collector.stop();
});

test('a variable that cannot be used stops the start, and says which', async () => {
  const words = ['env', 'OTEL_EXPORTER_OTLP_ENDPOINT=no address'];
  const starting = Server.start({ change: { opentelemetry: { enabled: true } }, on: { address: '127.0.0.1', words }, seconds: 5 });
  await assert.rejects(starting, /opentelemetry\.enabled: .*(URI|endpoint|address)/i);
});
