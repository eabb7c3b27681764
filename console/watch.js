// Followed read operations: pushed over the WebSocket, or polled without one.
import { ask, Failure } from './ask.js';
import { follow } from './live.js';
import { link, now } from './state.js';

const POLL_MS = 2000;

/** Follows a read operation after its first answer; `sink` is `{show(result, atMs), fail(failure)}`. */
export function watch(operation, params, sink) {
  const leaving = new AbortController();
  let isPushed = true;
  let pushedAt = 0;
  const once = async () => {
    const began = Date.now();
    try {
      const result = await ask(operation, params, { signal: leaving.signal });
      sink.show(result, result.at_ms ?? now());
    } catch (failure) {
      // A result that was pushed meanwhile replaces the missing answer.
      if (pushedAt < began) sink.fail(failure);
    }
  };
  const end = follow(`live:${operation}`, params ?? {}, {
    data(pushed) {
      pushedAt = Date.now();
      if (pushed.error) sink.fail(new Failure('refused', pushed.error));
      else sink.show(pushed.result, pushed.at_ms);
    },
    failed: () => { isPushed = false; },
    back: once,
  });
  const polls = setInterval(() => {
    if (!document.hidden && (link.get().kind === 'polling' || (link.get().kind === 'live' && !isPushed))) once();
  }, POLL_MS);
  return () => {
    leaving.abort();
    clearInterval(polls);
    end();
  };
}
