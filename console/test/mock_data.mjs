// Plausible answers of a node for the mock server. The same clock gives the same answers, except for the moving values.
const NODES = [['5f0c1a', 'node-1'], ['8d2e7b', 'node-2'], ['c41f90', 'node-3']];
const HOSTILE = ['<img src=//evil.example/x onerror=alert(1)>', 'a\u202Ecod.exe\u0000', '"><script>alert(1)</script>', '__proto__', '../../admin', 'ü'.repeat(127)];
const HOUR = 3_600_000;

const wave = (now, period, from, to) => from + ((to - from) * (1 + Math.sin((now / period) * 2 * Math.PI))) / 2;
const client = (index) => `8f2c${String(index).padStart(4, '0')}-9066-444b-bfc3-0001000${String(index).padStart(5, '0')}`;

/** `switches`: `{empty, hostile, missing, changed, role}`; `now` in Unix milliseconds. */
export function answers({ empty, hostile, missing, changed, role }, now) {
  const hidden = role === 'viewer';
  const name = (index, plain) => (hostile ? HOSTILE[index % HOSTILE.length] + (index >= HOSTILE.length ? index : '') : plain);
  const payload = (data, field = 'data') => (hidden ? { size: 41, hidden: true } : { [field]: data, size: 41 });
  const list = (length, make) => (empty ? [] : Array.from({ length }, (_, index) => make(index)));
  const missingNodes = missing ? ['c41f90'] : [];
  const minute = Math.floor(now / 60_000) * 60_000;
  const tick = JSON.stringify({ symbol: name(0, 'X'), note: name(1, 'fine') }).slice(0, -1) + ',"price":10.20,"volume":9223372036854775807}';
  const raw = { raw: tick };

  const node = ([id, called], index) => ({
    id, name: called, state: empty ? 'ok' : ['ok', 'bad', 'look'][index], connections: empty ? 0 : 33_470 + index, subscriptions: 40_112, channels: 16_704,
    deliveries_s: wave(now, 60_000, 15_900, 16_200), publications_s: 401, cpu: [38.2, 91.4, 40.0][index], cores: 6, memory: [612, 1434, 615][index] * 2 ** 20,
    queued_bytes: [2.1, 208, 1.9][index] * 2 ** 20, slow_connections: [0, 412, 0][index], files: 33_700, files_max: 65_536, busiest_shard: [12.1, 81.4, 13.2][index],
    ...(empty ? {} : { delivery_p99_ms: [11, 84, 12][index] }), version: '0.4.0', config_generation: [17, 17, 16][index], uptime_s: 186_400, at_ms: now - 400,
  });
  const activity = list(30, (index) => ({
    at_ms: minute - (index + 1) * 19 * 60_000, node: NODES[index % 3][1], who: index % 4 === 3 ? 'the node' : '203.0.113.7', role: index % 4 === 3 ? '' : 'operator', what: ['reload', 'disconnect', 'block_user', 'link lost'][index % 4],
    target: index % 4 ? name(index, `user ${40 + index}`) : '', result: index === 5 ? 'error 103' : 'ok',
  }));
  const problems = list(2, (index) => [{
    id: 'slow_connections', severity: 'bad', since_ms: minute - 11 * 60_000, node: 'node-2', count: 412, words: '412 connections on node-2 read slower than they are sent to; 208 MiB wait.',
    remedy: 'Look at the slowest, or allow deltas for the namespace.', runbook: 'docs/guides/troubleshooting.md#slow_connections', link: '/connections?q=waiting:>64KiB',
  }, {
    id: 'configuration_differs', severity: 'look', since_ms: minute - 17 * 60_000, node: 'node-3', count: 1, words: 'node-3 runs configuration 16, the others 17.',
    remedy: 'Reload node-3.', runbook: hostile ? 'javascript:alert(1)' : '', link: '/configuration',
  }][index]);

  const channels = list(211, (index) => [name(index, ['market:ticks', 'news:live', 'chat:lobby', 'score'][index] ?? `room:${String(index).padStart(4, '0')}`), { num_clients: Math.max(1, 33_512 - index * 160) }]);
  const connection = (index) => ({
    user: name(index, String(42 + (index % 20))), transport: index % 5 ? 'websocket' : 'sse', protocol: 'json', app_name: index % 3 ? 'dart' : 'js', app_version: '0.2.1',
    state: { channels: { 'market:ticks': {}, [name(1, 'news:live')]: { server_side: true } }, connection_token: { issued_at: Math.floor(now / 1000) - 7000 }, ...(hidden ? {} : { meta: { plan: 'gold' } }) },
    connected_at_ms: minute - 131 * 60_000 - index * 1000, ping_pong_latency_ms: 20 + (index % 80), labels: { plan: 'gold' }, address: `203.0.113.${index % 250}`,
    queued_bytes: index % 7 || changed ? 0 : 1_048_576, node: NODES[index % 3][0], names: [{ name: name(2, 'truck-0007'), scope: 'devices' }], groups: [{ group: 'trucks', scope: 'devices' }],
  });
  const names = list(120, (index) => ({ name: name(index, `truck-${String(index).padStart(4, '0')}`), client: client(index), node: NODES[index % 3][0], version: `1764${index}.0`, ...(hidden ? { size: 12, hidden: true } : { meta: { fw: '1.8', n: index } }) }));
  const series = (from, to) => Array.from({ length: 360 }, (_, index) => (index < 20 ? -1 : wave(now - index * 10_000, HOUR, from, to)));
  const page = (all, { limit = 100, cursor }, pairs) => {
    const start = Number(cursor) || 0;
    const some = all.slice(start, start + limit);
    return { some: pairs ? Object.fromEntries(some) : some, next: start + limit < all.length ? start + limit : undefined };
  };
  const history = (params) => ({
    offset: 8_120_411, epoch: 'aXk3bQpz',
    publications: list(params.limit === 0 ? 0 : 50, (index) => ({ offset: 8_120_411 - index, time: now - index * 2500, tags: { side: 'buy' }, ...payload(raw), ...(index % 3 ? {} : { info: { client: client(1), user: name(0, '42') } }) })),
  });

  const operations = {
    overview: () => ({
      at_ms: now, verdict: { severity: empty ? 'ok' : 'bad', connections: empty ? 0 : 100_412 }, problems,
      nodes: NODES.filter(([id]) => !missingNodes.includes(id)).map(node), activity: activity.slice(0, 20), missing_nodes: missingNodes,
      dependencies: [['nats', 'ok'], ['primary', 'ok'], ['stats', 'ok'], ['hook:connect', 'bad'], ['events:crm', changed ? 'bad' : 'ok']].slice(0, empty ? 0 : 5).map(([called, state]) => ({ name: called, node: 'node-1', state })),
    }),
    overview_history: () => ({ step_ms: 10_000, end_ms: now, series: { connections: series(96_000, 100_412), deliveries_s: series(40_000, 48_210), publications_s: series(1000, 1204), delivery_p99_ms: series(11, 84), queued_bytes: series(3e6, 222e6), cpu: series(50, 71), memory: series(1e9, 2e9) } }),
    channels: (params) => {
      const wanted = new RegExp(`^${(params.pattern || '*').replace(/[.+^$|()]/g, '\\$&').replace(/(\\)?\*/g, (all, kept) => (kept ? '\\*' : '.*'))}$`, 's');
      const { some, next } = page(channels.filter(([called]) => wanted.test(called)), params, true);
      return { channels: some, cursor: next && String(next), missing_nodes: missingNodes };
    },
    channel: ({ channel }) => ({
      channel, namespace: channel.includes(':') ? channel.split(':')[0] : '', subscribers: empty ? 0 : 33_512,
      nodes: NODES.map(([, called], index) => ({ node: called, shard: index, subscribers: 11_170 + index, offset: 8_120_411 + Math.floor(now / 10) % 1e6, epoch: 'aXk3bQpz', kept: 300, state: ['live', 'live', 'idle'][index] })),
      options: [['history_size', '300', 'channel.namespaces[market].history_size, touchline.toml:61:1'], ['history_ttl', '10m', 'channel.namespaces[market].history_ttl, touchline.toml:62:1'], ['allow_subscribe_for_client', 'true', 'default'], ['delta_publish', 'true', 'default']].map(([key, value, origin]) => ({ key, value, origin })),
    }),
    channels_similar: () => ({ channels: list(3, (index) => ({ channel: name(index, `news:${index}`), title: name(index, 'News'), score: 1.5 - index / 10, tags: ['football'] })) }),
    presence_stats: () => (empty ? { error: { code: 108, message: 'presence is off for this channel: channel.namespaces[market].presence is false' } } : { num_clients: 33_512, num_users: 30_100 }),
    presence: () => ({ num_clients: 33_512, sample: true, presence: Object.fromEntries(list(20, (index) => [client(index), { client: client(index), user: name(index, String(42 + index)), ...(hidden ? {} : { conn_info: { name: name(index, 'Ana') } }) }])) }),
    history,
    publish: (params) => (params.dry_run ? { audience: { nodes: Object.fromEntries(NODES.map(([id]) => [id, { clients: 11_170, bytes: 457_970, excluded: 0, filtered: 4, json_bytes: 457_970, protobuf_bytes: 0 }])) } } : { offset: 8_120_412, epoch: 'aXk3bQpz' }),
    history_remove: () => ({}),
    connections: (params) => {
      const all = list(412, (index) => [client(index), connection(index)]).filter(([id, one]) => (!params.client || params.client === id) && (params.user === undefined || params.user === one.user) && (!params.transport || params.transport === one.transport));
      const { some, next } = page(all, params, true);
      return { connections: some, cursor: next && String(next), missing_nodes: missingNodes };
    },
    disconnect: () => ({ connections: 1, nodes: { [NODES[0][0]]: 1 } }),
    refusals: () => ({ refusals: list(12, (index) => ({ last_ms: now - index * 40_000, node: NODES[index % 3][0], kind: ['connection', 'command', 'api'][index % 3], what: ['', 'subscribe', 'publish'][index % 3], channel: index % 2 ? name(index, 'market:ticks') : '', key: index % 3 === 2 ? 'default' : '', code: 103, words: 'the origin is not in client.allowed_origins', count: 31 + index })) }),
    activity: () => ({ activity }),
    bans: ({ kind }) => ({ bans: list(kind === 'user' ? 12 : 3, (index) => ({ kind, name: name(index, `${kind === 'token' ? '7a' : ''}${42 + index - (changed ? 1 : 0)}`), ...(index % 2 && { until_s: Math.floor(minute / 1000) + 6 * 24 * 3600 }) })) }),
    count: () => ({ names: empty ? 0 : 20_114, groups: empty ? 0 : 31, members: empty ? 0 : 8204, nodes: NODES.map(([id], index) => ({ node: id, entries: 9400 + index })) }),
    names: (params) => {
      const all = names.filter((one) => one.name.startsWith(params.prefix ?? ''));
      const start = params.after ? all.findIndex((one) => one.name === params.after) + 1 : 0;
      return { names: all.slice(start, start + 100), last: start + 100 < all.length ? all[start + 99].name : undefined };
    },
    groups: () => ({ groups: list(31, (index) => ({ group: name(index, `fleet-${index}`), count: 264 })) }),
    members: () => ({ count: empty ? 0 : 3, members: list(3, (index) => ({ client: client(index), node: NODES[index][0], meta: { seat: index } })) }),
    changes: ({ epoch }) => (epoch ? { changes: list(8, (index) => ({ change: ['registered', 'taken over', 'unregistered'][index % 3], name: name(index, `truck-${index}`), client: client(index), node: NODES[0][0], reason: index % 4 ? 'normal' : 'conflict' })), offset: 8, epoch } : { changes: [], offset: 8, epoch: '4f1c0a7e' }),
    lookup: (params) => (empty ? { error: { code: 4002, message: 'not registered' } } : { name: params.name, client: client(7), node: NODES[1][0], version: '17640.0', ...payload({ fw: '1.8', cells: { raw: '[4.20,4.10]' } }, 'meta') }),
    call: () => ({ data: { battery: 81 } }),
    send: () => ({ sent: 1 }),
    unregister: () => ({}),
    inbox_names: ({ scope }) => ({ names: list(31, (index) => ({ scope, name: name(index, `truck-${String(index).padStart(4, '0')}`), waiting: 3 + index, bytes: 41 * (3 + index), ...(index && { oldest_ms: minute - 300_000 }) })), total_messages: empty ? 0 : 412 }),
    inbox_list: () => ({ messages: list(3, (index) => ({ id: `01J9${index}`, ...(index && { from: name(index, 'backend') }), sent_ms: now - 300_000, ...(index && { expires_ms: now + 2 * HOUR }), ...payload({ unlock: true }) })) }),
    inbox_drop: ({ ids }) => ({ dropped: ids?.length ?? 3 }),
    events_dead: () => ({ letters: list(42, (index) => ({ id: index + 1, endpoint: 'push', made_at: Math.floor(now / 1000) - 2000, died_at: Math.floor(now / 1000) - 1000, tries: 12, error: name(index, 'the status of the answer is 503'), ...(hidden ? { size: 80, hidden: true } : { event: { id: `user:42:${index}`, type: 'disconnected', subject: name(index, 'user 42') } }) })) }),
    events_dead_retry: ({ ids }) => ({ count: ids?.length ?? 42 }),
    events_dead_drop: ({ ids }) => ({ count: ids?.length ?? 42 }),
    events_resume: () => ({}),
    consumers: () => ({ consumers: list(3, (index) => ({ name: 'outbox', node: NODES[index][1], waiting: [0, 1204, 88][index], oldest_s: [0, 41, 3][index], retrying: [0, 3, 0][index], unread: [0, 1204, 88][index], state: ['running', 'behind', 'stuck'][index] })) }),
    stats_audience: (params) => {
      const step = params.step || 300;
      const to = params.to || Math.floor(now / 1000);
      const points = list(Math.min(1440, Math.floor((to - params.from) / step)), (index) => ({ time: params.from + index * step, current: Math.round(wave(index, 100, 20_000, 90_000)), peak: Math.round(wave(index, 100, 22_000, 96_112)), users: 80_000 }));
      return empty ? { error: { code: 108, message: 'statistics are off: stats.enabled is false' } } : { points, peak: 96_112, users: 131_804 };
    },
    stats_top: ({ of }) => ({ top: list(10, (index) => ({ [{ channels: 'channel', namespaces: 'namespace', events: 'event', transports: 'transport', agents: 'agent', codes: 'code' }[of] ?? 'channel']: name(index, `market:${index}`), minutes: 1_200_000 - index * 9000, peak: 33_512 - index })) }),
    stats_events: () => ({ points: [] }),
    configuration: () => ({
      generation: 17,
      keys: [['channel.namespaces[market].history_size', '300', 'touchline.toml:61:1'], ['node.shards', '4', 'touchline.toml:3:1', true], ['registry.scopes[devices].name', '"devices"', 'touchline.toml:71:1', true], ['http_server.port', '8000', 'default', true], ['log.level', 'info', 'TOUCHLINE_LOG_LEVEL'], ['client.allowed_origins', hostile ? `["${HOSTILE[0]}"]` : '["https://x.example"]', 'touchline.toml:12:1']]
        .map(([key, value, origin, restart]) => ({ key, value, origin, ...(restart && { restart }) })).concat([{ key: 'client.token.hmac_secret_key', secret: true, origin: 'touchline.toml:9:1' }]),
    }),
    reload: () => ({ generation: 18, changed: ['channel.namespaces[market].history_size'] }),
    token_check: ({ token }) => (token.startsWith('ey') ? { valid: false, words: 'expired 12 s ago (exp 03:16:50, this server 03:17:02).', header: { alg: 'HS256' }, claims: [{ claim: 'sub', value: name(0, '42'), words: 'the user' }, { claim: 'exp', value: 1795359600, words: 'until when it is taken' }] } : { valid: false, words: 'It has no three parts.', header: {}, claims: [] }),
    block_user: () => ({}), unblock_user: () => ({}), revoke_token: () => ({}), invalidate_user_tokens: () => ({}), info: () => ({ nodes: [] }),
  };
  return { operations, tick, hidden, client: client(0) };
}

