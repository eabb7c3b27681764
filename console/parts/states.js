// The states of every panel: loading, empty, error, cut off, partial; and the age of its figures.
import { button, fill, h, setText } from '../dom.js';
import { clock, duration } from '../format.js';
import { failure, isOff, SHAPES, STATES, switchedOff, WORDS } from '../words.js';
import { shape } from './icons.js';

const AGE_FROM_MS = 3000;
const GREY_FROM_MS = 10_000;
// The node repeats unchanged figures every 10 s; without slack they would turn grey before each repetition.
const SLACK_MS = 1500;
const SKELETON_MS = 150;
const SLOW_MS = 2000;

const panels = new Set();
let clockOf = Date.now;
let nameOf = String;

export const useClock = (now, nodeName) => { [clockOf, nameOf] = [now, nodeName]; };

setInterval(() => panels.forEach((one) => one.tick()), 1000).unref?.();

let gate = { role: 'operator', cut: false };
const reason = () => (gate.cut ? WORDS.cutAct : gate.role === 'operator' ? '' : WORDS.readOnly(gate.role));

function applyGate(acting) {
  // Not `disabled`: the reason must be reachable by keyboard.
  acting.setAttribute('aria-disabled', String(Boolean(reason())));
  acting.title = reason();
}

export function setGate(next) {
  if (gate.role === next.role && gate.cut === next.cut) return;
  gate = next;
  document.querySelectorAll('[data-change]').forEach(applyGate);
}

/** A button that changes something. If the role may not press it, it stays visible and shows the reason. */
export function changeButton(label, onPress, properties = {}) {
  const acting = button(label, (event) => reason() || onPress(event), { ...properties, 'data-change': true });
  applyGate(acting);
  return acting;
}

export function status(state, text) {
  const kind = SHAPES[state] ?? 'off';
  return h('span.status', { class: kind }, shape(kind), ' ', h('span', null, text ?? STATES[state] ?? state));
}

export const hiddenPayload = (size) => h('span.soft', null, WORDS.hidden(size));

/**
 * A panel. `still` panels say nothing of their age (what is in them does not change by itself).
 * `command` is `[operation, params]`.
 */
export function panel({ title, command, still = false, kind = '' }) {
  const age = h('span.age', null);
  const asCommand = command && button('As command', async () => (await import('./dialog.js')).showCommand(`${title} as command`, ...command), { class: 'plain' });
  const notice = h('div.notice', { hidden: true });
  const partial = h('p.partial', { hidden: true });
  const body = h('div.panel-body', { hidden: true });
  const root = h('section.panel', { class: kind },
    h('div.panel-head', null, h('h2', null, title), age, h('div.acts', null, asCommand)), partial, notice, body);
  let at = 0;
  let began = Date.now();
  let seen = false;
  const say = (kindOf, ...content) => {
    notice.className = `notice ${kindOf}`;
    fill(notice, ...content);
    notice.hidden = false;
  };
  const self = {
    root, body,
    tick() {
      if (seen && !root.isConnected) panels.delete(self);
      seen ||= root.isConnected;
      if (began && Date.now() - began > SLOW_MS && notice.classList.contains('loading')) say('loading', h('p', null, WORDS.slow));
      if (!at || still) return;
      const old = clockOf() - at;
      root.classList.toggle('grey', old > GREY_FROM_MS + SLACK_MS);
      setText(age, old > GREY_FROM_MS + SLACK_MS ? `as of ${clock(at)}` : old > AGE_FROM_MS ? `${duration(old)} ago` : '');
    },
    /** The figures of `atMs` are in the body; `missing` names nodes that are not among them. */
    ready(atMs, missing = []) {
      at = atMs ?? clockOf();
      began = 0;
      root.classList.remove('grey');
      notice.hidden = true;
      body.hidden = false;
      partial.hidden = !missing.length;
      if (missing.length) fill(partial, status('look', WORDS.missing(missing.map((id) => nameOf(id)))));
      self.tick();
    },
    empty(text, ...more) {
      body.hidden = true;
      say('empty', h('p', null, text), more);
    },
    fail(error, retry, what) {
      if (error.kind === 'left') return;
      began = 0;
      root.classList.toggle('grey', !isOff(error));
      if (isOff(error)) self.empty(switchedOff(error, command?.[0]));
      else say('error', h('p', { role: 'alert' }, status('bad', failure(error, what)), h('span.soft', null, error.code ? ` Error ${error.code}.` : '', error.requestId ? ` Request ${error.requestId}.` : '')), retry && button('Try again', retry));
    },
  };
  setTimeout(() => {
    if (began && body.hidden && notice.hidden) say('loading', [0, 1, 2].map(() => h('div.skeleton', { 'aria-hidden': 'true' })), h('p.unseen', null, 'Loading'));
  }, SKELETON_MS);
  panels.add(self);
  return self;
}

/** A figure with its unit, and a reserved place for a comparison. */
export function tile(label, { spark } = {}) {
  const value = h('span.figure', null, '–');
  const note = h('span.note', null, '\u00a0');
  const name = h('span.label', null, label);
  const root = h('div.tile', null, name, value, spark?.root, note);
  return {
    root,
    name: (text) => setText(name, text),
    set(text, exact, comparison) {
      setText(value, text);
      if (exact !== undefined) value.title = exact;
      setText(note, comparison ?? '\u00a0');
    },
  };
}

export function head(title, acts = []) {
  const line = h('p.summary', null);
  const root = h('div.page-head', null, h('h1', null, title), line, h('div.page-acts', null, acts));
  return { root, set: (...content) => fill(line, ...content.map((one) => h('span', null, one))) };
}

/** Tabs are links, because each has an address. `entries`: `[key, label, make(params)]`; `make` returns `root`, `show`, `leave`. */
export function tabbed(context, entries) {
  const links = h('nav.tabs', { 'aria-label': 'Parts of this page', tabIndex: -1 });
  const place = h('div', null);
  let tab = null;
  let latest = null;
  const self = {
    root: [links, place],
    draw(params) {
      tab?.leave?.();
      const chosen = entries.find(([key]) => key === params.tab) ?? entries[0];
      fill(links, entries.filter(([, label]) => label).map((one) => h('a', {
        href: context.href(context.name, { ...params, tab: one === entries[0] ? '' : one[0] }), 'aria-current': one === chosen && 'page',
      }, one[1])));
      tab = chosen[2](params);
      place.replaceChildren(tab.root);
      if (latest) tab.show?.(...latest);
    },
    show(...given) {
      latest = given;
      tab.show?.(...given);
    },
    leave: () => tab?.leave?.(),
  };
  self.draw(context.params);
  return self;
}

export const facts = (entries) => h('dl.facts', null, entries.filter(Boolean).map(([term, value]) => h('div', null, h('dt', null, term), h('dd', null, value))));

/** Redraws only if the value differs, so that a link in it keeps its focus. */
export function onDifference(draw) {
  let last = '';
  return (value, ...more) => {
    const text = JSON.stringify(value);
    if (text !== last) draw(value, ...more);
    last = text;
  };
}
