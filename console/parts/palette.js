// The palette: pages, acts, and "go to" for what was pasted.
import { fill, h } from '../dom.js';
import { open } from './dialog.js';

/** `entries`: `{label, run}`; `find(text)` gives further ones for a name. */
export function palette(entries, find) {
  open('Find anything', (close) => {
    let shown = [];
    let chosen = 0;
    const run = (entry) => {
      close();
      entry?.run();
    };
    const draw = () => {
      fill(list, shown.map((entry, index) => h('li', { role: 'option', id: `palette-${index}`, 'aria-selected': String(index === chosen), on: { click: () => run(entry) } }, entry.label)));
      input.setAttribute('aria-activedescendant', shown.length ? `palette-${chosen}` : '');
      list.children[chosen]?.scrollIntoView({ block: 'nearest' });
    };
    const search = () => {
      const text = input.value.trim();
      chosen = 0;
      shown = [...entries.filter((entry) => entry.label.toLowerCase().includes(text.toLowerCase())), ...(text ? find(text) : [])];
      draw();
    };
    const press = (event) => {
      const by = { ArrowDown: 1, ArrowUp: shown.length - 1 }[event.key];
      if (by === undefined && event.key !== 'Enter') return;
      event.preventDefault();
      if (event.key === 'Enter') run(shown[chosen]);
      else chosen = (chosen + by) % Math.max(1, shown.length);
      draw();
    };
    const list = h('ul.options', { role: 'listbox', id: 'palette-list', 'aria-label': 'Results' });
    const input = h('input', {
      type: 'text', role: 'combobox', 'aria-label': 'Find anything', 'aria-expanded': 'true', 'aria-controls': 'palette-list', autocomplete: 'off', spellcheck: 'false',
      autofocus: true, placeholder: 'a page, an act, a channel, user, client id or name', on: { input: search, keydown: press },
    });
    search();
    return [input, list];
  });
}
