// The registry with the official SDK. The same scenarios run on one node and on the nodes of a cluster. Each scenario gets: client(node,
import { PATIENCE, until } from './patience.mjs';
// options) → a Centrifuge connected to that node, api(node, method, body), token(claims), equal(a, b).

export const SCOPES = [
  { name: 'devices', allow_register: ['{user}/*', 'open-*'], allow_join: ['fleet-*'], allow_lookup_for_client: true, allow_send_for_client: true, allow_call_for_client: true, allow_watch_for_client: true },
  { name: 'floor', conflict_policy: 'reject', allow_register: ['*'], allow_for_anonymous: true },
  { name: 'strict', disconnect_losers: true, allow_register: ['*'] },
  { name: 'closed' },
];

let serial = 0;
const unique = (prefix) => `${prefix}${Date.now()}-${++serial}`;
const user = (token, sub, more = {}) => ({ token: token({ sub, ...more }) });

async function refused(promise, code, equal) {
  let found = 'nothing';
  try { await promise; } catch (error) { found = error.code; }
  equal(found, code);
}

const rpc = async (client, method, data) => (await client.rpc(method, data)).data;
const register = (client, name, more = {}) => rpc(client, 'registry.register', { scope: 'devices', name, ...more });
const lookup = async (api, node, name, scope = 'devices') => (await api(node, 'lookup', { scope, name })).result;

/** The scenarios that also run without a cluster. */
export const SHORT = ['a name is found on every node until it is given up', 'a group is called and sent to as one, and says who was silent', 'who watches a scope sees each change once'];

