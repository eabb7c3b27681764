// The backend of the chat: log-in, tokens, page and hooks. Node.js 20 or newer, no packages.
import { createHmac, randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';

const secret = process.env.TOUCHLINE_CLIENT_TOKEN_HMAC_SECRET_KEY;
if (!secret) throw new Error('TOUCHLINE_CLIENT_TOKEN_HMAC_SECRET_KEY is not set');

const names = new Map(); // user id → name
const sessions = new Map(); // cookie → user id
const members = new Map([['room:lobby', 'everybody'], ['room:team', ['ada', 'bob']]]);

/** The members of `room:x` are also the members of `typing:x`. */
function isMember(user, channel) {
  const users = members.get(channel.replace('typing:', 'room:'));
  return users === 'everybody' || Boolean(users?.includes(user));
}

/** A token that says for ten minutes who the user is. The page asks for the next one by itself. */
function tokenFor(user) {
  const part = (value) => Buffer.from(JSON.stringify(value)).toString('base64url');
  const claims = { sub: user, info: { name: names.get(user) }, exp: Math.floor(Date.now() / 1000) + 600 };
  const signed = `${part({ alg: 'HS256', typ: 'JWT' })}.${part(claims)}`;
  return `${signed}.${createHmac('sha256', secret).update(signed).digest('base64url')}`;
}

// Touchline calls these addresses. `user` is the user of the client's token.
const hooks = {
  'POST /subscribe'(request, body) {
    const { user, channel } = JSON.parse(body);
    return json(isMember(user, channel) ? { result: {} } : refusal(403, 'you are not a member of this room'));
  },

  'POST /publish'(request, body) {
    const { user, channel, data } = JSON.parse(body);
    const text = typeof data?.text === 'string' ? data.text.trim() : '';
    const name = names.get(user) ?? user;
    if (!isMember(user, channel)) return json(refusal(403, 'you are not a member of this room'));
    if (channel.startsWith('typing:')) return json({ result: { data: { name } } });
    if (text === '') return json(refusal(400, 'the text is empty'));
    if (text.length > 200) return json(refusal(400, 'the text is longer than 200 characters'));
    return json({ result: { data: { name, text } } });
  },
};

// Browsers call these addresses.
const pages = {
  'GET /': () => file('index.html', 'text/html; charset=utf-8'),
  'GET /centrifuge.js': () => file('centrifuge.js', 'text/javascript; charset=utf-8'),

  // A toy: a person is the user whose name the person types. Your application checks a password here.
  'POST /login'(request, body) {
    const name = (new URLSearchParams(body).get('name') ?? '').trim().slice(0, 30);
    if (name === '') return [400, { 'Content-Type': 'text/plain' }, 'a name is needed'];
    const [user, cookie] = [name.toLowerCase(), randomUUID()];
    names.set(user, name);
    sessions.set(cookie, user);
    return [303, { Location: '/', 'Set-Cookie': `session=${cookie}; HttpOnly; SameSite=Lax` }, ''];
  },

  'GET /token'(request) {
    const cookie = /(?:^|; *)session=([^;]*)/.exec(request.headers.cookie ?? '')?.[1];
    const user = sessions.get(cookie);
    if (!user) return [401, { 'Content-Type': 'text/plain' }, 'log in first'];
    return [200, { 'Content-Type': 'text/plain', 'Cache-Control': 'no-store' }, tokenFor(user)];
  },
};

const refusal = (code, message) => ({ error: { code, message } });
const json = (answer) => [200, { 'Content-Type': 'application/json' }, JSON.stringify(answer)];
const file = (name, type) => [200, { 'Content-Type': type }, readFileSync(name)];

function serve(routes, port, ready) {
  const server = createServer((request, response) => {
    const route = `${request.method} ${request.url.split('?')[0]}`;
    let body = '';
    request.setEncoding('utf8').on('data', (part) => (body += part)).on('end', () => {
      let answer = [404, {}, ''];
      try {
        if (Object.hasOwn(routes, route)) answer = routes[route](request, body);
      } catch (error) {
        console.error(error);
        answer = [500, {}, ''];
      }
      response.writeHead(answer[0], answer[1]).end(answer[2]);
    });
  });
  server.keepAliveTimeout = 30_000; // Touchline keeps its connections to the hooks.
  server.listen(port, '127.0.0.1', ready);
}

// The hooks have a port of their own: Touchline calls them, and no browser may.
serve(hooks, 3001, () => serve(pages, 3000, () => console.log('the chat is at http://localhost:3000')));
