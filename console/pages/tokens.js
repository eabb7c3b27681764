// 13 Tokens: how this server judges a token. The token is not stored and not put into the address.
import { fill, h } from '../dom.js';
import { field, jsonInput } from '../parts/form.js';
import { json } from '../parts/json.js';
import { head, status } from '../parts/states.js';
import { table } from '../parts/table.js';
import { write } from '../read.js';
import { failure } from '../words.js';

const valueOf = (value) => (typeof value === 'string' ? value : write(value));

function verdict(result) {
  const grid = table({
    caption: 'Claims', keyOf: (row) => row.claim,
    columns: [['Claim', (row) => row.claim], ['Value', (row) => valueOf(row.value), 2], ['Meaning', (row) => row.words, 2]],
  });
  grid.set(result.claims ?? []);
  return h('section.panel.wrap', null, h('p.verdict', null, status(result.valid ? 'ok' : 'bad', `${result.valid ? 'Valid' : 'Not valid'}: ${result.words}`)),
    h('h2', null, 'Header'), json(result.header ?? {}, 'Header'), h('h2', null, 'Claims'), grid.root);
}

export default {
  mount(root, context) {
    const token = jsonInput({ rows: 5, required: true, name: 'token' });
    const answer = h('div', { role: 'status' });
    async function check(event) {
      event.preventDefault();
      try {
        fill(answer, verdict(await context.ask('token_check', { token: token.value.trim() })));
      } catch (error) {
        fill(answer, h('p.problem', { role: 'alert' }, failure(error, 'The token was not checked.')));
      }
    }
    root.append(head('Tokens').root,
      h('form.panel', { on: { submit: check } }, field('Paste a token here', token, 'This server checks it. It is not logged or stored.'), h('button.primary', { type: 'submit' }, 'Check the token')), answer);
    return {
      leave() { token.value = ''; },
    };
  },
};
