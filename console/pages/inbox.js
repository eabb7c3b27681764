// 8 Inbox: messages that wait for names.
import { fill, h } from '../dom.js';
import { bytes, clock, count, duration, plural, UNKNOWN, until } from '../format.js';
import { filter } from '../parts/filter.js';
import { needsScope } from '../parts/form.js';
import { json } from '../parts/json.js';
import { listing } from '../parts/listing.js';
import { changeButton, head, hiddenPayload, panel } from '../parts/states.js';

const SHOWN_MAX = 100;

function messagesOf(context, scope, name) {
  const fields = { scope, name, limit: SHOWN_MAX };
  const place = panel({ title: `Messages for ${name}`, command: ['inbox_list', fields], still: true });
  const drop = (ids) => changeButton(ids.length === 1 ? 'Drop this…' : `Drop ${count(ids.length)} messages…`, () => context.act({
    title: 'Drop messages', verb: `Drop ${plural(ids.length, 'message')}`, typed: ids.length > 1 ? String(ids.length) : undefined, what: 'Nothing was dropped.',
    consequence: `${plural(ids.length, 'message is', 'messages are')} deleted. The owner of ${name} does not get them.`,
    operation: 'inbox_drop', fields: { scope, name, ids }, done: (result) => `${plural(result.dropped, 'message')} dropped.`, after: read,
  }));
  const message = (one) => h('li', null,
    h('p', null, h('b', null, one.id), ` from ${one.from?.user || one.from?.client || 'the server API'}, sent ${clock(one.sent_ms, context.now())}, kept ${one.expires_ms ? `until ${until(one.expires_ms, context.now())}` : 'without end'}, ${bytes(one.size)} `, drop([one.id])),
    one.hidden ? hiddenPayload(bytes(one.size)) : json(one.data ?? { base64: one.b64data }, `Data of ${one.id}`));
  function read() {
    context.ask('inbox_list', fields).then(({ messages }) => {
      place.ready(context.now());
      fill(place.body, messages.length > 1 && drop(messages.map((one) => one.id)), h('ul', null, messages.map(message)));
      if (!messages.length) place.empty('No message waits for this name.');
    }).catch((error) => place.fail(error, read, 'The messages were not read.'));
  }
  read();
  return place.root;
}

export default {
  mount(root, context) {
    const top = head('Inbox');
    root.append(top.root);
    const scope = needsScope(root, context);
    if (!scope) return {};
    const bar = filter({ keys: { prefix: 'the beginning of the name' }, onChange: (q) => context.set({ q, name: '' }), label: 'Filter by the beginning', hint: 'the beginning of a name' });
    const place = h('div', null);
    root.append(bar.root, place);
    let list = null;
    function draw(params) {
      if (params.scope !== scope) {
        context.again();
        return;
      }
      list?.leave();
      const prefix = bar.set(params.q)[0]?.value ?? '';
      list = listing(context, {
        title: 'Names with messages', operation: 'inbox_names', params: { scope, ...(prefix && { prefix }) }, rows: (result) => result.names,
        onResult: (result) => top.set(scope, result.total_messages === undefined ? '' : plural(result.total_messages, 'message')),
        keyOf: (row) => row.name, href: (row) => context.href('inbox', { scope, q: params.q, name: row.name }),
        none: 'No message waits in this scope.', unmatched: 'No name with messages begins like this.', clear: prefix && bar.clear,
        columns: [
          ['Name', (row) => row.name], ['Waiting', (row) => count(row.waiting), 2, 'wait'], ['Size', (row) => bytes(row.bytes), 3, ''],
          ['Oldest', (row) => (row.oldest_ms ? duration(context.now() - row.oldest_ms) : UNKNOWN), 2, '', (row) => clock(row.oldest_ms, context.now())],
        ],
      });
      fill(place, params.name && messagesOf(context, scope, params.name), list.root);
    }
    draw(context.params);
    return { update: draw };
  },
};
