// The match as a fold over its events. Pure: the pages, the tests and you can use it alike.

const PHASES = { kick_off: 'first half', half_time: 'half-time', second_half: 'second half', full_time: 'full time' };
const HEADLINES = { kick_off: 'Kick-off', half_time: 'Half-time', second_half: 'Second half', full_time: 'Full time' };

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
 * @param {object} match what it was
 * @param {object} event one publication's data; the README of this example lists the shapes
 * @param {{offset?: number, isCaughtUp?: boolean}} [about] of the publication that carried it
 */
export function reduce(match, event, { offset, isCaughtUp = false } = {}) {
  if (event.type === 'lineup') return { ...beforeTheMatch(), ...pick(event, ['title', 'home', 'away']), entries: [entry(event, match, offset, isCaughtUp)] };
  const minute = event.minute ?? match.minute;
  const score = event.type === 'goal' ? { ...match.score, [event.team]: match.score[event.team] + 1 } : match.score;
  const next = { ...match, minute, score, phase: PHASES[event.type] ?? match.phase };
  return { ...next, entries: [entry({ ...event, minute }, next, offset, isCaughtUp), ...match.entries] };
}

/** Whether the ball is rolling. */
export const isPlaying = ({ phase }) => phase.endsWith('half');

/** One line of the ticker. */
function entry(event, { home, away, score }, offset, isCaughtUp) {
  const team = { home, away }[event.team];
  const told = {
    lineup: () => [event.title || 'Line-ups', `${event.home?.name} against ${event.away?.name}`],
    goal: () => [`Goal for ${team?.name}! ${score.home}–${score.away}`, event.player],
    card: () => [`${event.card === 'red' ? 'Red' : 'Yellow'} card, ${team?.name}`, event.player],
    substitution: () => [`Substitution, ${team?.name}`, event.out ? `${event.player} for ${event.out}` : event.player],
  }[event.type];
  const [headline, detail] = told ? told() : [HEADLINES[event.type] ?? '', ''];
  const text = [detail, event.text].filter(Boolean).join('. ');
  return { kind: event.card ?? event.type, headline, text, team: event.team, color: team?.color, minute: event.minute, offset, isCaughtUp };
}

const pick = (object, keys) => Object.fromEntries(keys.filter((key) => object[key] !== undefined).map((key) => [key, object[key]]));
