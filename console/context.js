// The context of a page: everything that the page starts ends when the user leaves it.
import { ask, operate } from './ask.js';
import { again, go, here, href } from './route.js';
import { setTitle } from './shell.js';
import { learnNodes, link, nodeName, now } from './state.js';
import { failure, PAGES } from './words.js';

export function contextOf({ name, params }, enter) {
  const leaving = new AbortController();
  const ends = [];
  /** Starts something that ends with the page, or earlier when the returned function is called. */
  const during = (begin) => {
    let end = null;
    let over = false;
    const stop = () => {
      over = true;
      end?.();
    };
    ends.push(stop);
    begin().then((how) => {
      end = how;
      if (over) end();
    });
    return stop;
  };
  const context = {
    name, params, now, learnNodes, nodeName, href, enter,
    signal: leaving.signal,
    ask: (operation, fields, options) => ask(operation, fields, { signal: leaving.signal, ...options }),
    send: (operation, body, options) => operate(operation, body, { signal: leaving.signal, ...options }),
    /** Calls a read operation, then follows it: `sink` is `{show(result, atMs), fail(failure)}`. */
    watch: (operation, fields, sink) => during(async () => {
      await context.ask(operation, fields).then((result) => sink.show(result, result.at_ms ?? now()), sink.fail);
      return (await import('./watch.js')).watch(operation, fields, sink);
    }),
    /** Follows the frames of a channel, a connection or a user: `target` is `{channel}`, `{client}` or `{user}`. */
    trace: (target, sink) => during(async () => (await import('./live.js')).follow('trace', target, sink)),
    /** Keeps a panel filled: `draw(result, atMs)` puts the answer into its body. */
    fill(panel, operation, fields, draw, what) {
      const show = (result, at) => {
        panel.ready(at, result.missing_nodes);
        draw(result, at);
      };
      const fail = (error) => panel.fail(error, () => context.ask(operation, fields).then((result) => show(result, now()), fail), what);
      return context.watch(operation, fields, { show, fail });
    },
    socket(reader) {
      const tell = ({ kind }) => (kind === 'live' || kind === 'polling') && reader(kind === 'live');
      ends.push(link.on(tell));
      tell(link.get());
    },
    go: (page, fields) => go(href(page, fields)),
    /** Changes parameters of this page; the page stays if it has `update`. */
    set: (patch) => go(href(name, { ...here().params, ...patch }), { replace: true }),
    again,
    title: (problems) => setTitle(PAGES[name], problems),
    /** Asks for confirmation, then runs an operation: `done(result)` is the text of the toast, `what` says what did not happen on a failure. */
    async act({ operation, fields, body = JSON.stringify(fields ?? {}), work, done, what, after, undo, giveUpMs, ...words }) {
      const { confirm, toast } = await import('./parts/dialog.js');
      confirm({
        explain: (error) => failure(error, what),
        async run() {
          const result = await (work ? work() : context.send(operation, body, { giveUpMs }));
          toast(done(result), { undo });
          after?.(result);
        },
        ...words,
      });
    },
    leave() {
      leaving.abort();
      ends.forEach((end) => end());
    },
  };
  return context;
}
