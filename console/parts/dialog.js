// Dialogs for three levels of danger (a second press; a consequence with a count; a typed name or number), and toasts.
import { button, fill, h } from '../dom.js';
import { changeButton, status } from './states.js';

const [STAYS_MS, AT_ONCE_MAX] = [8000, 4];

/** Level 1: the first press names the action until the focus leaves; the second press runs it. */
export function secondPress(label, armedLabel, onPress) {
  let armed = false;
  const set = (on) => {
    armed = on;
    fill(acting, on ? armedLabel : label);
    acting.classList.toggle('armed', on);
  };
  const acting = changeButton(label, () => {
    set(!armed);
    if (!armed) onPress();
  }, { on: { blur: () => set(false) } });
  return acting;
}

export function open(title, content, kind = '') {
  const close = () => dialog.close();
  const dialog = h('dialog', { class: kind, 'aria-labelledby': 'dialog-title', on: { close: () => dialog.remove() } },
    h('div.dialog-head', null, h('h2', { id: 'dialog-title' }, title), button('Close', close, { class: 'plain' })));
  dialog.append(h('div.dialog-body', null, content(close)));
  document.body.append(dialog);
  dialog.showModal();
}

/** Level 2, and 3 with `typed`: shows the consequence and runs once; `explain` puts an error of `run` into words. */
export function confirm({ title, verb, consequence, typed, inputs = [], run, explain }) {
  open(title, (close) => {
    const problem = h('p.problem', { role: 'alert' });
    let busy = false;
    const go = button(verb, async () => {
      if (busy) return;
      busy = true;
      try {
        await run();
        close();
      } catch (error) { fill(problem, explain(error)); }
      busy = false;
    }, { class: 'danger', disabled: Boolean(typed) });
    const answer = h('input', { type: 'text', autocomplete: 'off', spellcheck: 'false', on: { input: () => { go.disabled = answer.value.trim() !== typed; } } });
    return [
      h('p', null, consequence), inputs, typed && h('label.field', null, h('span', null, 'Type ', h('b', null, typed), ' to confirm'), answer), problem,
      h('div.dialog-acts', null, button('Cancel', close, { autofocus: true }), go),
    ];
  });
}

/** The result of a user's action: shown for 8 s, and as long as the pointer or the focus is on it. */
export function toast(text, { state = 'ok', undo } = {}) {
  const place = document.getElementById('toasts');
  let timer;
  const leave = () => item.remove();
  const stay = () => clearTimeout(timer);
  const wait = () => {
    stay();
    timer = setTimeout(leave, STAYS_MS);
  };
  const item = h('div.toast', { on: { pointerenter: stay, pointerleave: wait, focusin: stay, focusout: wait } },
    h('p', null, status(state, text)),
    undo && button('Undo', () => {
      leave();
      undo();
    }),
    button('×', leave, { class: 'plain', 'aria-label': 'Close' }));
  while (place.childElementCount >= AT_ONCE_MAX) place.firstChild.remove();
  place.append(item);
  wait();
}

/** The lines of a program text, each in its own block, so that line ends need no control character. */
export function code(text, label) {
  return h('pre.code', { tabIndex: 0, 'aria-label': label, role: 'region' },
    String(text).split('\n').map((line) => h('code', null, line)));
}

/** Copies a text, also over plain HTTP. */
export async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = h('textarea', { value: text, readonly: true });
  document.body.append(area);
  area.select();
  document.execCommand('copy');
  area.remove();
  return undefined;
}

/** The same request as a command of the terminal. */
export function commandOf(operation, params = {}) {
  const fields = Object.entries(params).map(([key, value]) => {
    const text = typeof value === 'string' ? value : JSON.stringify(value);
    return /^[\w:.-]+$/.test(text) ? `${key}=${text}` : `'${`${key}=${text}`.replaceAll("'", "'\\''")}'`;
  });
  return ['touchline api', operation, ...fields].join(' ');
}

export const showCommand = (title, operation, params) => open(title, () => [code(commandOf(operation, params), 'Command'), button('Copy', () => copy(commandOf(operation, params)))], 'wide');
