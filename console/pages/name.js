// 7 One name: its owner; calling it, sending to it, unregistering it.
import { fill, h } from '../dom.js';
import { bytes, count, duration, shortId } from '../format.js';
import { field, jsonInput, textData, textInput } from '../parts/form.js';
import { json } from '../parts/json.js';
import { changeButton, facts, head, hiddenPayload, onDifference, panel, status } from '../parts/states.js';
import { failure } from '../words.js';

const CALL_MS = 5000;
const INBOX_MAX = 100;

function talk(context, scope, name) {
  const data = jsonInput({ value: '{}' });
  const keep = textInput({ inputmode: 'numeric' });
  const answer = h('div', { role: 'status' });
  const attempt = (operation, more, told) => async () => {
    const began = performance.now();
    try {
      const body = `{"scope":${JSON.stringify(scope)},"name":${JSON.stringify(name)},"data":${textData(data.value)}${more()}}`;
      const result = await context.send(operation, body, { giveUpMs: 2 * CALL_MS });
      fill(answer, h('p', null, status('ok', told(result, duration(performance.now() - began)))), result.data !== undefined && json(result.data, 'The answer'));
    } catch (error) { fill(answer, h('p.problem', null, failure(error, 'There was no answer.'))); }
  };
  const call = attempt('call', () => `,"timeout_ms":${CALL_MS}`, (_, took) => `Answered after ${took}.`);
  const send = attempt('send', () => (Number(keep.value) ? `,"store_for":${Math.floor(Number(keep.value))}` : ''), (result) => (result.id ? `Sent, and kept until it is acknowledged: ${result.id}.` : `Sent to ${count(result.sent)}.`));
  return h('section.panel', null, h('h2', null, 'Call or send'), field('Data, JSON', data), field('Keep a message for, seconds', keep, 'Empty: the message is not kept. Otherwise it waits in the inbox.'),
    h('div.answer-head', null, changeButton('Call', call, { class: 'primary' }), changeButton('Send', send)), answer);
}

export default {
  mount(root, context) {
    const { scope = '', name = '' } = context.params;
    let owner = '';
    const unregister = changeButton('Unregister…', () => owner && context.act({
      title: `Unregister ${name}`, verb: 'Unregister 1 name', typed: name, what: 'The name was not unregistered.',
      consequence: `${shortId(owner)} loses the name and is notified. Messages that wait in the inbox stay.`,
      operation: 'unregister', fields: { scope, name, client: owner }, done: () => `${name} has no owner now.`,
    }));
    const top = head(name, [unregister]);
    top.set(`in ${scope}`);
    const state = panel({ title: 'Owner', command: ['lookup', { scope, name }] });
    const inbox = panel({ title: 'Inbox', command: ['inbox_list', { scope, name, limit: INBOX_MAX }] });
    root.append(top.root, state.root, h('div.columns', null, talk(context, scope, name), inbox.root));
    const draw = onDifference((result) => fill(state.body, status('ok', 'It has an owner.'), facts([['Client', h('a', { href: context.href('connection', { client: owner }) }, owner)], ['Node', context.nodeName(result.node)], ['Version', result.version]]),
      h('h3', null, 'Metadata'), result.hidden ? hiddenPayload(bytes(result.size)) : result.meta === undefined ? h('p.soft', null, 'It has none.') : json(result.meta, 'Metadata')));
    context.watch('lookup', { scope, name }, {
      show(result, at) {
        state.ready(at);
        owner = result.client;
        draw(result);
      },
      fail(error) {
        owner = '';
        if (error.code === 4002) state.empty('Nobody has this name.');
        else state.fail(error, null, 'The owner was not looked up.');
      },
    });
    context.fill(inbox, 'inbox_list', { scope, name, limit: INBOX_MAX }, ({ messages }) => {
      fill(inbox.body, h('a', { href: context.href('inbox', { scope, name }) }, messages.length < INBOX_MAX ? `${count(messages.length)} wait` : `${count(INBOX_MAX)} or more wait`));
      if (!messages.length) inbox.empty('No message waits for this name.');
    }, 'The inbox was not read.');
  },
};
