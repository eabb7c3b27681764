// The frame of every page: head, navigation, and the banner of a page that is cut off.
import { button, fill, h, setText } from './dom.js';
import { zoneName } from './format.js';
import { icon, shape } from './parts/icons.js';
import { setGate } from './parts/states.js';
import { href } from './route.js';
import { link, now, prefer, preference, serverSkew, session } from './state.js';
import { PAGES, WORDS } from './words.js';

export const GROUPS = [
  ['Now', ['overview']], ['Who, what', ['channels', 'connections', 'registry', 'inbox', 'bans']],
  ['Flow', ['events', 'consumers', 'statistics']], ['Server', ['tokens', 'configuration', 'api']],
];
const IN_BAR = ['overview', 'channels', 'connections', 'registry'];
const PARENTS = { channel: 'channels', connection: 'connections', name: 'registry' };
const SKEW_SAID_MS = 2000;
const LINKS = { live: ['ok', 'Live'], polling: ['look', 'Every 2 s'], connecting: ['off', 'Connecting'], cut: ['bad', 'Cut off'] };

export const settings = (what) => async () => (await import('./settings.js'))[what]();

export function changeZone() {
  prefer({ utc: !preference('utc') });
  location.reload();
}

export const item = (page) => h('a.nav', { href: href(page), 'data-page': page, class: IN_BAR.includes(page) ? 'in-bar' : '' }, icon(page), h('span', null, PAGES[page]));

const state = h('span', null);
const word = h('span', null);
const zone = button('', changeZone, { class: 'plain wide-only', title: 'Change the time zone' });
const banner = h('p', null);
const again = button('Try now', async () => (await import('./live.js')).tryNow());

export function drawShell() {
  const { label, role, insecure } = session.get();
  fill(document.getElementById('head'),
    h('a.brand', { href: href('overview') }, 'Touchline'), label && h('span.environment', null, label),
    button(h('span', null, 'Find anything ', h('kbd.wide-only', null, 'Ctrl K')), settings('openPalette'), { class: 'find' }),
    h('span.live', null, state, word), zone,
    button(insecure ? 'no password' : role, settings('openSettings'), { class: 'plain', 'aria-label': `Settings, signed in as ${role}` }));
  fill(document.getElementById('rail'), GROUPS.map(([name, pages]) => h('div.group', null, h('span.group-name', null, name), pages.map(item))),
    button([icon('more'), h('span', null, 'More')], settings('openMore'), { class: 'more nav' }));
  fill(document.getElementById('banner'), banner, again);
  document.body.classList.add('shelled');
  drawLink();
}

export function markPage(name) {
  for (const anchor of document.querySelectorAll('#rail a')) {
    if (anchor.dataset.page === (PARENTS[name] ?? name)) anchor.setAttribute('aria-current', 'page');
    else anchor.removeAttribute('aria-current');
  }
}

/** Draws what depends on the link to the node; also once a second, for the countdown. */
export function drawLink() {
  const { kind, heardAt, retryAt } = link.get();
  const cut = kind === 'cut' && document.body.classList.contains('shelled');
  if (setText(word, LINKS[kind][1])) fill(state, shape(LINKS[kind][0]), ' ');
  setText(zone, zoneName(now()));
  const place = document.getElementById('banner');
  place.hidden = !cut && Math.abs(serverSkew()) < SKEW_SAID_MS;
  place.classList.toggle('bad', cut);
  document.body.classList.toggle('cut', cut);
  again.hidden = !cut;
  setText(banner, cut ? `${WORDS.cut(heardAt || Date.now(), Date.now())} ${WORDS.retry(retryAt - Date.now())}` : WORDS.skew(serverSkew()));
  setGate({ role: session.get().role ?? 'viewer', cut });
}

export function setTitle(name, problems = '') {
  document.title = [problems, name, session.get().label || 'Touchline'].filter(Boolean).join(' · ');
}
