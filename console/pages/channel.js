// 3 One channel: its tail, history, presence and options; publishing into it.
import { button, fill, h } from '../dom.js';
import { bytes, clock, count, plural, rate, shortId } from '../format.js';
import { field, jsonInput, textData } from '../parts/form.js';
import { listing } from '../parts/listing.js';
import { changeButton, head, hiddenPayload, panel, status, tabbed, tile } from '../parts/states.js';
import { table } from '../parts/table.js';
import { preview, tail } from '../parts/tail.js';
import { failure, WORDS } from '../words.js';

const HISTORY = 50;
// The state of a channel is the first of these states that one of its nodes has.
const WORST_FIRST = ['failed', 'loading', 'live', 'idle'];

function tailTab(context, channel) {
  const view = tail({
    label: `the tail of ${channel}`, waiting: 'Waiting for the next publication.',
    line: (frame) => ({ mark: frame.offset ? count(frame.offset) : '', who: `by ${context.nodeName(frame.node)}` }),
    begin: (self) => context.trace({ channel }, { data: self.push, back: self.gap, failed: (error) => self.say(failure(error, 'The tail was not opened.')) }),
  });
  context.socket((isOpen) => isOpen || view.say(WORDS.needsSocket));
  return view;
}

const historyTab = (context, channel) => listing(context, {
  title: 'History, the newest first', operation: 'history', params: { channel, limit: HISTORY, reverse: true }, still: true, whole: true,
  rows: (result) => result.publications, keyOf: (one) => one.offset, none: 'The history is empty.',
  columns: [
    ['Offset', (one) => count(one.offset)], ['Time', (one) => clock(one.time, context.now()), 2],
    ['Data', (one) => (one.hidden ? hiddenPayload(bytes(one.size)) : preview(one.data)), 2],
    ['By', (one) => (one.info ? `user ${one.info.user}` : 'backend'), 3],
  ],
});

const presenceTab = (context, channel) => listing(context, {
  title: 'Presence', operation: 'presence', params: { channel }, still: true, whole: true, rows: (result) => Object.values(result.presence), keyOf: (one) => one.client,
  href: (one) => context.href('connection', { client: one.client }), none: 'Nobody is present.', total: (result) => result.num_clients,
  columns: [
    ['Client', (one) => shortId(one.client)], ['User', (one) => one.user || 'anonymous', 2],
    ['Information', (one) => (one.conn_info === undefined ? '–' : preview(one.conn_info)), 3],
  ],
});

const similarTab = (context, channel) => listing(context, {
  title: 'Similar channels', operation: 'channels_similar', params: { channel }, still: true, whole: true, rows: (result) => result.channels, keyOf: (one) => one.channel,
  href: (one) => context.href('channel', { name: one.channel }), none: 'No described channel is similar.',
  columns: [['Channel', (one) => one.channel], ['Title', (one) => one.title ?? '–', 2], ['Score', (one) => String(one.score), 3, '']],
});

function optionsTab() {
  const grid = table({ caption: 'Options', keyOf: (one) => one.key, columns: [['Option', (one) => one.key], ['Value', (one) => one.value, 2], ['From', (one) => one.origin, 2]] });
  return { root: h('div.panel.wrap', null, grid.root), show: (result) => grid.set(result.options) };
}

