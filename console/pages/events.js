// 10 Events: endpoints, and events that could not be delivered.
import { arrange, button, fill, h } from '../dom.js';
import { bytes, clock, count, plural } from '../format.js';
import { open, secondPress, toast } from '../parts/dialog.js';
import { filter, fits } from '../parts/filter.js';
import { json } from '../parts/json.js';
import { listing, selectionBar } from '../parts/listing.js';
import { head, hiddenPayload, onDifference, panel, status } from '../parts/states.js';
import { failure } from '../words.js';

const IDS_MAX = 1000;
const PREFIX = 'events:';
const KEYS = { endpoint: 'the name of the endpoint', type: 'the type of the event', tries: 'how often it was sent, such as >5' };
const eventOf = (row, name) => String(row.event?.[name] ?? '–');
const FIELDS = { '': (row) => `${row.error} ${eventOf(row, 'subject')}`, endpoint: (row) => row.endpoint, type: (row) => eventOf(row, 'type'), tries: (row) => row.tries };

const resume = (context, endpoint) => context.ask('events_resume', { endpoint })
  .then(() => toast(`Events are sent to ${endpoint} again.`), (error) => toast(failure(error, `${endpoint} was not resumed.`), { state: 'bad' }));

/** The line of an endpoint. It stays when the state changes, so that its button can wait for the second press. */
function endpointLine(context, endpoint) {
  const state = h('span', null);
  const root = h('li', null, h('b', null, endpoint), ' ', state, ' ', secondPress('Resume', 'Press again: resume 1 endpoint', () => resume(context, endpoint)));
  return { root, show: onDifference((one) => fill(state, status(one.state, one.words))) };
}

function endpoints(context) {
  const place = panel({ title: 'Endpoints', command: ['overview'] });
  const list = h('ul.dependencies', null);
  const lines = new Map();
  place.body.append(list);
  context.fill(place, 'overview', {}, ({ dependencies }) => {
    const found = dependencies.filter((one) => one.name.startsWith(PREFIX));
    arrange(list, found.map((one) => {
      const key = `${one.name}\n${one.node}`;
      if (!lines.has(key)) lines.set(key, endpointLine(context, one.name.slice(PREFIX.length)));
      lines.get(key).show(one);
      return lines.get(key).root;
    }));
    if (!found.length) place.empty('No endpoint is configured. The key events lists them.');
  }, 'The endpoints were not read.');
  return place.root;
}

const openLetter = (context, row) => open(`Dead letter ${row.id}`, () => [
  h('p', null, `For ${row.endpoint}, created ${clock(row.made_at * 1000, context.now())}, given up ${clock(row.died_at * 1000, context.now())} after ${plural(row.tries, 'try', 'tries')}.`),
  h('p', null, status('bad', row.error)), row.hidden ? hiddenPayload(bytes(row.size)) : json(row.event, 'The event'),
], 'wide');

export default {
  mount(root, context) {
    const bar = filter({ keys: KEYS, onChange: (q) => context.set({ q }), label: 'Filter dead letters', hint: 'endpoint:push' });
    const place = h('div', null);
    root.append(head('Events').root, endpoints(context), bar.root, place);
    function draw({ q }) {
      const chips = bar.set(q);
      const endpoint = chips.find((one) => one.key === 'endpoint' && !one.not && one.op === '=');
      const local = chips.filter((one) => one !== endpoint);
      const act = (operation, verb, done, consequence, isTyped) => (keys) => context.act({
        title: `${verb} dead letters`, verb: `${verb} ${plural(keys.length, 'dead letter')}`, consequence, typed: isTyped && String(keys.length), what: 'Nothing was done.',
        operation, fields: { ids: keys.slice(0, IDS_MAX) }, done: (result) => `${plural(result.count, 'dead letter')} ${done}.`, after: () => list.reload(),
      });
      const selection = selectionBar([
        [(number) => `Retry ${number}…`, act('events_dead_retry', 'Retry', 'sent again', 'They are sent again, after the events that wait for their endpoint.')],
        [(number) => `Drop ${number}…`, act('events_dead_drop', 'Drop', 'dropped', 'They are deleted: the endpoint never gets them.', true)],
      ], 'Select dead letters to retry or drop them.');
      const list = listing(context, {
        title: 'Dead letters, the oldest first', operation: 'events_dead', params: endpoint ? { endpoint: endpoint.value } : {}, still: true, select: true, onSelect: selection.set,
        rows: (result) => result.letters, keyOf: (row) => row.id, local: local.length ? (row) => fits(row, local, FIELDS) : undefined,
        none: 'Every event was delivered: there is no dead letter.', unmatched: 'No dead letter matches.', clear: q && bar.clear,
        columns: [
          ['Event', (row) => button(`${eventOf(row, 'type')} ${row.id}`, () => openLetter(context, row), { class: 'plain', 'data-row': true })],
          ['When', (row) => clock(row.died_at * 1000, context.now()), 2], ['Subject', (row) => eventOf(row, 'subject'), 3], ['Endpoint', (row) => row.endpoint, 2],
          ['Tries', (row) => count(row.tries), 2, 'tries'], ['Last answer', (row) => row.error, 2],
        ],
      });
      fill(place, selection.root, list.root);
    }
    draw(context.params);
    return { update: draw };
  },
};
