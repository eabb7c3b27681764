// 9 Bans: blocked users and revoked tokens.
import { until } from '../format.js';
import { secondPress, toast } from '../parts/dialog.js';
import { field, textInput } from '../parts/form.js';
import { listing } from '../parts/listing.js';
import { changeButton, head, tabbed } from '../parts/states.js';
import { failure } from '../words.js';

const HOUR_S = 3600;
const TABS = [
  ['user', 'Users', 'No user is blocked.'], ['token', 'Tokens', 'No token is revoked.'], ['issued_before', 'Issued before', 'No user has tokens that are refused because of their age.'],
];
// The action, the label of its target, the operation and its field, the consequence.
const ACTS = [
  ['Block 1 user', 'User', 'block_user', 'user', 'All connections of the user end with 3503, and the user can no longer connect.'],
  ['Revoke 1 token', 'Token (jti)', 'revoke_token', 'uid', 'Connections with this token end with 3500, and the token is no longer accepted.'],
  ['Refuse older tokens of 1 user', 'User', 'invalidate_user_tokens', 'user', 'Tokens of the user that were issued before now are no longer accepted; their connections end with 3500.'],
];

async function unblock(context, user, after) {
  try {
    await context.ask('unblock_user', { user });
    toast(`User ${user} can connect again.`);
    after();
  } catch (error) {
    toast(failure(error, 'The user stays blocked.'), { state: 'bad' });
  }
}

function ban(context, [verb, label, operation, key, consequence], after) {
  const who = textInput({ maxlength: 1024 });
  const hours = textInput({ inputmode: 'decimal' });
  context.act({
    title: verb, verb, consequence, inputs: [field(label, who), field('For how many hours', hours, 'Empty: for ever.')], what: 'Nothing was changed.',
    work: () => context.ask(operation, { [key]: who.value, ...(Number(hours.value) && { expire_at: Math.floor(context.now() / 1000 + Number(hours.value) * HOUR_S) }) }),
    done: () => `${verb}: ${who.value}.`, undo: operation === 'block_user' && (() => unblock(context, who.value, after)), after,
  });
}

export default {
  mount(root, context) {
    let list = null;
    const after = () => list.reload();
    const part = (kind, label, none) => () => {
      list = listing(context, {
        title: label, operation: 'bans', params: { kind }, rows: (result) => result.bans, keyOf: (row) => row.name, none,
        columns: [
          [kind === 'token' ? 'Token' : 'User', (row) => row.name], ['Until', (row) => until(row.until_s && row.until_s * 1000, context.now()), 2],
          ...(kind === 'user' ? [['Act', (row) => secondPress('Unblock', 'Press again: unblock 1 user', () => unblock(context, row.name, after)), 2]] : []),
        ],
      });
      return list;
    };
    const tabs = tabbed(context, TABS.map(([kind, label, none]) => [kind, label, part(kind, label, none)]));
    root.append(head('Bans', ACTS.map((act) => changeButton(`${act[0].replace('1', 'a')}…`, () => ban(context, act, after)))).root, ...tabs.root);
    return { update: tabs.draw, leave: tabs.leave };
  },
};
