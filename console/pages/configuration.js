// 14 Configuration: the values that the node uses, and the source of each value.
import { button, h, setText } from '../dom.js';
import { count } from '../format.js';
import { filter, fits } from '../parts/filter.js';
import { changeButton, head, panel } from '../parts/states.js';
import { table } from '../parts/table.js';

const RELOAD_MAX_MS = 30_000;
const KEYS = { from: 'the file, variable or flag, without its line', restart: 'yes or no', changed: 'yes: set somewhere' };
const FIELDS = {
  '': (row) => row.key, from: (row) => row.origin.replace(/(:\d+)+$/, ''), restart: (row) => (row.restart ? 'yes' : 'no'), changed: (row) => (row.origin === 'default' ? 'no' : 'yes'),
};
const COLUMNS = [
  ['Key', (row) => row.key], ['Value', (row) => (row.secret ? 'set, hidden' : row.value || '–'), 2],
  ['From', (row) => row.origin, 2], ['Applies', (row) => (row.restart ? 'after a restart' : 'at a reload'), 3],
];

export default {
  mount(root, context) {
    const reload = changeButton('Reload…', () => context.act({
      title: 'Reload the configuration', verb: 'Reload 1 node', what: 'The configuration was not reloaded.', operation: 'reload', giveUpMs: RELOAD_MAX_MS,
      consequence: 'This node reads its file again and applies it at once. A file that is not valid changes nothing. The other nodes do not change.',
      done: ({ generation, changed = [] }) => `Generation ${count(generation)} is active; ${changed.length ? `changed: ${changed.join(', ')}` : 'nothing has changed'}.`,
    }));
    const top = head('Configuration', [reload]);
    const bar = filter({ keys: KEYS, onChange: (q) => context.set({ q }), label: 'Find a key', hint: 'a part of a key, or changed:yes' });
    const place = panel({ title: 'Keys', command: ['configuration'], kind: 'wrap' });
    const grid = table({ caption: 'Keys', columns: COLUMNS, keyOf: (row) => row.key });
    const foot = h('p.foot.soft', null);
    place.body.append(grid.root, foot);
    root.append(top.root, bar.root, place.root);
    let chips = bar.set(context.params.q);
    let keys = [];
    function draw(at) {
      const rows = keys.filter((row) => fits(row, chips, FIELDS));
      place.ready(at);
      grid.set(rows);
      setText(foot, `${count(rows.length)} of ${count(keys.length)} keys`);
      if (!rows.length) place.empty('No key matches.', button('Remove the filters', bar.clear));
    }
    let readAt;
    context.fill(place, 'configuration', {}, (result, at) => {
      keys = result.keys;
      readAt = at;
      top.set(`Generation ${count(result.generation)} of this node`);
      draw(at);
    }, 'The configuration was not read.');
    return {
      update({ q }) {
        chips = bar.set(q);
        if (keys.length) draw(readAt);
      },
    };
  },
};