export const CHANGES = new Set(['publish', 'broadcast', 'disconnect', 'history_remove', 'block_user', 'unblock_user', 'revoke_token', 'invalidate_user_tokens', 'call', 'send', 'unregister', 'inbox_drop', 'events_dead_retry', 'events_dead_drop', 'events_resume', 'reload']);

/** The OpenAPI document of three operations, in the form of the real one. */
export function openapi() {
  const schemas = {
    PublishRequest: {
      type: 'object', required: ['channel'], examples: [{ channel: 'news', data: { headline: 'Kick-off' } }], properties: {
        channel: { type: 'string', minLength: 1, description: 'The channel.' }, data: { type: ['array', 'boolean', 'number', 'object', 'string'], description: 'The publication.' },
        dry_run: { type: ['boolean', 'null'], description: 'Publish nothing, and count who would get the publication.' }, expires_in: { type: ['integer', 'null'], description: 'Seconds.' },
      },
    },
    HistoryRequest: { type: 'object', required: ['channel'], examples: [{ channel: 'market:ticks', limit: 10 }], properties: { channel: { type: 'string', minLength: 1, description: 'The channel.' }, limit: { type: ['integer', 'null'] }, reverse: { type: ['boolean', 'null'] } } },
    StatsTopRequest: { type: 'object', examples: [{ of: 'channels' }], properties: { of: { enum: ['', 'channels', 'codes', null], description: 'What is ranked.' } } },
  };
  const path = (operationId, summary, schema, idempotent) => [`/api/${operationId}`, { post: { operationId, summary, description: 'Runs on the asked node.', 'x-touchline-idempotent': idempotent, 'x-touchline-errors': [100, 107], requestBody: { content: { 'application/json': { schema: { $ref: `#/components/schemas/${schema}` } } } } } }];
  return {
    openapi: '3.1.0', components: { schemas },
    paths: Object.fromEntries([path('publish', 'Publishes into a channel', 'PublishRequest', false), path('history', 'Reads publications of a channel', 'HistoryRequest', true), path('stats_top', 'Ranks', 'StatsTopRequest', true)]),
  };
}
