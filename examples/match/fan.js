// The fan's page.

import { mountCrowd } from './crowd.js';
import { followMatch } from './live.js';
import { announce, mountScore, showScore, showState, showTicker } from './view.js';

const find = (selector) => document.querySelector(selector);

mountScore(find('#score'));
const crowd = mountCrowd(find('#crowd'), find('#sky'), (option, n) => match.react(option, n));
const match = followMatch({
  onMatch: (match) => {
    showScore(find('#score'), match);
    showTicker(find('#ticker'), match);
    find('#empty').hidden = match.entries.length > 0;
  },
  onEvent: (entry) => announce(find('#news'), entry),
  onWatching: (watchers) => { find('#watching').textContent = `${watchers} watching`; },
  onReactions: (reactions, risen) => crowd.show(reactions, risen),
  onState: (state, reason) => {
    showState(find('#state'), state, reason);
    // The buttons come back with the subscription, which says whether reactions are open.
    if (state === 'reconnecting' || state === 'closed') crowd.lost();
  },
});
