// The live match behind both pages: from the channel to a folded match, across lost connections and restarts of the server.

import { beforeTheMatch, reduce } from './match.js';
import { Touchline } from './touchline.js';

export const CHANNEL = 'match:live';
/** Joins and leaves come in swarms: count once they have settled. */
const COUNT_AFTER_MS = 300;

/** @param {{onMatch: Function, onWatching: Function, onState: Function, onPublication?: Function}} view what to call with the match, the number of watchers, the connection's state */
export function followMatch({ onMatch, onWatching, onState, onPublication = () => {} }) {
  const url = `${location.protocol === 'https:' ? 'wss' : 'ws'}://${location.host}/connection/websocket`;
  const client = new Touchline(url, { onState }).connect();
  let match = beforeTheMatch();
  let last = 0; // offset of the last event in `match`
  let counting = 0;

  const take = (publication, isCaughtUp) => {
    if (publication.offset <= last) return;
    last = publication.offset;
    match = reduce(match, publication.data, { offset: publication.offset, isCaughtUp });
    onMatch(match);
    onPublication(publication);
  };
  const rebuild = async () => {
    const { history } = await client.history(CHANNEL);
    match = beforeTheMatch();
    last = 0;
    (history.publications ?? []).forEach((publication) => take(publication, false));
    onMatch(match);
  };
  const count = () => {
    clearTimeout(counting);
    counting = setTimeout(async () => {
      const { presence_stats: stats } = await client.presenceStats(CHANNEL).catch(() => ({}));
      if (stats) onWatching(stats.num_clients ?? 0);
    }, COUNT_AFTER_MS);
  };

  client.subscribe(CHANNEL, {
    // Recovered: what was missed follows. Not recovered, or new here: the whole match is read again.
    onSubscribed: ({ recovered }) => {
      count();
      if (!recovered) rebuild().catch(() => {});
    },
    onPublication: (publication, { isCaughtUp }) => take(publication, isCaughtUp),
    onJoin: count,
    onLeave: count,
    onError: (error) => onState('closed', error.message),
  });
  onMatch(match);
}
