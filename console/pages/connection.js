// 5 One connection: its state, channels, names, frames.
import { button, fill, h } from '../dom.js';
import { bytes, clock, count, duration, shortId, since } from '../format.js';
import { secondPress, toast } from '../parts/dialog.js';
import { json } from '../parts/json.js';
import { changeButton, facts, head, hiddenPayload, onDifference, panel, status, tabbed } from '../parts/states.js';
import { table } from '../parts/table.js';
import { tail } from '../parts/tail.js';
import { failure, WORDS } from '../words.js';

function part(caption, columns, keyOf, href, rowsOf, foot) {
  const grid = table({ caption, columns, keyOf, href });
  const line = h('p.foot.soft', null);
  return {
    root: h('div.panel', null, grid.root, line),
    show(row) {
      grid.set(rowsOf(row));
      fill(line, foot(row, grid.size));
    },
  };
}

const channels = (context) => part('Channels', [['Channel', (row) => row.channel], ['Subscribed by', (row) => (row.server_side ? 'the server' : 'the client'), 2]],
  (row) => row.channel, (row) => context.href('channel', { name: row.channel }),
  ({ state }) => Object.entries(state.channels).map(([channel, of]) => ({ channel, ...of })),
  ({ state }, size) => (state.channels_truncated ? `and ${count(state.channels_truncated)} more` : size ? '' : 'It has no subscriptions.'));

const names = (context) => part('Names and groups', [['Name', (row) => row.name ?? row.group], ['Kind', (row) => (row.name === undefined ? 'group' : 'name'), 2], ['Scope', (row) => row.scope, 2]],
  (row) => `${row.scope} ${row.name} ${row.group}`,
  (row) => (row.name === undefined ? context.href('registry', { scope: row.scope, tab: 'members', group: row.group }) : context.href('name', { scope: row.scope, name: row.name })),
  (row) => [...(row.names ?? []), ...(row.groups ?? [])],
  (row, size) => (row.entries_missing ? 'The registry of its node has not answered.' : row.entries_truncated ? `and ${count(row.entries_truncated)} more` : size ? '' : 'It has no name and is in no group.'));

function metadata() {
  const place = h('div.panel', null);
  return {
    root: place,
    show({ labels, state: { meta, connection_token: token } }) {
      fill(place, h('h2', null, 'Labels'), labels ? json(labels, 'Labels') : h('p.soft', null, 'It has no labels.'), h('h2', null, 'Metadata'),
        meta === undefined ? h('p.soft', null, 'There is no metadata, or your role does not see it.') : meta.hidden ? hiddenPayload(bytes(meta.size)) : json(meta, 'Metadata'),
        token && h('p.soft', null, `Its token was issued at ${clock(token.issued_at * 1000)}.`));
    },
  };
}

const ARROWS = { in: '↑', out: '↓' };

function frames(context, client) {
  let view = null;
  let user = '';
  const place = h('div', null);
  const trace = (label, target) => button(label, () => begin(...target()), { class: 'primary' });
  const ask = h('div.answer-head', null, trace('Trace for 60 s', () => [client, { client }]),
    trace('Trace all of its user for 60 s', () => [`user ${user}`, { user }]), h('p.soft', null, '↑ is from the client, ↓ to it. The client does not notice. Operators see payloads if admin.trace_payloads is on.'));
  function begin(of, target) {
    view?.leave();
    view = tail({
      label: `the frames of ${of}`, waiting: 'Waiting for the next frame.',
      line: (frame) => ({
        mark: [ARROWS[frame.direction], frame.kind, frame.channel, frame.binary && 'as base64'].filter(Boolean).join(' '), who: frame.client === client ? '' : shortId(frame.client),
      }),
      begin: (self) => context.trace(target, {
        data(pushed) {
          self.push(pushed);
          if (!pushed.ended) return;
          self.leave();
          self.say('Ended after 60 s.');
          place.prepend(ask);
        },
        back: self.gap,
        failed: (error) => self.say(failure(error, 'The trace was not started.')),
      }),
    });
    context.socket((isOpen) => isOpen || view.say(WORDS.needsSocket));
    fill(place, view.root);
  }
  place.append(ask);
  return {
    root: place,
    show(row) {
      ({ user } = row);
      ask.children[1].hidden = !user;
    },
    leave: () => view?.leave(),
  };
}

export default {
  mount(root, context) {
    const client = context.params.client ?? '';
    const reconnect = secondPress('Ask to reconnect', 'Press again: ask 1 connection to reconnect', () => context.ask('disconnect', { client, disconnect: { code: 3011, reason: 'force reconnect' } })
      .then(() => toast('The client was asked to reconnect.'), (error) => toast(failure(error, 'The connection was not reached.'), { state: 'bad' })));
    const endIt = changeButton('End…', () => context.act({
      title: 'End the connection', verb: 'End 1 connection', consequence: 'It ends with 3503; the client does not reconnect by itself.', what: 'The connection was not ended.',
      operation: 'disconnect', fields: { client }, done: () => '1 connection was ended.',
    }));
    const top = head(shortId(client), [reconnect, endIt]);
    const state = panel({ title: 'State', command: ['connections', { client }] });
    const line = h('p', null);
    const details = h('div', null);
    state.body.append(line, details);
    const tabs = tabbed(context, [['channels', 'Channels', () => channels(context)], ['names', 'Names and groups', () => names(context)], ['metadata', 'Metadata', metadata], ['frames', 'Frames', () => frames(context, client)]]);
    root.append(top.root, state.root, ...tabs.root);
    let last = null;
    const drawRow = onDifference((row) => {
      top.set(`user ${row.user || 'anonymous'}`, context.nodeName(row.node), `${row.transport} · ${row.protocol}`, [row.app_name, row.app_version].filter(Boolean).join(' '));
      fill(line, row.queued_bytes > 0 ? status('look', `${bytes(row.queued_bytes)} wait to be sent.`) : status('ok', 'Nothing waits to be sent.'));
      fill(details, facts([['Client', client], ['Address', row.address ?? '–'], ['Ping', row.ping_pong_latency_ms < 0 ? '–' : duration(row.ping_pong_latency_ms)], ['Connected', since(row.connected_at_ms, context.now())]]));
      tabs.show(row);
    });
    function draw(result, at) {
      const row = result.connections[client];
      if (row) {
        last = row;
        drawRow(row);
      } else if (last) {
        fill(line, status('off', `Ended. The values are the last ones, as of ${clock(at)}.`), ' ', h('a', { href: context.href('connections', { q: `user:${JSON.stringify(last.user)}` }) }, 'Other connections of this user'));
      } else if (!result.missing_nodes?.length) state.empty('No connection has this client id: it has ended or never existed.');
    }
    context.fill(state, 'connections', { client }, draw, 'The connection was not read.');
    return { update: tabs.draw, leave: tabs.leave };
  },
};