function publishTab(context, channel) {
  const data = jsonInput({ value: '{}', rows: 6 });
  const problem = h('p.problem', { role: 'alert' });
  const answer = h('div', { role: 'status' });
  const body = (more) => `{"channel":${JSON.stringify(channel)},"data":${textData(data.value)}${more}}`;
  async function dryRun() {
    fill(problem);
    try {
      const { audience } = await context.send('publish', body(',"dry_run":true'));
      const nodes = Object.values(audience.nodes);
      const total = (name) => nodes.reduce((sum, one) => sum + one[name], 0);
      const who = `${audience.missing_nodes?.length ? '≥ ' : ''}${plural(total('clients'), 'subscriber')}`;
      const words = `${who} on ${plural(nodes.length, 'node')} · ${bytes(total('bytes'))} · ${count(total('filtered'))} filtered out`;
      const key = crypto.randomUUID?.() ?? String(Math.random());
      fill(answer, h('p', null, `Dry run → ${words}`), changeButton(`Publish to ${who}…`, () => context.act({
        title: `Publish into ${channel}`, verb: `Publish to ${who}`, consequence: `${words}. A publication cannot be taken back.`, what: 'Nothing was published.',
        operation: 'publish', body: body(`,"idempotency_key":${JSON.stringify(key)}`), done: (result) => `Published into ${channel}${result.offset ? ` at offset ${count(result.offset)}` : ''}.`,
      })));
    } catch (error) { fill(problem, failure(error, 'The dry run failed.')); }
  }
  return { root: h('div.panel', null, field('Data, JSON', data), problem, changeButton('Dry run', dryRun, { class: 'primary' }), answer) };
}

export default {
  mount(root, context) {
    const channel = context.params.name ?? '';
    const remove = changeButton('Remove history…', () => context.act({
      title: `Remove the history of ${channel}`, verb: 'Remove the history', typed: channel, what: 'The history was not removed.',
      consequence: 'All kept publications of this channel are deleted. Clients that reconnect cannot recover them. The position stays.',
      operation: 'history_remove', fields: { channel }, done: () => `The history of ${channel} is removed.`,
    }));
    const top = head(channel, [button('Publish…', () => context.set({ tab: 'publish' })), remove]);
    const tiles = { subscribers: tile('Subscribers'), rate: tile('Publishes'), position: tile('Position'), kept: tile('Kept') };
    const state = panel({ title: 'State', command: ['channel', { channel }] });
    const nodes = table({
      caption: 'Nodes', keyOf: (one) => one.node, columns: [
        ['Node', (one) => context.nodeName(one.node)], ['State', (one) => status(one.state), 2], ['Subscribers', (one) => count(one.subscribers), 2, 'subscribers'],
        ['Offset', (one) => (one.offset ? count(one.offset) : '–'), 2, ''], ['Kept', (one) => count(one.kept), 3, ''], ['Shard', (one) => count(one.shard), 3, ''],
      ],
    });
    state.body.append(h('div.tiles.four', null, Object.values(tiles).map((one) => one.root)), nodes.root);
    let before = null;
    /** Publications per second, from two readings of the position. */
    function rateOf({ offset, epoch }, at) {
      const since = before?.epoch === epoch && at > before.at ? before : null;
      if (!before || before.epoch !== epoch || at > before.at) before = { offset, epoch, at };
      return since && epoch ? ((offset - since.offset) * 1000) / (at - since.at) : null;
    }
    const makers = [['tail', 'Tail', tailTab], ['history', 'History', historyTab], ['presence', 'Presence', presenceTab], ['publish', 'Publish', publishTab], ['options', 'Options', optionsTab], ['similar', 'Similar', similarTab]];
    const tabs = tabbed(context, makers.map(([key, label, make]) => [key, label, () => make(context, channel)]));
    root.append(top.root, state.root, ...tabs.root);
    context.fill(state, 'channel', { channel }, (result, at) => {
      const first = result.nodes.reduce((top, one) => (one.offset > top.offset ? one : top), result.nodes[0] ?? { offset: 0 });
      const of = WORST_FIRST.find((one) => result.nodes.some((node) => node.state === one)) ?? 'none';
      top.set(status(of), result.namespace ? `namespace ${result.namespace}` : 'no namespace');
      tiles.subscribers.set(count(result.subscribers));
      tiles.rate.set(rate(rateOf(first, at)), undefined, first.epoch ? '' : 'known where a history is kept');
      tiles.position.set(first.offset ? count(first.offset) : '–', undefined, first.epoch ? `in ${first.epoch}` : '');
      tiles.kept.set(count(first.kept));
      nodes.set(result.nodes);
      tabs.show(result);
    }, 'The state was not read.');
    return { update: tabs.draw, leave: tabs.leave };
  },
};
