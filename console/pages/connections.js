// 4 Connections: connected, slow and refused clients.
import { h } from '../dom.js';
import { bytes, clock, count, duration, plural, shortId } from '../format.js';
import { filter, fits } from '../parts/filter.js';
import { forAll, listing, selectionBar } from '../parts/listing.js';
import { head, tabbed } from '../parts/states.js';
import { failure } from '../words.js';

const KEYS = {
  user: 'the user, "" is the anonymous user', client: 'the client id', channel: 'a channel that it subscribes to', program: 'the name of the program', version: 'its version',
  transport: 'websocket, sse, http_stream …', address: 'an address or a network, such as 203.0.113.0/24', waiting: 'bytes that wait, such as >64KiB', node: 'the node',
};
const ON_SERVER = ['user', 'client', 'channel', 'program', 'version', 'transport', 'address'];
const RECONNECT = { disconnect: { code: 3011, reason: 'force reconnect' } };

/** Divides chips into those that the server filters and those that the page filters. */
export function divided(chips) {
  const params = {};
  const local = chips.filter(({ key, op, value, not }) => {
    if (not || op !== '=' || !ON_SERVER.includes(key) || key in params) return true;
    params[key] = value;
    return false;
  });
  return { params, local };
}

const refused = (context) => listing(context, {
  title: 'Refused since the nodes started, the newest first', operation: 'refusals', whole: true, rows: (result) => result.refusals, none: 'Nothing was refused since the nodes started.',
  keyOf: (row) => [row.node, row.kind, row.what, row.channel, row.key, row.code, row.words].join('\n'),
  columns: [
    ['Why', (row) => row.words], ['Last', (row) => clock(row.last_ms, context.now()), 2], ['Of', (row) => [row.kind, row.what].filter(Boolean).join(' '), 2], ['Channel or key', (row) => row.channel || row.key || '–', 3],
    ['Code', (row) => String(row.code), 2, ''], ['Times', (row) => count(row.count), 2, 'times'], ['Node', (row) => context.nodeName(row.node), 3],
  ],
});

/** Ends connections; for more than one the user must type their number. `how` has the code for the clients. */
const endAll = (context, verb, done, consequence, how, after) => (clients) => context.act({
  title: verb(''), verb: verb(` ${plural(clients.length, 'connection')}`), typed: clients.length > 1 ? String(clients.length) : undefined,
  consequence: `${plural(clients.length, 'connection ends', 'connections end')} ${consequence}`,
  explain: (error) => failure(error, `${count(error.done ?? 0)} of ${plural(clients.length, 'connection')} reached.`),
  work: () => forAll(clients, (client) => context.ask('disconnect', { client, ...how })), done: (reached) => `${plural(reached, 'connection')} ${done}.`, after,
});

function all(context, { q }, bar) {
  const { params, local } = divided(bar.set(q));
  const fields = {
    '': (row) => row.client, client: (row) => row.client, user: (row) => row.user, channel: (row) => Object.keys(row.state.channels).join(' '), program: (row) => row.app_name ?? '',
    version: (row) => row.app_version ?? '', transport: (row) => row.transport, address: (row) => row.address ?? '', waiting: (row) => row.queued_bytes, node: (row) => context.nodeName(row.node),
  };
  const after = () => list.reload();
  const selection = selectionBar([
    [(number) => `Ask ${number} to reconnect…`, endAll(context, (whom) => `Ask${whom} to reconnect`, 'asked to reconnect', 'with 3011; the clients reconnect by themselves and recover missed publications.', RECONNECT, after)],
    [(number) => `End ${number}…`, endAll(context, (whom) => `End${whom || ' connections'}`, 'ended', 'with 3503; the clients do not reconnect by themselves.', {}, after)],
  ], 'Select connections to act on them.');
  const list = listing(context, {
    title: 'Connections', operation: 'connections', params, select: true, onSelect: selection.set, local: local.length ? (row) => fits(row, local, fields) : undefined,
    rows: (result) => Object.entries(result.connections).map(([client, of]) => ({ client, ...of })),
    keyOf: (row) => row.client, href: (row) => context.href('connection', { client: row.client }),
    none: 'Nobody is connected.', unmatched: 'No connection matches.', clear: q && bar.clear,
    columns: [
      ['Client', (row) => shortId(row.client), 1, undefined, (row) => row.client], ['User', (row) => row.user || 'anonymous', 2],
      ['Program', (row) => [row.app_name, row.app_version].filter(Boolean).join(' ') || '–', 2], ['Transport', (row) => `${row.transport} · ${row.protocol}`, 3], ['Address', (row) => row.address ?? '–', 3],
      ['Since', (row) => clock(row.connected_at_ms, context.now()), 3, '', (row) => duration(context.now() - row.connected_at_ms)],
      ['Ping', (row) => (row.ping_pong_latency_ms < 0 ? '–' : duration(row.ping_pong_latency_ms)), 3, ''],
      ['Channels', (row) => count(Object.keys(row.state.channels).length + (row.state.channels_truncated ?? 0)), 3, ''],
      ['Waiting', (row) => bytes(row.queued_bytes), 2, 'wait'], ['Node', (row) => context.nodeName(row.node), 2],
    ],
  });
  if (!Object.keys(params).length) {
    context.ask('overview').then((result) => !result.missing_nodes?.length && list.setTotal(result.verdict.connections), () => {});
  }
  return { root: h('div', null, selection.root, list.root), leave: list.leave };
}

export default {
  mount(root, context) {
    const bar = filter({ keys: KEYS, onChange: (q) => context.set({ q, tab: '' }), label: 'Filter connections', hint: 'user:42 or waiting:>64KiB' });
    const tabs = tabbed(context, [['all', 'All', (params) => all(context, params, bar)], ['refused', 'Refused', () => refused(context)]]);
    root.append(head('Connections').root, bar.root, ...tabs.root);
    return { update: tabs.draw };
  },
};
