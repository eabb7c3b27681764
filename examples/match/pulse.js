// The pulse of the crowd on the reporter's page: reactions per second of the last two minutes, as a chart and in words.

import { OPTIONS, Pulse, points, summary } from './reactions.js';

const DRAW_MS = 1_000;
/** A screen reader cannot follow words that change more often. */
const TELL_MS = 10_000;
const WIDTH = 120;
const HEIGHT = 40;

/** Draws into an element of the page. @returns {(risen: object) => void} the function to call when totals rise */
export function mountPulse(root) {
  const pulse = new Pulse();
  const find = (selector) => root.querySelector(selector);
  let told = -TELL_MS;
  const draw = () => {
    const now = performance.now();
    const perSecond = pulse.perSecond(now);
    const peak = Math.max(1, ...OPTIONS.flatMap((option) => perSecond[option]));
    for (const option of OPTIONS) {
      find(`polyline[data-option=${option}]`).setAttribute('points', points(perSecond[option], peak, WIDTH, HEIGHT));
      find(`[data-rate=${option}]`).textContent = `${perSecond[option].at(-1)}/s`;
    }
    find('[data-peak]').textContent = `${peak}/s`;
    if (now - told < TELL_MS) return;
    told = now;
    find('[data-summary]').textContent = summary(perSecond);
  };
  draw();
  setInterval(draw, DRAW_MS);
  return (risen) => pulse.add(risen, performance.now());
}
