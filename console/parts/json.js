// Shows JSON as text nodes: folded below depth 3, at most 2,000 nodes at first, with numbers as they were written.
import { button, fill, h } from '../dom.js';
import { count } from '../format.js';
import { write, Written } from '../read.js';
import { copy } from './dialog.js';

const OPEN_DEPTH = 3;
const NODES_MAX = 2000;

const isNested = (value) => value !== null && typeof value === 'object' && !(value instanceof Written);
const kindOf = (value) => (value instanceof Written ? 'number' : value === null ? 'null' : typeof value);

const step = (key, inList) => (inList ? `[${key}]` : /^[A-Za-z_]\w*$/.test(key) ? `.${key}` : `[${JSON.stringify(key)}]`);

export function at(value, path) {
  let place = value;
  for (const [, name, index, quoted] of path.matchAll(/([A-Za-z_]\w*)|\[(\d+)\]|\[("(?:[^"\\]|\\.)*")\]/g)) {
    if (!isNested(place)) return undefined;
    place = place[name ?? index ?? JSON.parse(quoted)];
  }
  return place;
}

export function json(value, label = 'JSON') {
  let left = NODES_MAX;
  const later = [];
  function branch(parent, one, path, depth) {
    const entries = Object.entries(one);
    const list = h('ul', null);
    const grow = (begin) => {
      for (let index = begin; index < entries.length; index += 1) {
        if (left <= 0) return later.push(() => grow(index));
        const [key, inner] = entries[index];
        list.append(item(key, inner, path + step(key, Array.isArray(one)), depth));
      }
      return undefined;
    };
    grow(0);
    parent.append(list);
  }
  function item(key, one, path, depth) {
    left -= 1;
    const name = h('span.key', null, key);
    const acts = h('span.row-acts', null,
      button('Copy value', () => copy(write(one, 2)), { class: 'plain' }), button('Copy path', () => copy(path.replace(/^\./, '')), { class: 'plain' }));
    if (!isNested(one)) return h('li', null, name, ': ', leaf(one), acts);
    const size = Object.keys(one).length;
    const details = h('details', { open: depth < OPEN_DEPTH }, h('summary', null, name, ' ', h('span.soft', null, Array.isArray(one) ? `[${count(size)}]` : `{${count(size)}}`)), acts);
    if (depth < OPEN_DEPTH) branch(details, one, path, depth + 1);
    else details.addEventListener('toggle', () => branch(details, one, path, depth + 1), { once: true });
    return h('li', null, details);
  }
  const leaf = (one) => h('span', { class: `json-${kindOf(one)}` }, write(one));
  const more = button('More', () => {
    left = NODES_MAX;
    for (const go of later.splice(0)) go();
    more.hidden = !later.length;
  });
  const root = h('div.json', { role: 'group', 'aria-label': label });
  if (isNested(value)) branch(root, value, '', 1);
  else fill(root, leaf(value));
  more.hidden = !later.length;
  root.append(h('div', null, more, button('Copy all', () => copy(write(value, 2)), { class: 'plain' })));
  return root;
}
