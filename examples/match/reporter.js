// The reporter's page: big buttons that post through the server API.

import { CHANNEL, followMatch } from './live.js';
import { mountPulse } from './pulse.js';
import { lastGoal } from './match.js';
import { element, mountScore, showScore, showState, showTicker } from './view.js';

const ATTEMPTS = 4;
const PAUSE_MS = 500;
const PATIENCE_MS = 5_000;
const find = (selector) => document.querySelector(selector);
const form = find('#event');
let standing; // the last goal that counts, as an entry of the match
const posted = new Map(); // time of each post that has not been seen on the channel, by its id

takeKey();
mountScore(find('#score'));
const beat = mountPulse(find('#pulse'));
followMatch({
  onMatch: (match) => {
    showScore(find('#score'), match);
    showTicker(find('#ticker'), match);
    standing = lastGoal(match);
    offerUndo();
    for (const side of ['home', 'away']) find(`#${side}-name`).textContent = match[side].name;
    if (document.activeElement !== form.elements.minute) form.elements.minute.value = match.minute || '';
  },
  onWatching: (watchers) => { find('#watching').textContent = `${watchers} watching`; },
  onState: (state, reason) => showState(find('#state'), state, reason),
  onReactions: (reactions, risen) => beat(risen),
  onEvent: (entry, { tags }) => {
    const began = posted.get(tags?.post);
    if (began) find('#seen').textContent = `Seen on the channel ${Math.round(performance.now() - began)} ms after the click`;
    posted.delete(tags?.post);
  },
});

document.addEventListener('click', ({ target }) => {
  const type = target.closest('[data-event]')?.dataset;
  if (type) report(described(type));
  if (target.closest('.undo')) undo(target.closest('.undo'));
});
find('#words').addEventListener('submit', (submission) => {
  submission.preventDefault();
  const text = find('#text').value.trim();
  if (text) report(described({ event: 'text' }, { text })).then(() => { find('#text').value = ''; });
});
find('#new').addEventListener('submit', async (submission) => {
  submission.preventDefault();
  const { home, away } = Object.fromEntries(new FormData(submission.target));
  const team = (name, color) => ({ name, short: name.slice(0, 3).toUpperCase(), color });
  await call('history_remove', { channel: CHANNEL }).catch(() => {});
  await report({ type: 'lineup', title: `${home} – ${away}`, home: team(home, '#2563eb'), away: team(away, '#dc2626') });
});

/** The event of a button, with the values of the form. */
function described({ event: type, team, card }, more = {}) {
  const { player, out, minute } = Object.fromEntries(new FormData(form));
  const event = { type, minute: Number(minute) || (type === 'kick_off' ? 1 : type === 'second_half' ? 46 : undefined), ...more };
  if (team) Object.assign(event, { team, player: player.trim() || undefined });
  if (card) event.card = card;
  if (type === 'substitution' && out.trim()) event.out = out.trim();
  return event;
}

/** Takes back the goal of a button. Two clicks, also on two pages, have the same idempotency key. */
async function undo(button) {
  const { team, player, offset } = button.dataset;
  button.disabled = true;
  find('#log').focus(); // a disabled button loses the focus
  await report({ type: 'no_goal', team, text: `The goal${player ? ` of ${player}` : ''} does not count.` }, `no goal ${offset}`);
  button.disabled = false;
}

/** Shows the button of the last goal that counts, if this page has posted it, and hides the others. */
function offerUndo() {
  for (const button of document.querySelectorAll('.undo')) {
    button.hidden = Number(button.dataset.offset) !== standing?.offset;
  }
}

/** Posts an event and shows the result. The same post may be retried: its idempotency key makes sure that it counts once. */
async function report(event, id = randomId()) {
  const name = event.type.replace('_', ' ');
  const began = performance.now();
  posted.set(id, began);
  const told = element('span', {}, `${name}: sending…`);
  const line = element('li', {}, told);
  find('#log').prepend(line);
  find('#log').scrollTop = 0;
  try {
    const { offset } = await call('publish', { channel: CHANNEL, data: event, tags: { post: id }, idempotency_key: id });
    told.textContent = `${name}: sent in ${Math.round(performance.now() - began)} ms`;
    line.className = 'sent';
    if (event.type === 'goal') {
      const { team, player } = event;
      const goal = { 'data-team': team, 'data-player': player, 'data-offset': offset };
      const label = `Undo the goal for ${find(`#${team}-name`).textContent}`;
      line.append(element('button', { type: 'button', class: 'undo', 'aria-label': label, ...goal }, 'Undo'));
      offerUndo();
    }
    form.elements.player.value = form.elements.out.value = '';
  } catch (error) {
    told.textContent = `${name}: not sent. ${error.message}`;
    line.className = 'failed';
    posted.delete(id);
  }
}

/** Like `crypto.randomUUID`, which exists only on https and on this machine. */
const randomId = () => [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, '0')).join('');

/** Calls the server API. Only a network failure is retried; an error of the API is final. */
async function call(operation, request) {
  const headers = { 'Content-Type': 'application/json', 'X-API-Key': find('#key').value };
  for (let attempt = 1; ; attempt += 1) {
    const signal = AbortSignal.timeout(PATIENCE_MS);
    const response = await fetch(`/api/${operation}`, { method: 'POST', headers, body: JSON.stringify(request), signal }).catch((error) => {
      if (attempt === ATTEMPTS) throw new Error('The server can’t be reached.', { cause: error });
    });
    if (response?.status === 401) throw new Error('The API key is wrong: take it from the address that the server prints.');
    if (response && !response.ok) throw new Error(`The server answered ${response.status}.`);
    if (response) {
      const { error, result } = await response.json();
      if (error) throw new Error(`${error.message} (${error.code}).`);
      return result;
    }
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS * attempt));
  }
}

/** The key is after the # of the address, which no server sees. It is kept for this tab and removed from the address bar. */
function takeKey() {
  const key = new URLSearchParams(location.hash.slice(1)).get('key');
  if (key) {
    sessionStorage.setItem('key', key);
    history.replaceState(null, '', location.pathname);
  }
  find('#key').value = sessionStorage.getItem('key') ?? '';
  find('#key').addEventListener('change', ({ target }) => sessionStorage.setItem('key', target.value));
}
