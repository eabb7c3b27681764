// The match as a fold over its events. Pure: the pages, the tests and your own code can use it.

// Without a prototype: the type of an event comes from outside, and `constructor` is not a phase.
const PHASES = { __proto__: null, kick_off: 'first half', half_time: 'half-time', second_half: 'second half', full_time: 'full time' };
const HEADLINES = { __proto__: null, kick_off: 'Kick-off', half_time: 'Half-time', second_half: 'Second half', full_time: 'Full time' };

/** How much an event changes the score of its team. */
const GOALS = { __proto__: null, goal: 1, no_goal: -1 };

/** A match before its first event. */
export const beforeTheMatch = () => ({
  title: '',
  home: { name: 'Home', short: 'HOM', color: '#2563eb' },
  away: { name: 'Away', short: 'AWY', color: '#dc2626' },
  score: { home: 0, away: 0 },
  minute: 0,
  phase: 'before the match',
  entries: [],
});

/**
 * The match after one more event.
 * @param {object} match the match before the event
 * @param {object} event one publication's data; the README of this example lists the shapes
 * @param {{offset?: number, isCaughtUp?: boolean}} [about] of the publication that carried it
 */
export function reduce(match, event, { offset, isCaughtUp = false } = {}) {
  if (event === null || typeof event !== 'object') event = { type: 'text', text: String(event) };
  const next = event.type === 'lineup' ? linedUp(event) : played(match, event);
  return { ...next, entries: [entry({ ...event, minute: event.minute ?? next.minute }, next, offset, isCaughtUp), ...next.entries] };
}

/** A new match. Fields that the line-up does not have keep their initial values. */
function linedUp({ title, home, away }) {
  const blank = beforeTheMatch();
  return { ...blank, title: title ?? '', home: { ...blank.home, ...home }, away: { ...blank.away, ...away } };
}

function played(match, { type, team, minute = match.minute }) {
  const score = isOfGoal({ type, team }) ? { ...match.score, [team]: Math.max(0, match.score[team] + GOALS[type]) } : match.score;
  return { ...match, minute, score, phase: PHASES[type] ?? match.phase };
}

const isOfGoal = ({ type, team }) => type in GOALS && (team === 'home' || team === 'away');

/** The entry of the last goal that counts, or undefined. A `no_goal` takes back the last goal of its team. */
export function lastGoal({ entries }) {
  const taken = { home: 0, away: 0 };
  return entries.find(({ kind, team }) => {
    if (!isOfGoal({ type: kind, team })) return false;
    taken[team] -= GOALS[kind];
    return taken[team] < 0;
  });
}

/** Whether the ball is rolling. */
export const isPlaying = ({ phase }) => phase.endsWith('half');

/** One line of the ticker. */
function entry(event, { home, away, score }, offset, isCaughtUp) {
  const team = { __proto__: null, home, away }[event.team];
  const told = {
    __proto__: null,
    lineup: () => [event.title || 'Line-ups', `${home.name} against ${away.name}`],
    goal: () => [`Goal${team ? ` for ${team.name}` : ''}! ${score.home}–${score.away}`, event.player],
    no_goal: () => [`No goal${team ? ` for ${team.name}` : ''}! ${score.home}–${score.away}`, !event.text && 'The goal does not count.'],
    card: () => [`${event.card === 'red' ? 'Red' : 'Yellow'} card${of(team)}`, event.player],
    substitution: () => [`Substitution${of(team)}`, event.out ? `${event.player ?? 'A player'} for ${event.out}` : event.player],
  }[event.type];
  const [headline, detail] = told ? told() : [HEADLINES[event.type] ?? '', ''];
  const text = [detail, event.text].filter(Boolean).join('. ');
  return { kind: event.card ?? event.type, headline, text, team: event.team, color: team?.color, minute: event.minute, offset, isCaughtUp };
}

const of = (team) => (team ? `, ${team.name}` : '');
