// Filters: `key:value`; `-` excludes, `>` and `<` compare; a plain word is a part of the name.
import { button, fill, h } from '../dom.js';

const TOKEN = /(-?)(?:([a-z_]+):)?(?:"((?:[^"\\]|\\.)*)"|(\S+))/giy;

/** The chips of a filter's text. A prefix that is not one of `keys` is part of the word, because names have colons. */
export function parseFilter(text, keys) {
  const chips = [];
  const source = text.trim();
  TOKEN.lastIndex = 0;
  while (TOKEN.lastIndex < source.length) {
    const found = TOKEN.exec(source);
    if (!found) break;
    const [, minus, key, quoted, word] = found;
    const bare = quoted === undefined ? word : quoted.replace(/\\(.)/g, '$1');
    chips.push(keys.includes(key) ? chip(key, bare, Boolean(minus)) : chip('', (key ? `${minus}${key}:` : minus) + bare, false, key));
    TOKEN.lastIndex += /^\s*/.exec(source.slice(TOKEN.lastIndex))[0].length;
  }
  return chips;
}

function chip(key, text, not) {
  const op = key && /^[<>]/.test(text) ? text[0] : '=';
  return { key, op, value: op === '=' ? text : text.slice(1), not };
}

const quoted = (value) => (/[\s"]/.test(value) || value === '' ? `"${value.replace(/[\\"]/g, '\\$&')}"` : value);
export const chipText = ({ key, op, value, not }) => `${not ? '-' : ''}${key ? `${key}:` : ''}${op === '=' ? '' : op}${quoted(value)}`;
export const filterText = (chips) => chips.map(chipText).join(' ');

/** "1.5 MiB", "64KiB", "100" as a number; NaN if the text is not a quantity. */
export function quantity(text) {
  const found = /^([\d.,]+)\s*(B|KiB|MiB|GiB|ms|s|min|h)?$/i.exec(text.trim());
  if (!found) return NaN;
  const scale = { b: 1, kib: 1024, mib: 1024 ** 2, gib: 1024 ** 3, ms: 1, s: 1000, min: 60_000, h: 3_600_000 };
  return Number(found[1].replaceAll(',', '')) * (scale[found[2]?.toLowerCase()] ?? 1);
}

/** Whether a row fits chips; `fields` are functions by key, '' is the name. */
export function fits(row, chips, fields) {
  return chips.every(({ key, op, value, not }) => {
    const own = fields[key](row);
    const one = op === '>' ? Number(own) > quantity(value) : op === '<' ? Number(own) < quantity(value)
      : key ? String(own) === value : String(own).includes(value);
    return one !== not;
  });
}

export const globbed = (text) => text.replace(/[\\*?[\]{}!]/g, '\\$&');

export function filter({ keys, onChange, label, hint }) {
  const id = `filter-${Object.keys(keys).join('-') || 'name'}`;
  const input = h('input', {
    type: 'search', 'aria-label': label, placeholder: hint, list: id, autocomplete: 'off', spellcheck: 'false', 'data-filter': true, id: `${id}-input`,
  });
  const held = h('span.chips', null);
  const form = h('form.filter', { role: 'search', on: { submit: add } }, held, input,
    h('datalist', { id }, Object.entries(keys).map(([key, meaning]) => h('option', { value: `${key}:` }, meaning))),
    h('button.plain', { type: 'submit' }, '+ filter'));
  let chips = [];
  function add(event) {
    event.preventDefault();
    const more = parseFilter(input.value, Object.keys(keys));
    input.value = '';
    if (more.length) tell([...chips, ...more]);
  }
  const draw = () => fill(held, chips.map((one) => button(`${chipText(one)} ×`, () => {
    tell(chips.filter((other) => other !== one));
    input.focus();
  }, { class: 'chip', 'aria-label': `Remove the filter ${chipText(one)}` })));
  function tell(next) {
    chips = next;
    draw();
    onChange(filterText(chips));
  }
  input.addEventListener('keydown', (event) => {
    if (event.key === 'Backspace' && !input.value && chips.length) tell(chips.slice(0, -1));
  });
  return {
    root: form,
    set(next = '') {
      chips = parseFilter(next, Object.keys(keys));
      draw();
      return chips;
    },
    clear: () => tell([]),
  };
}
