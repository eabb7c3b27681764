// The live match behind both pages: from the channel to a folded match, across lost connections and restarts of the server.

import { beforeTheMatch, reduce } from './match.js';
import { Touchline } from './touchline.js';

export const CHANNEL = 'match:live';
/** Joins and leaves come in swarms: one count for each swarm. */
const COUNT_AFTER_MS = 500;
const READ_AGAIN_AFTER_MS = 1_000;

/**
 * @param {object} view what to call: onMatch(match), onWatching(number), onState(state, reason), and onEvent(entry, publication) for what is new,
 *   after onMatch
 */
export function followMatch({ onMatch, onWatching, onState, onEvent = () => {} }) {
  const url = `${location.protocol === 'https:' ? 'wss' : 'ws'}://${location.host}/connection/websocket`;
  const client = new Touchline(url, { onState });
  let match = beforeTheMatch();
  let last = 0; // offset of the last event in `match`
  let isWhole = false; // whether `match` has every event up to `last`
  let held = []; // what came while the history was being read
  let readings = 0;
  let counting;

  const fold = ({ data, offset }, isCaughtUp) => {
    last = offset;
    match = reduce(match, data, { offset, isCaughtUp });
  };
  const take = (publication, isCaughtUp) => {
    if (!isWhole) return held.push(publication);
    if (publication.offset <= last) return;
    fold(publication, isCaughtUp);
    onMatch(match);
    onEvent(match.entries[0], publication);
  };
  const rebuild = async () => {
    const reading = ++readings;
    isWhole = false;
    held = [];
    const history = await readHistory(client).catch(() => null);
    if (reading !== readings) return; // a newer connection reads it again
    if (!history) return setTimeout(() => reading === readings && rebuild(), READ_AGAIN_AFTER_MS);
    match = beforeTheMatch();
    last = 0;
    history.forEach((publication) => fold(publication, false));
    isWhole = true;
    onMatch(match);
    held.forEach((publication) => take(publication, false));
  };
  const count = async () => {
    counting = undefined;
    const { presence_stats: stats } = await client.presenceStats(CHANNEL).catch(() => ({}));
    if (stats) onWatching(stats.num_clients);
  };
  const countSoon = () => { counting ??= setTimeout(count, COUNT_AFTER_MS); };

  client.subscribe(CHANNEL, {
    // Recovered: what was missed follows. Not recovered, or new here: the whole match is read again.
    onSubscribed: ({ recovered }) => {
      count();
      if (!recovered || !isWhole) rebuild();
    },
    onPublication: (publication, { isCaughtUp }) => take(publication, isCaughtUp),
    onJoin: countSoon,
    onLeave: countSoon,
    onError: (error) => onState('closed', error.message),
  });
  onMatch(match);
  client.connect();
}

/** Every event so far, page by page: one reply holds a few hundred at most. */
async function readHistory(client) {
  const read = [];
  for (let since; ;) {
    const { publications, offset, epoch } = (await client.history(CHANNEL, { limit: -1, since })).history;
    read.push(...publications);
    const reached = publications.at(-1)?.offset ?? offset;
    if (reached >= offset) return read;
    since = { offset: reached, epoch };
  }
}
