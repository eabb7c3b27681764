// Keyboard shortcuts. They do not work in an input, and single letters can be turned off: everything works without them.
import { h } from '../dom.js';
import { open } from './dialog.js';

const GO = {
  o: 'overview', c: 'channels', n: 'connections', r: 'registry', i: 'inbox', b: 'bans', e: 'events', u: 'consumers', s: 'statistics', t: 'tokens', f: 'configuration', a: 'api',
};

const LIST = [
  ['Ctrl K, ⌘ K', 'find anything'], ['g, then a letter', Object.entries(GO).map(([key, page]) => `${key} ${page}`).join(', ')],
  ['/', 'go to the filter'], ['j, k', 'next or previous row'], ['Enter', 'open the row'], ['x', 'select the row'], ['Space', 'pause or resume the tail'],
  ['N', 'show new rows'], ['.', 'actions of the page'], ['y', 'copy the link of this page'], ['z', 'times in UTC or in your time zone'], ['?', 'this list'], ['Esc', 'close, or leave a field'],
];

export const listKeys = () => open('Keys', () => h('dl.keys', null, LIST.map(([key, what]) => [h('dt', null, key), h('dd', null, what)])));

const writing = (target) => target.closest('input:not([type=checkbox]), textarea, select, [contenteditable]');
const press = (selector) => document.querySelector(selector)?.click();

function move(by) {
  const rows = [...document.querySelectorAll('[data-row]')];
  const here = rows.indexOf(document.activeElement.closest('tr')?.querySelector('[data-row]'));
  rows[Math.max(0, Math.min(rows.length - 1, here + by))]?.focus();
}

export function listen(acts) {
  let going = false;
  const plain = {
    j: () => move(1), k: () => move(-1), y: acts.copyLink, z: acts.zone, '?': listKeys,
    '/': () => document.querySelector('[data-filter]')?.focus(),
    x: () => document.activeElement.closest('tr')?.querySelector('input[type=checkbox]')?.click(),
    N: () => press('[data-newer]:not([hidden])'),
    '.': () => document.querySelector('#page .page-acts button')?.focus(),
  };
  document.addEventListener('keydown', (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === 'k') {
      event.preventDefault();
      acts.palette();
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector('dialog[open]') || !acts.enabled()) return;
    if (writing(event.target)) {
      if (event.key === 'Escape') event.target.blur();
      return;
    }
    const space = event.key === ' ' && !event.target.closest('button, a, summary, input');
    const act = going && GO[event.key] ? () => acts.go(GO[event.key]) : space ? () => press('[data-pause]') : plain[event.key];
    going = event.key === 'g';
    if (!act || (space && !document.querySelector('[data-pause]'))) return;
    event.preventDefault();
    act();
  });
}
