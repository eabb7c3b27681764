// Scenarios for the official SDK. The same scenarios run in Node and in Chromium. Each scenario gets: client(options) → a Centrifuge,
import { PATIENCE, until } from './patience.mjs';
// token(claims), api(method, body), equal(a, b). It throws if it fails.

const within = (promise, what) =>
  // waits: no longer than the patience.
  Promise.race([promise, new Promise((_, reject) => setTimeout(() => reject(new Error(`waited too long for ${what}`)), PATIENCE))]);

/** Collects events, and waits for the nth event. */
function collect(emitter, name) {
  const seen = [];
  const waiting = [];
  emitter.on(name, (event) => {
    seen.push(event);
    for (const [n, resolve] of waiting) if (seen.length >= n) resolve(seen);
  });
  seen.count = (n) => within(new Promise((resolve) => (seen.length >= n ? resolve(seen) : waiting.push([n, resolve]))), `${n} × ${name}, have ${seen.length}`);
  return seen;
}

const now = () => Math.floor(Date.now() / 1000);
let serial = 0;
const page = Math.random().toString(36).slice(2);
/** A name that no other process or page uses. */
const unique = (prefix) => `${prefix}${page}-${++serial}`;

/** The scenarios that run over every transport. All others run over one: the server decides them before a transport is involved. */
export const SHORT = [
  'connects, subscribes and sees what is published', 'recovers exactly what it missed', 'tells presence, joins and leaves', 'reads history forward, backward and from a position',
  'gets error 108 for an rpc that nobody answers', 'refreshes its token in time', 'follows a state by its changes',
];

