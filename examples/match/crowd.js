// The crowd on the fan's page: two buttons, their totals, and reactions that fly up.

import { OPTIONS, collectTaps } from './reactions.js';
import { element } from './view.js';

/** More would only drain the phone's battery. */
const FLYING_MAX = 24;
const SPREAD_MS = 400;
const stillness = matchMedia('(prefers-reduced-motion: reduce)');

/**
 * @param {HTMLElement} root with the buttons  @param {HTMLElement} sky where reactions fly  @param {(option: string, n: number) => void} send
 * @returns functions to call: show(reactions, risen) for new totals, and lost() when there is no connection
 */
export function mountCrowd(root, sky, send) {
  const tap = collectTaps(send);
  const buttons = [...root.querySelectorAll('button[data-option]')];
  const signs = new Map(buttons.map((button) => [button.dataset.option, button.querySelector('.sign')]));
  const totals = new Map([...root.querySelectorAll('[data-total]')].map((total) => [total.dataset.total, total]));
  const note = root.querySelector('[role=status]');
  root.addEventListener('click', ({ target }) => {
    const option = target.closest('button[data-option]')?.dataset.option;
    if (option) tap(option);
  });
  const enable = (isOpen, why) => {
    buttons.forEach((button) => { button.disabled = !isOpen; });
    if (note.textContent !== why) note.textContent = why;
  };
  return {
    show: (reactions, risen) => {
      totals.forEach((total, option) => { total.textContent = reactions.totals[option].toLocaleString('en'); });
      enable(!reactions.isClosed, reactions.isClosed ? 'Reactions are closed.' : '');
      OPTIONS.forEach((option) => fly(sky, signs.get(option), option, risen[option]));
    },
    lost: () => enable(false, 'No connection. You can react when it is back.'),
  };
}

/** Lets copies of a button's sign fly, as many as fit. */
function fly(sky, sign, option, wanted) {
  if (stillness.matches || document.hidden) return;
  const room = FLYING_MAX - sky.childElementCount;
  for (let left = Math.min(wanted, room); left > 0; left -= 1) {
    const flying = element('span', { class: `flying ${option}` }, sign.cloneNode(true));
    flying.style.left = `${5 + Math.random() * 85}%`;
    flying.style.setProperty('--drift', `${Math.random() * 6 - 3}rem`);
    flying.style.animationDelay = `${Math.random() * SPREAD_MS}ms`;
    // Cancelled: meanwhile the user has asked for less motion.
    for (const end of ['animationend', 'animationcancel']) flying.addEventListener(end, () => flying.remove());
    sky.append(flying);
  }
}
