// Keeps a floor in step with the registry: a listing first, then each change (docs/guides/registry.md, "How to list and to follow a scope").

import { Refusal } from './link.js';

const SCOPE = 'floor';
/** Earlier changes that are read to learn which talks had the floor. */
const PAST = 2_000;
const AGAIN_MS = 1_000;

/**
 * @param {Link} link
 * @param {Floor} floor
 * @param {() => void} onChange after each step that may have changed the floor
 * @param {(refusal: Refusal) => void} onError the server has refused for good
 * @returns {() => Promise<void>} waits until all received changes are processed
 */
export function followFloor(link, floor, { onChange, onError }) {
  const ask = (method, data) => link.rpc(`registry.${method}`, { scope: SCOPE, ...data });
  let at = null; // the position in the log of changes
  let work = Promise.resolve();

  const owner = (name) => ask('lookup', { name }).then((entry) => [{ change: 'registered', ...entry }], (error) => {
    if (error instanceof Refusal && error.code === 4002) return [];
    throw error;
  });
  const members = async (group) => (await ask('members', { group })).members.map((member) => ({ change: 'joined', group, ...member }));

  /** Reads earlier talks, whose frames may be in the history. */
  async function learnPast({ offset, epoch }) {
    for (let since = Math.max(0, offset - PAST); since < offset;) {
      const page = await ask('changes', { offset: since, epoch });
      if (!page.changes?.length) return;
      page.changes.forEach((change) => floor.learn(change));
      since = page.offset;
    }
  }

  async function list() {
    const position = await ask('changes');
    await learnPast(position);
    const { names } = floor;
    const entries = await Promise.all([owner(names.floor), owner(names.dispatch), ...[names.people, names.queue, names.dispatch].map(members)]);
    const before = floor.clear();
    entries.flat().forEach((entry) => floor.list(entry, Date.now(), before));
    floor.open(Date.now());
    at = { offset: position.offset, epoch: position.epoch };
  }

  async function catchUp() {
    if (!at) await list();
    for (let more = true; more;) {
      const missed = await ask('changes', at);
      more = missed.list || missed.more;
      if (missed.list) await list();
      else {
        at = { offset: missed.offset, epoch: missed.epoch };
        missed.changes.forEach((change) => floor.apply(change, Date.now()));
      }
    }
  }

  async function take({ offset, epoch, changes }) {
    if (at && epoch === at.epoch && offset <= at.offset) return;
    if (!at || epoch !== at.epoch || !changes || offset - changes.length !== at.offset) return catchUp();
    at.offset = offset;
    changes.forEach((change) => floor.apply(change, Date.now()));
  }

  // Steps run one after the other. A step that fails while connected is repeated; a new connection begins with a listing.
  const then = (step) => {
    const { client } = link;
    work = work.then(step).then(onChange, () => { setTimeout(() => link.client === client && link.isLive && then(catchUp), AGAIN_MS); });
  };
  link.subscribe(`$registry:${SCOPE}`, {
    onSubscribed: () => then(() => { at = null; return catchUp(); }),
    onPublication: ({ data }) => then(() => take(data)),
    onError,
  });
  return () => work;
}
