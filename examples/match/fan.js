// The fan's page.

import { followMatch } from './live.js';
import { announce, mountScore, showScore, showState, showTicker } from './view.js';

const find = (selector) => document.querySelector(selector);

mountScore(find('#score'));
followMatch({
  onMatch: (match) => {
    showScore(find('#score'), match);
    showTicker(find('#ticker'), match);
    find('#empty').hidden = match.entries.length > 0;
  },
  onEvent: (entry) => announce(find('#news'), entry),
  onWatching: (watchers) => { find('#watching').textContent = `${watchers} watching`; },
  onState: (state, reason) => showState(find('#state'), state, reason),
});