export const scenarios = {
  async 'a name is found on every node until it is given up'({ client, api, token, equal }) {
    const name = `ann/${unique('phone')}`;
    const ann = await client(0, user(token, 'ann'));
    const registered = await register(ann, name, { meta: { model: 'x' } });
    equal([registered.name, registered.meta], [name, { model: 'x' }]);
    for (const node of [0, 1]) await until(async () => (await lookup(api, node, name))?.client === registered.client, `node ${node}`);
    const bob = await client(1, user(token, 'bob'));
    equal((await rpc(bob, 'registry.lookup', { scope: 'devices', name })).meta, { model: 'x' });
    await refused(register(bob, name), 103, equal);
    await rpc(ann, 'registry.unregister', { scope: 'devices', name });
    await refused(rpc(ann, 'registry.unregister', { scope: 'devices', name }), 4002, equal);
    await until(async () => (await api(1, 'lookup', { scope: 'devices', name })).error?.code === 4002, 'gone');
  },

  async 'a name that another has is taken, and goes with its connection'({ client, api, token, equal }) {
    const name = unique('open-');
    const [ann, bob] = [await client(0, user(token, 'ann')), await client(1, user(token, 'bob'))];
    await register(ann, name);
    await until(async () => await lookup(api, 1, name), 'node 1 to know');
    await refused(register(bob, name), 4001, equal);
    ann.disconnect();
    await until(async () => !(await lookup(api, 1, name)), 'the name to be free');
    equal((await register(bob, name)).name, name);
  },

  async 'a device that comes back takes its name over and the old connection is told'({ client, api, token, equal }) {
    const name = unique('open-');
    const [old, fresh] = [await client(0, user(token, 'ann')), await client(1, user(token, 'ann'))];
    const told = [];
    old.on('message', (event) => told.push(event.data));
    await register(old, name);
    await until(async () => await lookup(api, 1, name), 'node 1 to know');
    const taken = await register(fresh, name, { policy: 'newest' });
    await until(() => told.length === 1, 'the word to the loser');
    equal([told[0].lost.scope, told[0].lost.name, told[0].lost.client], ['devices', name, taken.client]);
    await until(async () => (await lookup(api, 0, name)).client === taken.client, 'node 0 to agree');
  },

  async 'names and groups of the token are there once it is connected'({ client, api, token, equal }) {
    const [name, group] = [unique('n-'), unique('g-')];
    const claims = { names: [{ scope: 'closed', name, meta: 1 }], groups: [{ scope: 'closed', group, meta: 2 }] };
    const ann = await client(0, user(token, 'ann', claims));
    equal((await lookup(api, 0, name, 'closed')).meta, 1);
    equal((await api(0, 'members', { scope: 'closed', group })).result.members[0].meta, 2);
    ann.disconnect();
    await until(async () => !(await lookup(api, 1, name, 'closed')), 'the name to go');
  },

  async 'clients may do nothing that is not allowed'({ client, token, equal }) {
    const ann = await client(0, user(token, 'ann'));
    await refused(rpc(ann, 'registry.register', { scope: 'closed', name: 'x' }), 103, equal);
    await refused(rpc(ann, 'registry.lookup', { scope: 'closed', name: 'x' }), 103, equal);
    await refused(rpc(ann, 'registry.lookup', { scope: 'nowhere', name: 'x' }), 4003, equal);
    await refused(rpc(ann, 'registry.register', { scope: 'devices', name: 'bob/phone' }), 103, equal);
    await refused(rpc(ann, 'registry.join', { scope: 'devices', group: 'other' }), 103, equal);
    await refused(rpc(ann, 'registry.dance', {}), 104, equal);
    await refused(rpc(ann, 'dance', {}), 108, equal);
    await refused(rpc(ann, 'registry.register', { scope: 'devices', name: `ann/${'x'.repeat(300)}` }), 107, equal);
    await refused(rpc(ann, 'registry.register', { scope: 'devices', name: 7 }), 107, equal);
    const granted = await client(0, user(token, 'ann', { register: { closed: ['mine-*'] } }));
    equal((await rpc(granted, 'registry.register', { scope: 'closed', name: unique('mine-') })).node.length > 0, true);
  },

  async 'anyone can send to a name from any node'({ client, api, token, equal }) {
    const name = unique('open-');
    const [ann, bob] = [await client(0, user(token, 'ann')), await client(1, user(token, 'bob'))];
    const messages = [];
    ann.on('message', (event) => messages.push(event.data));
    await register(ann, name);
    await until(async () => await lookup(api, 1, name), 'node 1 to know');
    equal(await rpc(bob, 'registry.send', { scope: 'devices', name, data: { hello: 1 } }), { sent: 1 });
    equal((await api(1, 'send', { scope: 'devices', name, data: { hello: 2 } })).result, { sent: 1 });
    await until(() => messages.length === 2, 'both messages');
    equal([messages[0].from.user, messages[0].to, messages[0].data], ['bob', name, { hello: 1 }]);
    equal([messages[1].from, messages[1].data], [{}, { hello: 2 }]);
    equal((await api(1, 'send', { scope: 'devices', name: unique('nobody'), data: 1 })).error.code, 4002);
  },

  async 'a call is answered by the client behind the name, or ends with a reason'({ client, api, token, equal }) {
    const name = unique('open-');
    const [ann, bob] = [await client(0, user(token, 'ann')), await client(1, user(token, 'bob'))];
    let isCalled = false;
    ann.on('message', async ({ data }) => {
      isCalled ||= data.data?.last === true;
      if (!data.call || data.data.mute) return;
      await ann.rpc('reply', data.data.fail ? { call: data.call, error: { code: 7 } } : { call: data.call, data: { double: data.data.n * 2 } });
    });
    await register(ann, name);
    await until(async () => await lookup(api, 1, name), 'node 1 to know');
    const call = (data, more = {}) => rpc(bob, 'registry.call', { scope: 'devices', name, data, ...more });
    equal(await call({ n: 21 }), { data: { double: 42 } });
    equal(await call({ fail: true }), { error: { code: 7 } });
    equal((await api(1, 'call', { scope: 'devices', name, data: { n: 4 } })).result, { data: { double: 8 } });
    equal((await api(0, 'call', { scope: 'devices', name, data: { n: 5 } })).result, { data: { double: 10 } });
    // short: the call must time out.
    await refused(call({ mute: true }, { timeout_ms: 200 }), 4005, equal);
    await refused(ann.rpc('reply', { call: 12345, data: 1 }), 4008, equal);
    const inFlight = call({ mute: true, last: true }, { timeout_ms: PATIENCE });
    await until(() => isCalled);
    ann.disconnect();
    await refused(inFlight, 4006, equal);
  },

  async 'a group is called and sent to as one, and says who was silent'({ client, api, token, equal }) {
    const group = unique('fleet-');
    const members = [];
    for (const [node, sub] of [[0, 'a'], [1, 'b'], [1, 'mute']]) {
      const member = await client(node, user(token, sub));
      member.heard = 0;
      member.on('message', ({ data }) => {
        member.heard += 1;
        if (data.call && sub !== 'mute') member.rpc('reply', { call: data.call, data: sub });
      });
      await rpc(member, 'registry.join', { scope: 'devices', group, meta: { sub } });
      members.push(member);
    }
    await rpc(members[0], 'registry.join', { scope: 'devices', group, meta: { sub: 'a', again: true } });
    for (const node of [0, 1]) await until(async () => (await api(node, 'members', { scope: 'devices', group })).result.count === 3, 'three members');
    await until(async () => (await api(1, 'members', { scope: 'devices', group })).result.members.some((m) => m.meta.again), 'the new metadata');
    equal((await api(0, 'send', { scope: 'devices', group, data: 1 })).result, { sent: 3 });
    await until(() => members.every((member) => member.heard === 1), 'all to hear');
    const { result } = await api(0, 'multi_call', { scope: 'devices', group, data: 1, timeout_ms: 5_000 });
    equal(result.replies.map((reply) => reply.data).sort(), ['a', 'b']);
    equal(result.silent.map((silent) => silent.error.code), [4005]);
    await rpc(members[1], 'registry.leave', { scope: 'devices', group });
    await refused(rpc(members[1], 'registry.leave', { scope: 'devices', group }), 4002, equal);
    await until(async () => (await api(0, 'members', { scope: 'devices', group })).result.count === 2, 'two members');
  },

  async 'who watches a scope sees each change once'({ client, token, equal }) {
    const name = unique('open-');
    const [watcher, ann] = [await client(1, user(token, 'bob')), await client(0, user(token, 'ann'))];
    const changes = [];
    const subscription = watcher.newSubscription('$registry:devices');
    subscription.on('publication', ({ data }) => data.changes.filter((c) => c.name === name).forEach((c) => changes.push([c.change, c.reason])));
    subscription.subscribe();
    await subscription.ready(PATIENCE);
    await register(ann, name);
    await register(ann, name, { meta: 1 });
    ann.disconnect();
    await until(() => changes.length >= 3, `three changes, have ${JSON.stringify(changes)}`);
    equal(changes, [['registered', 'normal'], ['updated', 'normal'], ['unregistered', 'closed']]);
  },

  async 'a backend registers for a client, wherever it is'({ client, api, token, equal }) {
    const name = unique('x');
    const ann = await client(1, user(token, 'ann'));
    const { client: id } = await register(ann, unique('open-'));
    equal((await api(0, 'register', { scope: 'closed', client: id, name, meta: { by: 'backend' } })).result.client, id);
    await until(async () => (await lookup(api, 0, name, 'closed'))?.meta.by === 'backend', 'both nodes to know');
    equal((await api(0, 'unregister', { scope: 'closed', client: id, name })).result, {});
    equal((await api(0, 'register', { scope: 'closed', client: '00000000-0000-4000-8000-000000000000', name })).error.code, 4002);
    for (const foreign of ['00000000-0000-4000-8000-000000000001', '00000000-0000-4000-8000-0001ffffffff', 'ffffffff-ffff-ffff-ffff-ffffffffffff']) {
      equal((await api(0, 'register', { scope: 'closed', client: foreign, name })).error.code, 4002);
    }
    equal((await api(0, 'register', { scope: 'closed', client: 'no id', name })).error.code, 107);
  },

  async 'metadata is replaced only as it was seen, and names are listed by pages'({ client, api, token, equal }) {
    const prefix = `ann/${unique('list')}-`;
    const ann = await client(0, user(token, 'ann'));
    for (let n = 0; n < 25; n++) await register(ann, `${prefix}${n}`);
    const { version } = await rpc(ann, 'registry.lookup', { scope: 'devices', name: `${prefix}0` });
    equal((await rpc(ann, 'registry.update_meta', { scope: 'devices', name: `${prefix}0`, meta: 1, version })).meta, 1);
    await refused(rpc(ann, 'registry.update_meta', { scope: 'devices', name: `${prefix}0`, meta: 2, version }), 4004, equal);
    await until(async () => {
      const names = new Set();
      let cursor = 0;
      do {
        const page = (await api(1, 'names', { scope: 'devices', prefix, limit: 10, cursor })).result;
        page.names.forEach((entry) => names.add(entry.name));
        cursor = page.cursor ?? 0;
      } while (cursor);
      return names.size === 25;
    }, 'all 25 names on node 1');
    equal((await api(1, 'count', { scope: 'devices' })).result.names >= 25, true);
  },

  async 'a loser can be disconnected'({ client, token, equal }) {
    const name = unique('s');
    const [old, fresh] = [await client(0, user(token, 'ann')), await client(0, user(token, 'ann'))];
    const codes = [];
    old.on('disconnected', (event) => codes.push(event.code));
    await rpc(old, 'registry.register', { scope: 'strict', name });
    await rpc(fresh, 'registry.register', { scope: 'strict', name, policy: 'newest' });
    await until(() => codes.length === 1, 'the disconnect');
    equal(codes, [3503]);
  },

  async 'the floor is held by one, and free when it goes'({ client, token, equal }) {
    const name = unique('room');
    const [ann, bob] = [await client(0, user(token, 'ann')), await client(0, {})];
    await rpc(ann, 'registry.register', { scope: 'floor', name });
    await refused(rpc(bob, 'registry.register', { scope: 'floor', name, policy: 'newest' }), 4001, equal);
    ann.disconnect();
    await until(() => rpc(bob, 'registry.register', { scope: 'floor', name }), 'the floor');
  },
};
