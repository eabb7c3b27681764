// The backend of a small chat: it answers the six hooks of the server. Node.js 20 or newer, no packages.
// Usage: node backend.mjs [PORT] [SECONDS]: after so many seconds the server asks again about a connection or a subscription.
import { createServer } from 'node:http';

const port = Number(process.argv[2] ?? 3001);
const lifetime = Number(process.argv[3] ?? 300);

const sessions = new Map([['ada-secret', 'ada'], ['bob-secret', 'bob'], ['cid-secret', 'cid']]);
const names = { ada: 'Ada', bob: 'Bob', cid: 'Cid' };
const members = { 'chat:team': new Set(['ada', 'bob', 'cid']), 'chat:board': new Set(['ada']) };
const prices = new Map([['tea', '2.40'], ['cake', '3.10']]);

const allow = (result) => ({ result });
const refuse = (code, message) => ({ error: { code, message } });
const end = (code, reason) => ({ disconnect: { code, reason } });
const soon = () => Math.floor(Date.now() / 1000) + lifetime;
const isMember = (user, channel) => Object.hasOwn(members, channel) && members[channel].has(user);

/** The secret of the session: a cookie of the client's request, or what a client without cookies has sent when it connected. */
function secretOf(headers) {
  const cookie = /(?:^|; *)sid=([^;]*)/.exec(headers.cookie ?? '');
  return cookie ? cookie[1] : /^Bearer (.*)$/.exec(headers.authorization ?? '')?.[1];
}

const hooks = {
  '/connect'(question, headers) {
    const user = sessions.get(secretOf(headers));
    if (!user) return refuse(401, 'log in first');
    const rooms = Object.keys(members).filter((channel) => isMember(user, channel));
    return allow({ user, expire_at: soon(), info: { name: names[user] }, data: { rooms }, channels: ['news'] });
  },

  '/refresh'(question, headers) {
    return allow(sessions.has(secretOf(headers)) ? { expire_at: soon() } : { expired: true });
  },

  '/subscribe'({ user, channel }) {
    return isMember(user, channel) ? allow({ expire_at: soon() }) : refuse(403, 'you are not a member');
  },

  '/sub_refresh'({ user, channel }) {
    return allow(isMember(user, channel) ? { expire_at: soon() } : { expired: true });
  },

  '/publish'({ user, channel, data }) {
    // The hook alone decides who may publish: the node checks no other right of the publisher.
    if (!isMember(user, channel)) return refuse(403, 'you are not a member');
    if (typeof data?.text !== 'string' || data.text === '') return refuse(400, 'expected a text');
    if (/\bspam\b/i.test(data.text)) return refuse(422, 'mind your words');
    return allow({ data: { text: data.text, author: names[user] } });
  },

  '/rpc'({ user, method, data }, headers) {
    switch (method) {
      case 'price': return prices.has(data?.of) ? allow({ data: { price: prices.get(data.of) } }) : refuse(404, 'not sold here');
      case 'leave': {
        if (!isMember(user, data?.channel)) return refuse(403, 'you are not a member');
        members[data.channel].delete(user);
        return allow({});
      }
      case 'logout': {
        sessions.delete(secretOf(headers));
        return end(4501, 'logged out'); // 4500 to 4999: the client does not come back.
      }
      case 'reload': return end(4100, 'something has changed'); // 4000 to 4499: the client comes back.
      default: return refuse(404, 'no such method');
    }
  },
};

const server = createServer((request, response) => {
  const answer = (status, body) => response.writeHead(status, { 'Content-Type': 'application/json' }).end(JSON.stringify(body));
  const hook = Object.hasOwn(hooks, request.url) && request.method === 'POST' && hooks[request.url];
  let body = '';
  request.setEncoding('utf8').on('data', (part) => (body += part)).on('end', () => {
    if (!hook) return answer(404, {});
    try {
      answer(200, hook(JSON.parse(body), request.headers));
    } catch (error) {
      console.error(error);
      answer(500, {}); // A fault is not a refusal: the client gets error 100, and may try again.
    }
  });
});
// The server keeps its connections for 4 s: they must not be closed before.
server.keepAliveTimeout = 30_000;
// Only the server may ask: any program that reaches this port can speak for any user.
server.listen(port, '127.0.0.1', () => console.log(`hooks are answered on port ${port}`));
