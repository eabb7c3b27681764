// Signing in and out, and the token of the live connection.
import { session as current, setServerTime } from './state.js';

/** `/admin`: the part of this module's address before `/assets/<hash>/`. */
export const prefix = new URL('.', import.meta.url).pathname.replace(/\/(assets\/[^/]+\/)?$/, '');
export const HEADERS = { 'Content-Type': 'application/json', 'X-Touchline-Console': '1' };

let onSignedOut = () => {};
export const whenSignedOut = (listener) => { onSignedOut = listener; };

/** Tells the page that an answer was 401. */
export function signedOut() {
  current.set({ signed_in: false, role: null });
  onSignedOut();
}

async function request(path, method, fields) {
  const answer = await fetch(`${prefix}/${path}`, { method, headers: HEADERS, body: fields && JSON.stringify(fields), cache: 'no-store' });
  const body = await answer.json().catch(() => ({}));
  return { status: answer.status, body };
}

function take(body) {
  if (body.now_ms) setServerTime(body.now_ms);
  // Without a password each person who can reach the port is an operator.
  const session = body.insecure ? { ...body, role: body.role ?? 'operator' } : body;
  current.set(session);
  return session;
}

/** The body of a good answer, or null when signed out; throws if the node gives another answer. */
async function good(path, method, fields) {
  const { status, body } = await request(path, method, fields);
  if (status === 401) signedOut();
  else if (status !== 200) throw new TypeError(`the node answered ${status}`);
  return status === 200 ? body : null;
}

export const look = async () => take((await good('session', 'GET')) ?? {});

export async function login(password) {
  const { status, body } = await request('login', 'POST', { password });
  return status === 200 ? take(body) : { error: body.error ?? { code: 0, message: `the node answered ${status}` } };
}

export async function logout() {
  await request('logout', 'POST', {});
  signedOut();
}

/** `{token, ttl}`, or null when signed out. */
export const token = () => good('token', 'POST', {});
