// The start: reads the signed-in role, then shows the page of the address. Other modules are loaded after the first page.
import { ask } from './ask.js';
import { contextOf } from './context.js';
import { fill, h } from './dom.js';
import { useClock } from './parts/states.js';
import * as route from './route.js';
import { look, whenSignedOut } from './session.js';
import { changeZone, drawLink, drawShell, markPage, setTitle, settings } from './shell.js';
import { applyPreferences, learnNodes, link, nodeName, now, preference, session } from './state.js';
import { PAGES } from './words.js';

const START_AGAIN_MS = 1000;
const LATER_MS = 300;
const place = document.getElementById('page');
let moved = false;

function show(where, page) {
  const context = contextOf(where, enter);
  if (page === route.AWAY) {
    fill(place, h('h1', null, PAGES[where.name]), h('p', null, 'The page was not loaded: the node does not answer. It loads when the node is back.'));
    const end = link.on(({ kind }) => (kind === 'live' || kind === 'polling') && location.reload());
    return { leave: end };
  }
  if (!page) {
    fill(place, h('h1', null, 'There is no such page'), h('p', null, 'No page has this address. ', h('a', { href: route.href('overview') }, 'Overview')));
    return context;
  }
  setTitle(PAGES[where.name]);
  place.replaceChildren();
  const mounted = page.mount(place, context) ?? {};
  markPage(where.name);
  if (moved) {
    const heading = place.querySelector('h1');
    heading.tabIndex = -1;
    heading.focus({ preventScroll: true });
    scrollTo(0, 0);
  }
  moved = true;
  return {
    update: mounted.update,
    leave() {
      mounted.leave?.();
      context.leave();
    },
  };
}

const later = (run) => new Promise((go) => setTimeout(go, LATER_MS)).then(run);

/** After a sign-in: the shell, the names of the nodes if they arrive soon, the requested page, then the live connection. */
async function enter(address = location.pathname + location.search) {
  drawShell();
  later(async () => (await import('./live.js')).start());
  // Overview reads the names itself.
  const isOverview = route.parse(address.split('?')[0], '')?.name === 'overview';
  if (!isOverview) await Promise.race([later(), ask('overview').then((result) => learnNodes(result.nodes), () => {})]);
  if (route.here().name) route.go(address, { replace: true });
}

whenSignedOut(async () => {
  document.body.classList.remove('shelled', 'cut');
  document.getElementById('banner').hidden = true;
  if (route.here().name !== 'login') route.go(route.href('login', { next: location.pathname + location.search, why: 'out' }), { replace: true });
  (await import('./live.js')).stop();
});

async function start() {
  try {
    await look();
  } catch {
    fill(place, h('p.alone', null, 'The node does not answer. This page tries again by itself.'));
    return setTimeout(start, START_AGAIN_MS);
  }
  const { signed_in: signedIn, insecure } = session.get();
  if (signedIn || insecure) await enter();
  else if (route.parse(location.pathname, location.search)?.name !== 'login') {
    history.replaceState(null, '', route.href('login', { next: location.pathname + location.search }));
  }
  await route.start(show);
  return later(listenToKeys);
}

async function listenToKeys() {
  const { listen } = await import('./parts/keys.js');
  listen({
    palette: () => session.get().role && settings('openPalette')(),
    go: (page) => route.go(route.href(page)), copyLink: settings('copyLink'), zone: changeZone,
    enabled: () => preference('keys') && Boolean(session.get().role),
  });
}

applyPreferences();
useClock(now, nodeName);
link.on(drawLink);
setInterval(drawLink, 1000);
start();
