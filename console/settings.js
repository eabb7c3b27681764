// The dialogs of the head's buttons: settings, all pages, the palette. Loaded on first use.
import { button, h } from './dom.js';
import { copy, open, toast } from './parts/dialog.js';
import { listKeys } from './parts/keys.js';
import { palette } from './parts/palette.js';
import { go, href } from './route.js';
import { logout } from './session.js';
import { changeZone, GROUPS, item } from './shell.js';
import { prefer, preference, session } from './state.js';
import { PAGES } from './words.js';

export const openMore = () => open('Pages', (close) => h('div.more-pages', { on: { click: close } }, GROUPS.flatMap(([, pages]) => pages).map(item)));

const choice = (name, label, values) => h('label.field', null, h('span', null, label), h('select', { on: { change: (event) => prefer({ [name]: event.target.value }) } },
  values.map(([value, text]) => h('option', { value, selected: preference(name) === value }, text))));

export function openSettings() {
  const { node, role } = session.get();
  open('Settings', (close) => [
    h('p', null, `Signed in as ${role} at ${node?.name ?? 'the node'}, version ${node?.version ?? 'unknown'}.`),
    node?.version?.endsWith('+quick') && h('p', null, 'This is a quick build, for trials and tests: a release build is several times as fast.'),
    choice('theme', 'Colours', [['', 'as the system'], ['light', 'light'], ['dark', 'dark']]),
    choice('density', 'Rows', [['', 'compact'], ['comfortable', 'comfortable']]),
    h('label.check', null, h('input', { type: 'checkbox', checked: preference('keys'), on: { change: (event) => prefer({ keys: event.target.checked }) } }), ' Single keys (? lists them)'),
    h('div.dialog-acts', null, button('Keys', listKeys), button('Change the time zone', changeZone), button('Sign out', () => {
      close();
      logout();
    })),
  ]);
}

export function openPalette() {
  const to = (label, name, params) => ({ label, run: () => go(href(name, params)) });
  palette(
    [...GROUPS.flatMap(([, pages]) => pages).map((name) => to(PAGES[name], name)), { label: 'Change the time zone', run: changeZone }],
    (text) => [
      to(`Channel ${text}`, 'channel', { name: text }), to(`Connections of user ${text}`, 'connections', { q: `user:${JSON.stringify(text)}` }),
      ...(/^[0-9a-f]{8}-[0-9a-f-]{27}$/i.test(text) ? [to(`Connection ${text}`, 'connection', { client: text })] : []),
      to(`Channels with ${text} in the name`, 'channels', { q: text }),
    ],
  );
}

export async function copyLink() {
  await copy(location.href);
  toast('The link of this page is copied.');
}
