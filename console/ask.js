// Operations: one request, one answer.
import { HEADERS, prefix, signedOut } from './session.js';
import { link } from './state.js';

const GIVE_UP_MS = 5000;
const AT_ONCE_MAX = 6;

/** Why an operation has no result. `kind`: refused, late, cut, left, signed out, server. */
export class Failure extends Error {
  constructor(kind, fields = {}) {
    super(fields.message ?? kind);
    Object.assign(this, { kind, code: 0, status: 0, requestId: '', field: '', detail: undefined }, fields);
  }
}

// These fields contain data of users, whose numbers must not pass through a double. Other answers are parsed faster.
const PAYLOAD = /"(data|payload|meta|event|conn_info|chan_info|info|value|header)":/;
const parsed = async (text) => (PAYLOAD.test(text) ? (await import('./read.js')).read(text) : JSON.parse(text));

let underWay = 0;
const waiting = [];

async function turn(work) {
  if (underWay >= AT_ONCE_MAX) await new Promise((go) => waiting.push(go));
  underWay += 1;
  try {
    return await work();
  } finally {
    underWay -= 1;
    waiting.shift()?.();
  }
}

/** Sends `body` (JSON text) unchanged, and returns the text of the answer: for the API page. */
export function send(operation, body, { signal, giveUpMs = GIVE_UP_MS } = {}) {
  return turn(async () => {
    const late = AbortSignal.timeout(giveUpMs);
    const stop = new AbortController();
    for (const one of [late, signal]) one?.addEventListener('abort', () => stop.abort());
    if (signal?.aborted) stop.abort();
    const began = performance.now();
    try {
      const answer = await fetch(`${prefix}/op/${operation}`, {
        method: 'POST', headers: HEADERS, body, signal: stop.signal, credentials: 'same-origin',
      });
      const text = await answer.text();
      link.set({ heardAt: Date.now() });
      if (answer.status === 401) signedOut();
      const requestId = answer.headers.get('X-Request-ID') ?? '';
      return { status: answer.status, text, requestId, ms: performance.now() - began };
    } catch (error) {
      if (signal?.aborted) throw new Failure('left');
      if (late.aborted) throw new Failure('late', { ms: giveUpMs });
      link.set({ kind: 'cut' });
      throw new Failure('cut', { message: error.message });
    }
  });
}

export const ask = (operation, params = {}, options = {}) => operate(operation, JSON.stringify(params), options);

/** As `ask`, with the body as JSON text, so that numbers in the data stay as they were typed. */
export async function operate(operation, body, options = {}) {
  const { status, text, requestId } = await send(operation, body, options);
  if (status === 401) throw new Failure('signed out', { status });
  let answer;
  try {
    answer = await parsed(text);
  } catch {
    throw new Failure('server', { status, requestId });
  }
  if (answer?.error) throw new Failure('refused', { ...answer.error, status, requestId });
  if (status >= 400 || answer?.result === undefined) throw new Failure('server', { status, requestId });
  return answer.result;
}

let description = null;
export async function openapi() {
  if (description) return description;
  const answer = await fetch(`${prefix}/op-openapi.json`, { headers: HEADERS, credentials: 'same-origin' });
  if (!answer.ok) throw new Failure('server', { status: answer.status });
  description = await answer.json();
  return description;
}
