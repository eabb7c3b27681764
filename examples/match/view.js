// Shows a match. Text is inserted as text, never as HTML, because events come from outside.

import { isPlaying } from './match.js';

const SCORE = `
  <p class="status"><span id="state" class="state" role="status" data-state="connecting">Connecting…</span><span id="watching" class="watching"></span></p>
  <h1 class="title">&nbsp;</h1>
  <div class="board">
    <p class="team" data-team="home"><span class="short" aria-hidden="true">HOM</span><span class="name">Home</span></p>
    <p class="goals"><span data-goals="home">0</span><span class="dash" aria-hidden="true">–</span><span data-goals="away">0</span></p>
    <p class="team" data-team="away"><span class="short" aria-hidden="true">AWY</span><span class="name">Away</span></p>
  </div>
  <p class="clock"><span class="minute"></span> <span class="phase"></span></p>`;

const STATES = { connecting: 'Connecting…', live: 'Live', reconnecting: 'Reconnecting…', closed: 'Closed by the server' };

/** An element with text or children. */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== undefined && value !== false) made.setAttribute(name, value);
  made.append(...children.filter((child) => child !== undefined && child !== ''));
  return made;
}

/** Puts an empty scoreboard into an element. */
export const mountScore = (root) => { root.innerHTML = SCORE; };

/** Shows the score, the clock and the teams. */
export function showScore(root, match) {
  for (const side of ['home', 'away']) {
    const team = root.querySelector(`[data-team=${side}]`);
    team.querySelector('.name').textContent = match[side].name;
    team.querySelector('.short').textContent = match[side].short;
    paint(team, match[side].color);
    const goals = root.querySelector(`[data-goals=${side}]`);
    if (goals.textContent !== String(match.score[side])) {
      goals.textContent = match.score[side];
      restart(goals, 'scored', match.entries[0]?.kind === 'goal');
    }
  }
  root.querySelector('.minute').textContent = isPlaying(match) ? `${match.minute}′` : '';
  root.querySelector('.phase').textContent = match.phase;
  root.querySelector('.title').textContent = match.title || `${match.home.name} – ${match.away.name}`;
  root.classList.toggle('playing', isPlaying(match));
  document.title = `${match.home.short} ${match.score.home}–${match.score.away} ${match.away.short}`;
}

/** Plays a CSS animation again. */
function restart(target, name, isWanted) {
  target.classList.remove(name);
  void target.offsetWidth;
  if (isWanted) target.classList.add(name);
}

const shown = new WeakMap(); // list → the entries that it shows

/** Shows the ticker, newest first. Existing lines stay: the fold keeps its entries, so the same oldest entry means the same match. */
export function showTicker(list, { entries }) {
  const before = shown.get(list) ?? [];
  const isContinued = before.length > 0 && before.at(-1) === entries.at(-1);
  if (!isContinued) list.replaceChildren();
  const added = entries.slice(0, isContinued ? entries.length - before.length : entries.length);
  list.prepend(...added.map(line));
  shown.set(list, entries);
}

/** Announces an entry to screen readers. */
export const announce = (target, { headline, text }) => { target.textContent = [headline, text].filter(Boolean).join(' '); };

function line(entry) {
  const badge = entry.isCaughtUp && element('span', { class: 'caught-up' }, 'caught up');
  const made = element(
    'li',
    { class: `entry ${entry.kind}`, 'data-side': entry.team },
    element('span', { class: 'when' }, entry.minute ? `${entry.minute}′` : '–'),
    element('span', { class: 'mark', 'aria-hidden': 'true' }),
    element('div', {}, entry.headline ? element('strong', {}, ...unbroken(entry.headline)) : '', entry.text ? element('p', {}, ...unbroken(entry.text)) : '', badge || ''),
  );
  paint(made, entry.color);
  return made;
}

/** A text whose scores stay on one line. */
const unbroken = (text) => text.split(/(\d+–\d+)/).map((part, index) => (index % 2 ? element('span', { class: 'unbroken' }, part) : part));

/** Gives an element the colour of a team, if the value is a colour: a CSS property could contain more. */
function paint(target, color) {
  if (CSS.supports('color', color ?? '')) target.style.setProperty('--team', color);
  else target.style.removeProperty('--team');
}

/** Shows the state of the connection. */
export function showState(target, state, reason = '') {
  target.textContent = STATES[state] + (state === 'closed' && reason ? `: ${reason}` : '');
  target.dataset.state = state;
}
