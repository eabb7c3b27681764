// 15 API: calls any operation with a form from its schema; shows the request as curl and the answer.
import { openapi, send } from '../ask.js';
import { button, fill, h, setText } from '../dom.js';
import { duration } from '../format.js';
import { code, copy } from '../parts/dialog.js';
import { choice, schemaForm } from '../parts/form.js';
import { json } from '../parts/json.js';
import { changeButton, head, panel, status } from '../parts/states.js';
import { read } from '../read.js';
import { failure } from '../words.js';

const READS = /^(presence|presence_stats|history|channels|info|client_user|connections|get_user_status|lookup|names|count|members?|groups|changes|channel_get|channels_search|channels_similar|stats_\w+|events_dead|reactions_get|overview|overview_history|channel|refusals|activity|bans|inbox_names|inbox_list|consumers|configuration|token_check)$/;
const CALL_MAX_MS = 30_000;

export function operationsOf(document) {
  return Object.entries(document.paths).flatMap(([path, { post }]) => {
    const schema = post?.requestBody?.content?.['application/json']?.schema;
    const name = /^\/api\/([a-z_]+)$/.exec(path)?.[1];
    if (!name || !schema || name === 'batch') return [];
    const whole = schema.$ref ? document.components.schemas[schema.$ref.split('/').at(-1)] : schema;
    return [{ name, summary: post.summary, description: post.description, schema: whole ?? {}, reads: post['x-touchline-reads'] ?? READS.test(name) }];
  }).sort((one, other) => one.name.localeCompare(other.name));
}

/** The request for a shell; the key itself is never shown. */
export const curl = (origin, name, body) => `curl ${origin}/api/${name} \\\n  -H "X-API-Key: $KEY" \\\n  -d '${body.replaceAll("'", "'\\''")}'`;

export default {
  mount(root, context) {
    const top = head('API');
    const place = panel({ title: 'Request', still: true });
    root.append(top.root, place.root);
    const answer = h('div', { 'aria-live': 'polite' });
    function draw(operations, document, chosen) {
      const one = operations.find((operation) => operation.name === chosen) ?? operations.find(({ name }) => name === 'channels') ?? operations[0];
      const shell = h('div', null);
      const problem = h('p.problem', { role: 'alert' });
      const form = schemaForm(one.schema, document, one.reads, show);
      function show() {
        try {
          fill(shell, code(curl(location.origin, one.name, form.body()), 'The request as curl'));
          setText(problem, '');
        } catch (error) { setText(problem, error.message); }
      }
      async function run() {
        const body = form.body();
        fill(answer, h('p.soft', null, 'Waiting for the answer.'));
        const got = await send(one.name, body, { signal: context.signal, giveUpMs: CALL_MAX_MS });
        fill(answer, answerOf(got));
        form.invalid(parsed(got.text)?.error?.field);
      }
      const act = () => run().catch((error) => fill(answer, h('p.problem', null, failure(error))));
      const asked = () => context.act({ title: one.name, verb: `Run ${one.name}`, consequence: `${one.summary}. This changes something on the server.`, work: run, done: () => `${one.name} was run.` });
      const go = one.reads ? button('Send', act, { class: 'primary' }) : changeButton('Send…', asked, { class: 'primary' });
      const select = choice(operations.map(({ name }) => [name, name]), one.name, (operation) => context.set({ operation }), { 'aria-label': 'Operation' });
      fill(place.body, select, h('p', null, `${one.summary}. ${one.description ?? ''} Needs: ${one.reads ? 'viewer' : 'operator'}.`), form.root, problem,
        h('div.answer-head', null, go, button('Copy curl', () => copy(curl(location.origin, one.name, form.body())), { class: 'plain' })), h('h3', null, 'As curl'), shell, h('h3', null, 'Answer'), answer);
      fill(answer, h('p.soft', null, 'Nothing was sent yet.'));
      show();
    }
    let ready = null;
    const load = () => openapi().then((document) => {
      ready = (params) => draw(operationsOf(document), document, params.operation);
      place.ready();
      ready(context.params);
    }).catch((error) => place.fail(error, load, 'The description of the API was not read.'));
    load();
    return { update: (params) => ready?.(params) };
  },
};

function parsed(text) {
  try {
    return read(text, true);
  } catch {
    return null;
  }
}

function answerOf({ status: number, text, requestId, ms }) {
  const value = parsed(text);
  const good = number < 400 && !value?.error;
  return [h('p', null, status(good ? 'ok' : 'bad', `${number} in ${duration(ms)}`), ' ', h('span.soft', null, `request ${requestId}`), ' ', button('Copy', () => copy(text), { class: 'plain' })), value ? json(value, 'The answer') : code(text, 'The answer')];
}
