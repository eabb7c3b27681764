// State that several modules share: preferences, the signed-in role, the link to the node.
import { useUtc } from './format.js';

/** One plain object; readers are notified once per frame. */
export function store(initial) {
  let value = initial;
  let told = true;
  const readers = new Set();
  const tell = () => {
    told = true;
    [...readers].forEach((reader) => reader(value));
  };
  return {
    get: () => value,
    set(patch) {
      value = { ...value, ...patch };
      // A hidden tab has no frames.
      if (told) (document.hidden ? setTimeout : requestAnimationFrame)(tell);
      told = false;
    },
    on(reader) {
      readers.add(reader);
      return () => readers.delete(reader);
    },
  };
}

/** `kind`: connecting, live, polling or cut; the times are of this browser's clock. */
export const link = store({ kind: 'connecting', heardAt: 0, retryAt: 0 });

export const session = store({ signed_in: false, role: null, insecure: false, label: '', node: null });

let skew = 0;
export const setServerTime = (ms) => { skew = ms - Date.now(); };
export const serverSkew = () => skew;
export const now = () => Date.now() + skew;

const PREFERENCES = 'touchline-console';
const DEFAULTS = { theme: '', density: '', utc: false, keys: true };

function stored() {
  try {
    return { ...DEFAULTS, ...JSON.parse(localStorage.getItem(PREFERENCES)) };
  } catch {
    return DEFAULTS;
  }
}

let preferences = null;
export const preference = (name) => (preferences ??= stored())[name];

export function prefer(patch) {
  preferences = { ...(preferences ?? stored()), ...patch };
  try {
    localStorage.setItem(PREFERENCES, JSON.stringify(preferences));
  } catch {
    // Without storage the choice is kept until the user leaves the page.
  }
  applyPreferences();
}

export function applyPreferences() {
  const root = document.documentElement;
  for (const name of ['theme', 'density']) {
    if (preference(name)) root.dataset[name] = preference(name);
    else delete root.dataset[name];
  }
  useUtc(preference('utc'));
}

const nodeNames = new Map();
export const learnNodes = (nodes) => nodes.forEach((node) => nodeNames.set(node.id, node.name || node.id));
/** The name of a node, if Overview has read it; else its id. */
export const nodeName = (id) => nodeNames.get(id) ?? id;
