// A list from the answers of an operation: panel, table, pages by cursor. The first page is live.
import { button, fill, h } from '../dom.js';
import { count } from '../format.js';
import { changeButton, panel } from './states.js';
import { table } from './table.js';

const PAGE = 100;
const SEARCH_PAGE = 1000;
const SEARCH_PAGES_MAX = 10;

/**
 * `rows(result)` gives the rows of an answer; `local(row)`, if given, says whether a row fits what the server
 * cannot filter: then pages are searched until 100 fit or 10,000 were looked at, and the foot says so.
 */
export function listing(context, options) {
  const { title, operation, params = {}, rows, local, none, unmatched, clear, total, cursorOf = (result) => result.cursor } = options;
  const place = panel({ title, command: [operation, params], kind: options.whole ? 'wrap' : 'list' });
  const grid = table({ caption: title, ...options });
  const more = button('Load more', () => next(cursor), { hidden: true });
  const foot = h('p.foot', { 'aria-live': 'off' });
  let cursor = '';
  let searched = 0;
  let known = null;
  place.body.append(grid.root, h('div.list-foot', null, foot, more));
  const failed = (error) => place.fail(error, () => next(''), 'The list was not read.');
  function settle(result, at) {
    place.ready(at, result.missing_nodes ?? []);
    known = total?.(result) ?? known;
    more.hidden = !cursor;
    const of = known === null ? '' : ` of ${count(known)}`;
    options.onResult?.(result);
    if (result.sample) fill(foot, `a sample: ${count(grid.size)}${of}`);
    else if (local) fill(foot, `${count(grid.size)} match · searched ${count(searched)}${of}`);
    else fill(foot, cursor ? `${count(grid.size)} loaded${of}, there are more` : `all ${count(grid.size)}${known === null ? '' : of}`);
    fill(more, local ? 'Search further' : 'Load more');
    if (!grid.size && !cursor) place.empty(clear ? unmatched : none, clear && button('Remove the filters', clear));
  }
  function show(result, at) {
    const fresh = rows(result);
    grid[grid.size ? 'merge' : 'set'](fresh, PAGE);
    if (grid.size <= PAGE) cursor = cursorOf(result) ?? '';
    settle(result, at);
  }
  /** Reads the page after the cursor; with `local`, reads pages until a full page of matching rows is found. */
  async function next(from) {
    const limit = options.whole ? {} : { limit: local ? SEARCH_PAGE : PAGE };
    const found = [];
    let result;
    cursor = from;
    if (!from) searched = 0;
    try {
      for (let page = 0; page === 0 || (local && cursor && page < SEARCH_PAGES_MAX && found.length < PAGE); page += 1) {
        result = await context.ask(operation, { ...params, ...limit, ...(cursor && (options.page?.(cursor) ?? { cursor })) });
        const read = rows(result);
        searched += read.length;
        found.push(...(local ? read.filter(local) : read));
        cursor = cursorOf(result) ?? '';
      }
      grid[from ? 'add' : 'set'](found);
      settle(result, context.now());
    } catch (error) { failed(error); }
  }
  let leave = () => {};
  const reload = () => {
    grid.unselect();
    next('');
  };
  if (local || options.still) next('');
  else leave = context.watch(operation, { ...params, ...(!options.whole && { limit: PAGE }) }, { show, fail: failed });
  return { root: place.root, grid, leave, reload, setTotal: (value) => { known = value; } };
}

/** `acts`: `[label(number), run(keys)]`; `set(chosen)` follows the selection. */
export function selectionBar(acts, none) {
  let keys = [];
  const hint = h('span.soft', null, none);
  const buttons = acts.map(([, run]) => changeButton('', () => run(keys)));
  const root = h('div.selection', null, hint, buttons);
  const set = (chosen) => {
    keys = [...chosen];
    hint.hidden = keys.length > 0;
    buttons.forEach((one, index) => {
      one.hidden = !keys.length;
      fill(one, acts[index][0](count(keys.length)));
    });
  };
  set([]);
  return { root, set };
}

/** Runs `one` for all keys, four at a time; throws the first failure with how many were done. */
export async function forAll(keys, one) {
  const left = [...keys];
  let done = 0;
  const work = async () => {
    for (let key = left.shift(); key !== undefined; key = left.shift()) {
      await one(key);
      done += 1;
    }
  };
  try {
    await Promise.all([work(), work(), work(), work()]);
  } catch (error) {
    left.length = 0;
    throw Object.assign(error, { done });
  }
  return done;
}
