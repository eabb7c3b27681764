// Addresses and pages: which module shows an address, and how to build an address.
import { look, prefix } from './session.js';
import { PAGES } from './words.js';

const HOME = 'overview';
// Stands for a page whose module could not be loaded.
export const AWAY = {};

export function parse(path, search, base = prefix) {
  if (path !== base && !path.startsWith(`${base}/`)) return null;
  const name = path.slice(base.length).replaceAll(/^\/+|\/+$/g, '') || HOME;
  return Object.hasOwn(PAGES, name) ? { name, params: Object.fromEntries(new URLSearchParams(search)) } : null;
}

/** The address of a page. Names from outside are in the query: a channel ".." in a path would be resolved away. */
export function href(name, params = {}, base = prefix) {
  const text = new URLSearchParams(Object.entries(params).filter(([, value]) => value)).toString();
  return `${base}/${name === HOME ? '' : name}${text ? `?${text}` : ''}`;
}

/** An address from outside (`next`, links of problems) if it is below the prefix, else that of the home page. */
export function inside(address, base = prefix) {
  const path = String(address ?? '');
  if (!/^\/(?![/\\])/.test(path)) return href(HOME, {}, base);
  const whole = path === base || path.startsWith(`${base}/`) ? path : base + path;
  const [name, search = ''] = whole.split('?');
  return parse(name, search, base) ? whole : href(HOME, {}, base);
}

let current = null;
let show = () => {};

export function start(drawer) {
  show = drawer;
  addEventListener('popstate', render);
  document.addEventListener('click', followLink);
  return render();
}

function followLink(event) {
  if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const anchor = event.target.closest('a[href]');
  if (!anchor || anchor.target || anchor.origin !== location.origin || anchor.hash || !parse(anchor.pathname, anchor.search)) return;
  event.preventDefault();
  go(anchor.pathname + anchor.search);
}

export function go(address, { replace = false } = {}) {
  if (address !== location.pathname + location.search) history[replace ? 'replaceState' : 'pushState'](null, '', address);
  return render();
}

async function render() {
  const place = parse(location.pathname, location.search) ?? { name: 'lost', params: {} };
  if (current?.name === place.name && current.update) {
    current.params = place.params;
    current.update(place.params);
    return;
  }
  current?.leave?.();
  const mine = { ...place };
  current = mine;
  const page = place.name === 'lost' ? null : await load(place.name).catch(() => AWAY);
  if (current === mine) Object.assign(mine, show(place, page));
}

async function load(name) {
  try {
    return (await import(`./pages/${name}.js`)).default;
  } catch (error) {
    await look();
    // Another version may run by now, whose page names the right folder. Reload only once, or it would never end.
    if (sessionStorage.getItem('reloaded') === import.meta.url) throw error;
    sessionStorage.setItem('reloaded', import.meta.url);
    location.reload();
    return null;
  }
}

export const here = () => ({ name: current?.name, params: current?.params ?? {} });

export function again() {
  current?.leave?.();
  current = null;
  return render();
}
