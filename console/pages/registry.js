// 6 Registry: names and groups of a scope.
import { h } from '../dom.js';
import { bytes, count, plural, shortId } from '../format.js';
import { filter } from '../parts/filter.js';
import { needsScope } from '../parts/form.js';
import { listing } from '../parts/listing.js';
import { head, hiddenPayload, panel, tabbed } from '../parts/states.js';
import { table } from '../parts/table.js';
import { preview } from '../parts/tail.js';
import { failure } from '../words.js';

const TURN_MS = 2000;
const metaOf = (row) => (row.hidden ? hiddenPayload(bytes(row.size)) : row.meta === undefined || row.meta === null ? '–' : preview(row.meta));

const names = (context, scope, prefix, clear) => listing(context, {
  title: 'Names', operation: 'names', params: { scope, after: '', ...(prefix && { prefix }) }, still: true, rows: (result) => result.names,
  keyOf: (row) => row.name, href: (row) => context.href('name', { scope, name: row.name }), cursorOf: (result) => result.last, page: (after) => ({ after }),
  none: 'Nobody has a name in this scope.', unmatched: 'No name begins like this.', clear: prefix && clear,
  columns: [
    ['Name', (row) => row.name], ['Owner', (row) => shortId(row.client), 2, undefined, (row) => row.client], ['Node', (row) => context.nodeName(row.node), 2],
    ['Version', (row) => row.version, 3, ''], ['Metadata', metaOf, 3],
  ],
});

const groups = (context, scope, prefix, clear) => listing(context, {
  title: 'Groups', operation: 'groups', params: { scope, ...(prefix && { prefix }) }, still: true, rows: (result) => result.groups, keyOf: (row) => row.group,
  href: (row) => context.href('registry', { scope, tab: 'members', group: row.group }), none: 'Nobody is in a group of this scope.', unmatched: 'No group begins like this.', clear: prefix && clear,
  columns: [['Group', (row) => row.group], ['Members', (row) => count(row.count), 2, 'members']],
});

const members = (context, scope, group) => listing(context, {
  title: `Members of ${group}`, operation: 'members', params: { scope, group }, still: true, rows: (result) => result.members, keyOf: (row) => row.client, total: (result) => result.count,
  href: (row) => context.href('connection', { client: row.client }), none: 'Nobody is in this group.',
  columns: [['Client', (row) => shortId(row.client)], ['Node', (row) => context.nodeName(row.node), 2], ['Metadata', metaOf, 3]],
});

/** Changes from now on; the page does not show earlier ones. */
function changes(context, scope) {
  const place = panel({ title: 'Changes since this page was opened', command: ['changes', { scope }], kind: 'wrap' });
  const grid = table({
    caption: 'Changes', keyOf: (row) => row.number,
    columns: [['Name or group', (row) => row.name ?? row.group], ['Change', (row) => row.change, 2], ['Why', (row) => row.reason, 2], ['Client', (row) => shortId(row.client), 3], ['Node', (row) => context.nodeName(row.node), 3]],
  });
  place.body.append(grid.root);
  let position = {};
  let number = 0;
  async function turn() {
    try {
      const result = await context.ask('changes', { scope, ...position });
      position = result.list ? {} : { offset: result.offset, epoch: result.epoch };
      place.ready(context.now());
      const fresh = (result.changes ?? []).map((one) => ({ ...one, number: (number += 1) })).reverse();
      if (fresh.length) grid.set([...fresh, ...grid.rows()]);
      if (!grid.size) place.empty('Nothing has changed since.');
    } catch (error) { place.fail(error, turn, 'The changes were not read.'); }
  }
  turn();
  const timer = setInterval(turn, TURN_MS);
  return { root: place.root, leave: () => clearInterval(timer) };
}

function nodes(context) {
  const grid = table({ caption: 'Entries by node', keyOf: (row) => row.node, columns: [['Node', (row) => context.nodeName(row.node)], ['Names and memberships', (row) => count(row.entries), 2, 'entries']] });
  return { root: h('div.panel', null, grid.root), show: (result) => grid.set(result.nodes) };
}

export default {
  mount(root, context) {
    const top = head('Registry');
    root.append(top.root);
    const scope = needsScope(root, context);
    if (!scope) return {};
    const bar = filter({ keys: { prefix: 'the beginning of the name' }, onChange: (q) => context.set({ q }), label: 'Filter by the beginning', hint: 'the beginning of a name' });
    const part = (make) => (params) => make(context, scope, bar.set(params.q)[0]?.value ?? '', bar.clear);
    const tabs = tabbed(context, [['names', 'Names', part(names)], ['groups', 'Groups', part(groups)], ['changes', 'Changes', part(changes)], ['nodes', 'By node', part(nodes)],
      ['members', '', (params) => members(context, scope, params.group ?? '')]]);
    root.append(bar.root, ...tabs.root);
    context.watch('count', { scope }, {
      show(result) {
        top.set(scope, plural(result.names, 'name'), plural(result.groups, 'group'), plural(result.members, 'membership'));
        tabs.show(result);
      },
      fail: (error) => top.set(failure(error, 'The entries were not counted.')),
    });
    return { update: (params) => (params.scope === scope ? tabs.draw(params) : context.again()), leave: tabs.leave };
  },
};
