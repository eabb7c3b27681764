// 2 Channels: the channels with their subscribers.
import { h } from '../dom.js';
import { count } from '../format.js';
import { filter, fits, globbed } from '../parts/filter.js';
import { listing } from '../parts/listing.js';
import { head } from '../parts/states.js';

const KEYS = { namespace: 'the part before the first colon', name: 'a part of the name', subscribers: 'more or fewer than, such as >100' };
const namespaceOf = (channel) => (channel.includes(':') ? channel.slice(0, channel.indexOf(':')) : '');
const FIELDS = { '': (row) => row.channel, namespace: (row) => namespaceOf(row.channel), subscribers: (row) => row.subscribers };

export function divided(chips) {
  const good = (one) => !one.not && one.op === '=';
  const namespace = chips.find((one) => one.key === 'namespace' && good(one));
  const part = chips.find((one) => one.key === '' && good(one));
  const pattern = (namespace ? `${globbed(namespace.value)}:` : '') + (part ? `*${globbed(part.value)}*` : namespace ? '*' : '');
  return { params: pattern ? { pattern } : {}, local: chips.filter((one) => one !== namespace && one !== part) };
}

export default {
  mount(root, context) {
    const bar = filter({ keys: KEYS, onChange: (q) => context.set({ q }), label: 'Filter channels', hint: 'part of a name, or namespace:market' });
    const place = h('div', null);
    root.append(head('Channels').root, bar.root, place);
    let list = null;
    function draw({ q }) {
      list?.leave();
      const { params, local } = divided(bar.set(q).map((one) => (one.key === 'name' ? { ...one, key: '' } : one)));
      list = listing(context, {
        title: 'Channels with subscribers', operation: 'channels', params, local: local.length ? (row) => fits(row, local, FIELDS) : undefined,
        rows: (result) => Object.entries(result.channels).map(([channel, of]) => ({ channel, subscribers: of.num_clients })),
        keyOf: (row) => row.channel, href: (row) => context.href('channel', { name: row.channel }),
        none: 'No channel has a subscriber.', unmatched: 'No channel with a subscriber matches.', clear: q && bar.clear,
        columns: [['Channel', (row) => row.channel], ['Namespace', (row) => namespaceOf(row.channel) || '–', 3], ['Subscribers', (row) => count(row.subscribers), 2, 'subscribers']],
      });
      place.replaceChildren(list.root);
    }
    draw(context.params);
    return { update: draw };
  },
};
