// Sentences that several pages use. A failure says what did not happen, why, and what to do.
import { clock, duration, plural } from './format.js';

export const PAGES = {
  overview: 'Overview', channels: 'Channels', channel: 'Channel', connections: 'Connections', connection: 'Connection',
  registry: 'Registry', name: 'Name', inbox: 'Inbox', bans: 'Bans', events: 'Events', consumers: 'Consumers',
  statistics: 'Statistics', tokens: 'Tokens', configuration: 'Configuration', api: 'API', login: 'Sign in',
};

export const STATES = {
  ok: 'ok', look: 'needs a look', bad: 'bad', off: 'off', draining: 'draining', silent: 'silent', running: 'running',
  behind: 'behind', stuck: 'stuck', live: 'live', idle: 'ready', loading: 'loading', failed: 'failed', none: 'not known here',
};

export const SHAPES = {
  ok: 'ok', running: 'ok', live: 'ok', look: 'look', behind: 'look', draining: 'look', loading: 'info', info: 'info',
  bad: 'bad', stuck: 'bad', failed: 'bad', silent: 'bad', off: 'off', none: 'off', idle: 'ok',
};

const REMEDIES = {
  100: 'Search the log of the node for the request id.',
  102: 'Look at the namespaces in the configuration.',
  103: 'Sign in with the password of an operator.',
  104: 'The node runs a version without this operation.',
  106: 'A limit of the configuration is reached: see the reference of limits.',
  107: 'Correct the request.',
  108: 'The configuration disables it for this channel or node.',
  111: 'Wait, then try again.',
  112: 'Start from the history that is kept now.',
  4002: 'It may have just ended: try again.',
  4003: 'The key registry.scopes lists the scopes.',
  4009: 'The node is cut off from the cluster: look at NATS on Overview.',
  4010: 'The database does not answer: look at the dependencies on Overview.',
  4017: 'Correct the file; the node uses the old configuration until then.',
};

/** The text of a failure for a panel or toast: `what` is "The figures were not read." */
export function failure(error, what = 'There was no answer.') {
  if (error.kind === 'late') return `${what} The node did not answer within ${duration(error.ms)}. Try again, or look at another node.`;
  if (error.kind === 'cut') return `${what} This page is cut off from the node. It tries again by itself.`;
  if (error.kind === 'signed out') return `${what} You are signed out. Sign in, and you are back on this page.`;
  if (error.kind === 'typed') return error.message;
  if (error.kind === 'server') return `${what} The node had an internal error (status ${error.status}). Search its log for the request id.`;
  if (error.kind !== 'refused') return `${what} ${sentence(error.message)} Reload the page.`;
  const field = error.field ? ` (field ${error.field})` : '';
  return `${what} ${sentence(`${error.message}${field}`)} ${REMEDIES[error.code] ?? 'The list of errors has more.'}`;
}

const sentence = (text) => String(text).trim().replace(/^./u, (first) => first.toUpperCase()).replace(/[^.!?]$/u, '$&.');

// The keys that enable what an operation reads.
const SWITCHES = {
  history: 'history_size and history_ttl of the namespace', presence: 'presence of the namespace', channels_similar: 'store.directory', stats_audience: 'store.stats.enabled',
  stats_top: 'store.stats.enabled', events_dead: 'events, with a durable endpoint', inbox_names: 'inbox_size of the scope', inbox_list: 'inbox_size of the scope',
};
export const switchedOff = (error, operation) => isUnknown(error) ? `This node does not have the operation ${operation}: it runs a version without it.` : `${sentence(error.message)} ${error.code === 108 && SWITCHES[operation] ? `The key that enables it: ${SWITCHES[operation]}.` : REMEDIES[error.code]}`;
const isUnknown = (error) => error.code === 104 || error.status === 404;
/** 108 and 4003 mean that something is disabled, 104 that a node does not have it: these are not faults. */
export const isOff = (error) => (error.kind === 'refused' && (error.code === 108 || error.code === 4003)) || isUnknown(error);

export const WORDS = {
  slow: 'The node has not answered yet.',
  readOnly: (role) => `Your role is ${role}; an operator may do this.`,
  cutAct: 'This page is cut off from the node.',
  hidden: (size) => `${size}, hidden`,
  missing: (nodes, silent) => `${nodes.join(', ')} did not answer. The figures are those of the other nodes${silent ? '' : ', so totals may be too low'}.`,
  wrongPassword: (left) => (left === undefined ? 'Wrong password.' : `Wrong password. ${plural(left, 'try is', 'tries are')} left in this minute.`),
  throttled: (seconds) => `Too many tries. Try again in ${duration(seconds * 1000)}.`,
  signedOut: 'You are signed out. Sign in, and you are back on the page you were on.',
  cut: (heardAt, now) => `This page is cut off from the node since ${clock(heardAt)} (${duration(now - heardAt)}). The figures are from then.`,
  retry: (ms) => (ms > 0 ? `Next try in ${duration(Math.max(1000, Math.ceil(ms / 1000) * 1000))}.` : 'Trying now.'),
  skew: (ms) => `The clock of the node differs from this browser's by ${duration(Math.abs(ms))}; times are the node's.`,
  gap: 'Some may be missing here: this page was not listening.',
  needsSocket: 'This needs a WebSocket, but none could be opened. A proxy may block it.',
};
