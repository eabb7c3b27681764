// The live match of both pages: from the channel to a folded match, across lost connections and restarts of the server.

import { beforeTheMatch, reduce } from './match.js';
import { isReactions, trackReactions } from './reactions.js';
import { Touchline } from './touchline.js';

export const CHANNEL = 'match:live';
/** Joins and leaves arrive in bursts: one count for each burst. */
const COUNT_AFTER_MS = 500;
const READ_AGAIN_AFTER_MS = 1_000;

/**
 * @param {object} view callbacks: onMatch(match), onWatching(number), onState(state, reason), onReactions(reactions, risen) for totals and how much
 *   they rose while this page watched, and onEvent(entry, publication) for a new event, after onMatch
 * @returns {{react: (option: string, n: number) => void}}
 */
export function followMatch({ onMatch, onWatching, onState, onReactions, onEvent = () => {} }) {
  const url = `${location.protocol === 'https:' ? 'wss' : 'ws'}://${location.host}/connection/websocket`;
  const reactions = trackReactions(onReactions);
  const changeState = (state, reason) => {
    if (state !== 'live') reactions.lost();
    onState(state, reason);
  };
  const client = new Touchline(url, { onState: changeState });
  let match = beforeTheMatch();
  let last = 0; // offset of the last event in `match`
  let isWhole = false; // whether `match` has every event up to `last`
  let held = []; // publications that arrived while the history was being read
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
    // The history also has the last totals of closed reactions.
    history.filter(({ data }) => !isReactions(data)).forEach((publication) => fold(publication, false));
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
    // Recovered: the missed publications follow. Otherwise the whole match is read again.
    onSubscribed: ({ recovered }) => {
      count();
      reactions.subscribed();
      if (!recovered || !isWhole) rebuild();
    },
    onPublication: (publication, { isCaughtUp }) => {
      if (isReactions(publication.data)) reactions.take(publication);
      else take(publication, isCaughtUp);
    },
    onJoin: countSoon,
    onLeave: countSoon,
    onError: (error) => changeState('closed', error.message),
  });
  onMatch(match);
  client.connect();
  return { react: (option, n) => client.send('reactions.add', { channel: CHANNEL, option, n }) };
}

/** Every event so far, page by page: one reply has a few hundred at most. */
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
