// A tail: the last 1,000 rows or 2 MiB, newest last. It pauses and says so when the user scrolls up or selects text.
import { button, fill, h, setText } from '../dom.js';
import { bytes, clockMs, count, iso } from '../format.js';
import { read, write } from '../read.js';
import { WORDS } from '../words.js';
import { copy } from './dialog.js';
import { at, json } from './json.js';
import { status } from './states.js';

const ROWS_MAX = 1000;
const BYTES_MAX = 2 * 1024 * 1024;
const PREVIEW_MAX = 200;
const ROW_BYTES = 200;

/** `path = value` as a function of the data; null where the text has another form. */
export function condition(text) {
  const found = /^\s*([\w.[\]"-]+)\s*(=|!=)\s*(.*?)\s*$/.exec(text);
  if (!found) return null;
  const [, path, sign, value] = found;
  return (data) => {
    const own = at(data, path);
    return (own !== undefined && (typeof own === 'string' ? own : write(own)) === value) === (sign === '=');
  };
}

export function preview(data) {
  const text = typeof data === 'string' ? data : write(data);
  return text.length > PREVIEW_MAX ? `${text.slice(0, PREVIEW_MAX)}…` : text;
}

/** The payload of a frame, which is a text: parsed if it is JSON, with numbers as they were written. */
export function dataOf({ payload, binary }) {
  if (payload === undefined || binary) return payload;
  try {
    return read(payload, true);
  } catch {
    return payload;
  }
}

function download(name, type, text) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  h('a', { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

/** `line(frame)` returns `{mark, who}`; `begin(view)` starts the stream and returns the function that ends it. */
export function tail({ label, line, begin, waiting }) {
  const state = h('span.tail-state', { role: 'status' });
  const toggle = button('', () => (paused ? go() : stop('Paused')), { 'data-pause': true });
  const counts = h('span.soft', null);
  const filter = h('input', { type: 'search', placeholder: 'data.symbol = X', 'aria-label': 'Show only rows whose path has a value', autocomplete: 'off', spellcheck: 'false' });
  const empty = h('p.soft.tail-empty', null, waiting);
  const rows = h('div.tail-rows', { role: 'log', 'aria-live': 'off', 'aria-label': label, tabIndex: 0 }, empty);
  const root = h('div.tail', null, h('div.tail-head', null, state, toggle, filter, counts,
    button('Download', save, { class: 'plain', 'aria-label': `Download ${label} as NDJSON` })), rows);
  let ring = [];
  let size = 0;
  let paused = false;
  let leftOut = 0;
  let test = null;
  let drawing = false;
  let end = () => {};
  function head(why) {
    fill(state, paused ? status('off', why) : status('ok', 'Live'));
    fill(toggle, paused ? 'Resume (Space)' : 'Pause (Space)');
  }
  function stop(why) {
    if (paused) return;
    paused = true;
    end();
    head(why);
  }
  function go() {
    paused = false;
    head();
    gap();
    end = begin(self);
  }
  const shown = () => ring.filter((one) => one.frame && !one.row.hidden);
  function tell() {
    setText(counts, [`shown ${count(shown().length)}`, test && 'filtered by this page', leftOut && `left out ${count(leftOut)}: more arrived at once than a node keeps`].filter(Boolean).join(' · '));
  }
  function save() {
    download('tail.ndjson', 'application/x-ndjson', shown().map(({ frame, data }) => `${write({ ...frame, payload: data, at: iso(frame.at_ms) })}\n`).join(''));
  }
  function draw(frame, data) {
    const { mark, who } = line(frame);
    const opened = h('div.opened', { hidden: true });
    const toggleOpen = () => {
      opened.hidden = !opened.hidden;
      fill(opened, !opened.hidden && json(data, 'Data'));
    };
    return h('div.tail-row', null,
      h('span.time', null, clockMs(frame.at_ms)), h('span.mark', null, mark),
      h('span.data', null, frame.error ? status('bad', `error ${frame.error}`) : data === undefined ? '' : preview(data)),
      h('span.soft', null, data === undefined ? WORDS.hidden(bytes(frame.size)) : bytes(frame.size)), h('span.soft', null, who),
      data !== undefined && h('span.acts', null, button('Copy', () => copy(write(data, 2)), { class: 'plain' }), button('Open', toggleOpen, { class: 'plain' })), opened);
  }
  function keep(one) {
    empty.remove();
    ring.push(one);
    size += one.size;
    rows.append(one.row);
  }
  /** Marks a gap: rows that arrived meanwhile are missing. */
  function gap() {
    if (ring.at(-1)?.frame) keep({ row: h('p.tail-gap', null, status('look', WORDS.gap)), size: ROW_BYTES });
  }
  const applyTest = (one) => { one.row.hidden = Boolean(test && one.frame) && !test({ data: one.data }); };
  filter.addEventListener('input', () => {
    test = filter.value.trim() ? condition(filter.value) : null;
    filter.setAttribute('aria-invalid', String(Boolean(filter.value.trim()) && !test));
    ring.forEach(applyTest);
    tell();
  });
  rows.addEventListener('scroll', () => {
    const above = rows.scrollHeight - rows.scrollTop - rows.clientHeight;
    if (!drawing && above > 60) stop('Paused, because you scrolled up');
  });
  rows.addEventListener('pointerup', () => getSelection().isCollapsed || stop('Paused, because you selected text'));
  head();
  tell();
  const self = {
    root, gap,
    leave: () => end(),
    push({ frames = [], left_out: more = 0 }) {
      leftOut += more;
      drawing = true;
      for (const frame of frames) {
        const data = dataOf(frame);
        const one = { frame, data, row: draw(frame, data), size: ROW_BYTES + (frame.size ?? 0) };
        applyTest(one);
        keep(one);
      }
      while (ring.length > ROWS_MAX || size > BYTES_MAX) {
        size -= ring[0].size;
        ring.shift().row.remove();
      }
      rows.scrollTop = rows.scrollHeight;
      requestAnimationFrame(() => { drawing = false; });
      tell();
    },
    /** Shows a sentence instead of "Live". */
    say(text) {
      if (!ring.length) fill(empty, text);
      fill(state, status('look', text));
    },
  };
  end = begin(self);
  return self;
}