export const scenarios = {
  async 'connects, subscribes and sees what is published'({ client, api, equal }) {
    const c = client();
    const channel = unique('news');
    const subscription = c.newSubscription(channel);
    const publications = collect(subscription, 'publication');
    subscription.subscribe();
    c.connect();
    await within(subscription.ready(), 'subscribed');
    equal((await api('publish', { channel, data: { n: 1 }, tags: { kind: 'goal' } })).result, {});
    await publications.count(1);
    equal(publications[0].data, { n: 1 });
    equal(publications[0].tags, { kind: 'goal' });
  },

  async 'publishes with its own name on it'({ client, token, equal }) {
    const channel = unique('room:');
    const c = client({ token: await token({ sub: 'ann', info: { name: 'Ann' } }) });
    const subscription = c.newSubscription(channel);
    const publications = collect(subscription, 'publication');
    subscription.subscribe();
    c.connect();
    await within(subscription.ready(), 'subscribed');
    await subscription.publish('hello');
    await publications.count(1);
    equal([publications[0].data, publications[0].info.user, publications[0].info.connInfo], ['hello', 'ann', { name: 'Ann' }]);
  },

  async 'tells presence, joins and leaves'({ client, token, equal }) {
    const channel = unique('room:');
    const first = client({ token: await token({ sub: 'first' }) });
    const subscription = first.newSubscription(channel);
    const joins = collect(subscription, 'join');
    const leaves = collect(subscription, 'leave');
    subscription.subscribe();
    first.connect();
    await within(subscription.ready(), 'subscribed');
    const second = client({ token: await token({ sub: 'second' }) });
    const other = second.newSubscription(channel);
    other.subscribe();
    second.connect();
    await within(other.ready(), 'subscribed');
    await joins.count(2);
    equal(joins.map((join) => join.info.user), ['first', 'second']);
    equal(await subscription.presenceStats(), { numClients: 2, numUsers: 2 });
    equal(Object.values((await subscription.presence()).clients).map((info) => info.user).sort(), ['first', 'second']);
    second.disconnect();
    await leaves.count(1);
    equal(leaves[0].info.user, 'second');
    equal(await subscription.presenceStats(), { numClients: 1, numUsers: 1 });
  },

  async 'reads history forward, backward and from a position'({ client, api, equal }) {
    const channel = unique('history:');
    for (let n = 1; n <= 5; n += 1) await api('publish', { channel, data: n });
    const c = client();
    const subscription = c.newSubscription(channel);
    subscription.subscribe();
    c.connect();
    await within(subscription.ready(), 'subscribed');
    const data = (result) => result.publications.map((publication) => publication.data);
    equal(data(await subscription.history({ limit: 2 })), [1, 2]);
    equal(data(await subscription.history({ limit: 2, reverse: true })), [5, 4]);
    const top = await subscription.history({ limit: 0 });
    equal([top.offset, data(top)], [5, []]);
    equal(data(await subscription.history({ limit: 10, since: { offset: 3, epoch: top.epoch } })), [4, 5]);
    let code = 0;
    await subscription.history({ limit: 10, since: { offset: 3, epoch: 'other' } }).catch((error) => (code = error.code));
    equal(code, 112);
  },

  async 'recovers exactly what it missed'({ client, token, api, equal }) {
    const channel = unique('history:');
    const user = unique('rec');
    const c = client({ token: await token({ sub: user }), minReconnectDelay: 300 });
    const subscription = c.newSubscription(channel);
    const publications = collect(subscription, 'publication');
    const subscribed = collect(subscription, 'subscribed');
    subscription.subscribe();
    c.connect();
    await subscribed.count(1);
    await api('publish', { channel, data: 1 });
    await publications.count(1);
    const connecting = collect(c, 'connecting');
    await api('disconnect', { user, disconnect: { code: 3000, reason: 'come back' } });
    await connecting.count(1);
    for (let n = 2; n <= 6; n += 1) await api('publish', { channel, data: n });
    await subscribed.count(2);
    equal([subscribed[1].wasRecovering, subscribed[1].recovered], [true, true]);
    await api('publish', { channel, data: 7 });
    await publications.count(7);
    equal(publications.map((publication) => publication.data), [1, 2, 3, 4, 5, 6, 7]);
    equal(publications.map((publication) => publication.offset), [1, 2, 3, 4, 5, 6, 7]);
  },

  async 'is told when what it missed is gone'({ client, api, equal }) {
    const channel = unique('history:');
    const c = client();
    const subscription = c.newSubscription(channel);
    const subscribed = collect(subscription, 'subscribed');
    subscription.subscribe();
    c.connect();
    await subscribed.count(1);
    c.disconnect();
    await api('publish', { channel, data: 1 });
    await api('history_remove', { channel });
    c.connect();
    await subscribed.count(2);
    equal([subscribed[1].wasRecovering, subscribed[1].recovered], [true, false]);
  },

  async 'gets the latest state from a cache channel'({ client, api, equal }) {
    const channel = unique('cache:');
    await api('publish', { channel, data: 'old' });
    await api('publish', { channel, data: 'new' });
    const c = client();
    const subscription = c.newSubscription(channel, { since: { offset: 0, epoch: '' } });
    const publications = collect(subscription, 'publication');
    subscription.subscribe();
    c.connect();
    await publications.count(1);
    equal(publications.map((publication) => publication.data), ['new']);
  },

  async 'has the server-side subscriptions of its token'({ client, token, api, equal }) {
    const one = unique('room:');
    const two = unique('history:');
    const c = client({ token: await token({ sub: 'ann', channels: [one], subs: { [two]: { data: { from: 'token' } } } }) });
    const subscribed = collect(c, 'subscribed');
    const publications = collect(c, 'publication');
    c.connect();
    await subscribed.count(2);
    equal(subscribed.map((event) => event.channel).sort(), [one, two].sort());
    equal(subscribed.find((event) => event.channel === two).data, { from: 'token' });
    await api('publish', { channel: one, data: 1 });
    await api('publish', { channel: two, data: 2 });
    await publications.count(2);
    equal(publications.map((event) => event.data).sort(), [1, 2]);
  },

  async 'recovers server-side subscriptions too'({ client, token, api, equal }) {
    const channel = unique('history:');
    const user = unique('side');
    const c = client({ token: await token({ sub: user, channels: [channel] }), minReconnectDelay: 300 });
    const subscribed = collect(c, 'subscribed');
    const publications = collect(c, 'publication');
    c.connect();
    await subscribed.count(1);
    await api('publish', { channel, data: 1 });
    await publications.count(1);
    const connecting = collect(c, 'connecting');
    await api('disconnect', { user, disconnect: { code: 3000, reason: 'come back' } });
    await connecting.count(1);
    await api('publish', { channel, data: 2 });
    await subscribed.count(2);
    equal(subscribed[1].recovered, true);
    await publications.count(2);
    equal(publications.map((event) => event.data), [1, 2]);
  },

  async 'is subscribed and unsubscribed by the server API'({ client, token, api, equal }) {
    const channel = unique('news');
    const user = unique('api');
    const c = client({ token: await token({ sub: user }) });
    const subscribed = collect(c, 'subscribed');
    const unsubscribed = collect(c, 'unsubscribed');
    const publications = collect(c, 'publication');
    c.connect();
    await within(c.ready(), 'connected');
    await api('subscribe', { user, channel, data: { welcome: true } });
    await subscribed.count(1);
    equal([subscribed[0].channel, subscribed[0].data], [channel, { welcome: true }]);
    await api('publish', { channel, data: 1 });
    await publications.count(1);
    await api('unsubscribe', { user, channel });
    await unsubscribed.count(1);
    equal((await api('channels', { pattern: channel })).result.channels, {});
  },

  async 'refreshes its token in time'({ client, token, equal }) {
    let asked = 0;
    const c = client({ token: await token({ sub: 'ann', exp: now() + 5 }), getToken: async () => { const fresh = await token({ sub: 'ann', exp: now() + 3600 }); asked += 1; return fresh; } });
    const connected = collect(c, 'connected');
    c.connect();
    await connected.count(1);
    await until(() => asked > 0);
    // This answer comes after the answer about the token. A client that the server disconnects would also ask for a token, and reconnect.
    await c.rpc('nothing', {}).catch(() => {});
    equal([c.state, connected.length], ['connected', 1]);
  },

  async 'gets a new token when the old one has expired'({ client, token, equal }) {
    let asked = 0;
    const c = client({ token: await token({ sub: 'ann', exp: now() - 10 }), getToken: () => { asked += 1; return token({ sub: 'ann' }); }, minReconnectDelay: 10 });
    c.connect();
    await within(c.ready(), 'connected');
    equal([asked, c.state], [1, 'connected']);
  },

  async 'needs a subscription token for a closed channel, and refreshes it'({ client, token, equal }) {
    const channel = unique('$closed:');
    const c = client({ token: await token({ sub: 'ann' }) });
    let asked = 0;
    const getToken = async () => { const fresh = await token({ sub: 'ann', channel, exp: now() + (asked === 0 ? 5 : 3600) }); asked += 1; return fresh; };
    const refused = c.newSubscription(unique('closed:'));
    const gone = collect(refused, 'unsubscribed');
    refused.subscribe();
    const subscription = c.newSubscription(channel, { getToken });
    const subscribing = collect(subscription, 'subscribing');
    subscription.subscribe();
    c.connect();
    await gone.count(1);
    equal(gone[0].code, 103);
    await within(subscription.ready(), 'subscribed');
    await until(() => asked >= 2);
    await c.rpc('nothing', {}).catch(() => {});
    equal([subscription.state, subscribing.length], ['subscribed', 1]);
  },

  async 'opens a user-limited channel to its users only'({ client, token, equal }) {
    const channel = `dialog:${unique('d')}#ann,bob`;
    const ann = client({ token: await token({ sub: 'ann' }) });
    const eve = client({ token: await token({ sub: 'eve' }) });
    const mine = ann.newSubscription(channel);
    const theirs = eve.newSubscription(channel);
    const gone = collect(theirs, 'unsubscribed');
    mine.subscribe();
    theirs.subscribe();
    ann.connect();
    eve.connect();
    await within(mine.ready(), 'subscribed');
    await gone.count(1);
    equal(gone[0].code, 103);
  },

  async 'ends for good on a final code and comes back on any other'({ client, token, api, equal }) {
    const user = unique('codes');
    const c = client({ token: await token({ sub: user }), minReconnectDelay: 10 });
    const connected = collect(c, 'connected');
    const disconnected = collect(c, 'disconnected');
    c.connect();
    await connected.count(1);
    await api('disconnect', { user, disconnect: { code: 4100, reason: 'elsewhere' } });
    await connected.count(2);
    await api('disconnect', { user });
    await disconnected.count(1);
    equal([disconnected[0].code, disconnected[0].reason], [3503, 'force disconnect']);
  },

  async 'is refused with a forged token'({ client, token, equal }) {
    const c = client({ token: `${await token({ sub: 'ann' })}x` });
    const disconnected = collect(c, 'disconnected');
    c.connect();
    await disconnected.count(1);
    equal([disconnected[0].code, disconnected[0].reason], [3500, 'invalid token']);
  },

  async 'gets error 108 for an rpc that nobody answers'({ client, equal }) {
    const c = client();
    c.connect();
    await within(c.ready(), 'connected');
    let code = 0;
    await c.rpc('nothing', {}).catch((error) => (code = error.code));
    equal(code, 108);
  },

  async 'unsubscribes and subscribes again without waiting'({ client, api, equal }) {
    const channel = unique('news');
    const c = client();
    const subscription = c.newSubscription(channel);
    const publications = collect(subscription, 'publication');
    subscription.subscribe();
    c.connect();
    await within(subscription.ready(), 'subscribed');
    subscription.unsubscribe();
    subscription.subscribe();
    await within(subscription.ready(), 'subscribed again');
    for (const data of [1, 2]) await api('publish', { channel, data });
    await publications.count(2);
    equal(publications.map((publication) => publication.data), [1, 2]);
  },

  async 'follows a state by its changes'({ client, api, equal }) {
    const channel = unique('state:');
    const state = (goal) => ({ teams: ['Roma', 'Łódź'], stadium: 'Olimpico', minutes: Array.from({ length: 40 }, (_, n) => n * 3), goals: [0, goal] });
    const c = client({ minReconnectDelay: 10 });
    const subscription = c.newSubscription(channel, { delta: 'fossil' });
    const publications = collect(subscription, 'publication');
    subscription.subscribe();
    c.connect();
    await within(subscription.ready(), 'subscribed');
    for (let goal = 1; goal <= 3; goal += 1) await api('publish', { channel, data: state(goal) });
    await publications.count(3);
    c.disconnect();
    for (let goal = 4; goal <= 6; goal += 1) await api('publish', { channel, data: state(goal) });
    c.connect();
    await publications.count(6);
    await api('publish', { channel, data: 'another kind of thing' });
    await api('publish', { channel, data: state(8) });
    await publications.count(8);
    equal(publications.map((p) => p.data), [1, 2, 3, 4, 5, 6].map(state).concat(['another kind of thing', state(8)]));
    const { numDeltaPayloads, bytesReceived, bytesDecoded } = subscription.deltaStats();
    equal([numDeltaPayloads, bytesReceived < bytesDecoded / 2], [4, true]);
  },

  async 'is left out of a publication, and recovers it'({ client, api, equal }) {
    const channel = unique('state:');
    const state = (goal) => ({ stadium: 'Olimpico', minutes: Array.from({ length: 40 }, (_, n) => n * 3), goals: [0, goal] });
    const c = client({ minReconnectDelay: 10 });
    let id;
    c.on('connected', (context) => { id = context.client; });
    const subscription = c.newSubscription(channel, { delta: 'fossil' });
    const publications = collect(subscription, 'publication');
    const publish = (goal, isLeftOut) => api('publish', { channel, data: state(goal), ...(isLeftOut && { exclude_client: id }) });
    subscription.subscribe();
    c.connect();
    await within(subscription.ready(), 'subscribed');
    for (let goal = 1; goal <= 5; goal += 1) await publish(goal, goal === 3);
    await publications.count(4);
    await publish(6, true);
    c.disconnect();
    c.connect();
    await publications.count(5);
    await publish(7, false);
    await publications.count(6);
    equal(publications.map((p) => p.data), [1, 2, 4, 5, 6, 7].map(state));
    // The publication after the exclusion arrives whole, and so does the first recovered publication.
    equal(subscription.deltaStats().numDeltaPayloads, 3);
  },

  async 'gets an answer that is larger than its queue may be'({ client, api, equal }) {
    const channel = unique('history:');
    const data = (n) => `${n}`.repeat(60_000);
    for (let n = 1; n <= 9; n += 1) for (let again = 0; again < 4; again += 1) await api('publish', { channel, data: data(n) });
    const c = client();
    const subscription = c.newSubscription(channel);
    const disconnected = collect(c, 'disconnected');
    subscription.subscribe();
    c.connect();
    await within(subscription.ready(), 'subscribed');
    const { publications } = await subscription.history({ limit: 100 });
    equal([publications.length, publications.every((p, i) => p.data === data(1 + Math.floor(i / 4))), disconnected.length], [36, true, 0]);
  },

  async 'gets what fits its filter, live and when it comes back'({ client, api, equal }) {
    const channel = unique('tagged:');
    const c = client({ minReconnectDelay: 10 });
    const tagsFilter = { op: 'and', nodes: [{ key: 'league', cmp: 'in', vals: ['a', 'b'] }, { key: 'minute', cmp: 'gte', val: '45' }] };
    const subscription = c.newSubscription(channel, { tagsFilter });
    const publications = collect(subscription, 'publication');
    subscription.subscribe();
    c.connect();
    await within(subscription.ready(), 'subscribed');
    const publish = async (from) => {
      let data = from;
      for (const league of ['a', 'c']) for (const minute of ['9', '45', '90']) await api('publish', { channel, data: data++, tags: { league, minute } });
    };
    await publish(0);
    await publications.count(2);
    c.disconnect();
    await publish(10);
    c.connect();
    await publications.count(4);
    equal(publications.map((p) => p.data), [1, 2, 11, 12]);
  },
};
