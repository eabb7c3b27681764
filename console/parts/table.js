// A table of at most 10,000 rows, of which at most 80 are in the document. Its order changes only on request.
import { arrange, button, fill, h, setText } from '../dom.js';
import { count } from '../format.js';

const ROWS_MAX = 10_000;
const IN_DOCUMENT_MAX = 80;
const MARK_MS = 600;
const MARK_AGAIN_MS = 2000;

/**
 * `columns`: `[label, cell(row), rank, unit, title(row)]`; rank 1 and 2 are seen at every width, 3 from 1,024 px; a
 * column with a unit, though it be empty, holds numbers. `href(row)` makes the first cell a link.
 */
export function table({ caption, columns, keyOf, href, select = false, onSelect = () => {} }) {
  const body = h('tbody', { role: 'rowgroup' });
  const newer = button('', () => self.set([...waiting, ...entries.map((entry) => entry.row)]), { class: 'newer', hidden: true, 'data-newer': true });
  const heads = columns.map((column) => h('th', { scope: 'col', role: 'columnheader', class: classOf(column) }, column[0]));
  const element = h('table', { role: 'table', 'aria-label': caption },
    h('thead', { role: 'rowgroup' }, h('tr', { role: 'row' }, select && h('th.pick', { role: 'columnheader', scope: 'col' }, h('span.unseen', null, 'Select')), heads)), body);
  const root = h('div.table', { class: select ? 'picks' : '' }, newer, element);
  const chosen = new Set();
  let entries = [];
  let waiting = [];
  let from = 0;
  let drawn = '';
  const contentOf = (column, index, row) => (index || !href ? column[1](row) : h('a', { href: href(row), 'data-row': true }, column[1](row)));
  function make(row) {
    const key = keyOf(row);
    const cells = columns.map((column, index) => h('td', { role: 'cell', class: classOf(column), 'data-unit': column[3] || null, title: column[4]?.(row) }, contentOf(column, index, row)));
    const pick = select && h('td.pick', { role: 'cell' }, h('input', {
      type: 'checkbox', 'aria-label': `Select ${key}`, checked: chosen.has(key), on: { change: (event) => {
        chosen[event.target.checked ? 'add' : 'delete'](key);
        onSelect(chosen);
      } },
    }));
    return { key, row, cells, texts: cells.map((cell) => cell.textContent), marked: 0, tr: h('tr', { role: 'row' }, pick, cells) };
  }
  function change(entry, row) {
    entry.row = row;
    columns.forEach(([, cellOf], index) => {
      const cell = entry.cells[index];
      const target = index === 0 && href ? cell.firstChild : cell;
      const content = cellOf(row);
      // A node is compared with what was drawn: a button in the cell may wait for its second press.
      if (typeof content === 'string' ? !setText(target, content) : entry.texts[index] === content.textContent) return;
      if (typeof content !== 'string') fill(target, content);
      entry.texts[index] = target.textContent;
      if (Date.now() - entry.marked < MARK_AGAIN_MS) return;
      entry.marked = Date.now();
      cell.classList.add('changed');
      setTimeout(() => cell.classList.remove('changed'), MARK_MS);
    });
  }
  const spacer = (rows, height) => (rows ? h('tr.spacer', { 'aria-hidden': 'true' }, h('td', { css: { height: `${rows * height}px` } })) : null);
  function draw() {
    const height = body.querySelector('tr:not(.spacer)')?.offsetHeight || 28;
    const windowed = entries.length > IN_DOCUMENT_MAX;
    const top = windowed && element.isConnected ? Math.floor(-body.getBoundingClientRect().top / height) - 20 : 0;
    from = Math.max(0, Math.min(windowed ? top : 0, entries.length - IN_DOCUMENT_MAX));
    const shown = entries.slice(from, from + IN_DOCUMENT_MAX);
    const now = shown.map((entry) => entry.key).join('\n');
    if (now === drawn && body.childElementCount) return;
    drawn = now;
    const focused = document.activeElement;
    shown.forEach((entry, index) => entry.tr.setAttribute('aria-rowindex', from + index + 2));
    arrange(body, [spacer(from, height), ...shown.map((entry) => entry.tr), spacer(entries.length - from - shown.length, height)].filter(Boolean));
    element.setAttribute('aria-rowcount', entries.length + 1);
    if (focused !== document.activeElement && body.contains(focused)) focused.focus({ preventScroll: true });
  }
  const scrolled = () => {
    if (!element.isConnected) removeEventListener('scroll', scrolled);
    else if (entries.length > IN_DOCUMENT_MAX) draw();
  };
  addEventListener('scroll', scrolled, { passive: true });
  const self = {
    root, chosen,
    get size() { return entries.length; },
    rows: () => entries.map((entry) => entry.row),
    set(rows) {
      const old = new Map(entries.map((entry) => [entry.key, entry]));
      entries = rows.slice(0, ROWS_MAX).map((row) => old.get(keyOf(row)) ?? make(row));
      entries.forEach((entry, index) => entry.row !== rows[index] && change(entry, rows[index]));
      waiting = [];
      newer.hidden = true;
      draw();
    },
    add: (rows) => self.set([...self.rows(), ...rows]),
    /** Changes rows in place; new rows wait behind a button, and removed rows turn grey. */
    merge(rows, among = entries.length) {
      const given = new Map(rows.map((row) => [keyOf(row), row]));
      entries.forEach((entry, index) => {
        const row = given.get(entry.key);
        given.delete(entry.key);
        if (row) change(entry, row);
        if (index < among) entry.tr.classList.toggle('gone', !row);
      });
      waiting = [...given.values()];
      newer.hidden = !waiting.length;
      fill(newer, `${count(waiting.length)} new: show (N)`);
    },
    unselect() {
      chosen.clear();
      for (const box of body.querySelectorAll('input')) box.checked = false;
      onSelect(chosen);
    },
  };
  return self;
}

const classOf = ([, , rank = 1, unit]) => `rank-${rank}${unit === undefined ? '' : ' num'}`;
