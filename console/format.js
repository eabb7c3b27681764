// Formats numbers, times and texts for the console. Nothing here depends on the page.

export const UNKNOWN = '–';
const MINUS = '\u2212';
const NO_BREAK = '\u00a0';
const known = (value) => value !== null && value !== undefined && !Number.isNaN(Number(value));
const grouped = new Intl.NumberFormat('en', { maximumFractionDigits: 3 });

// Control, zero-width and bidirectional characters can make one name look like another.
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\ufff9-\uffff]|[\u{e0000}-\u{e0fff}]|\p{Cs}/gu;

export function visible(text) {
  return String(text).replace(UNSEEN, (character) => {
    const code = character.codePointAt(0);
    const hex = code.toString(16).toUpperCase();
    return code > 0xffff ? `\\u{${hex}}` : `\\u${hex.padStart(4, '0')}`;
  });
}

export const count = (value) => (known(value) ? grouped.format(value).replace('-', MINUS) : UNKNOWN);
const rounded = (value) => (Math.abs(value) < 10 ? Math.round(value * 10) / 10 : Math.round(value));
const threeDigits = (value) => value.toFixed(Math.abs(value) < 9.95 ? 1 : 0).replace('-', MINUS);
const unit = (value, name) => value + NO_BREAK + name;

export function short(value) {
  if (!known(value)) return UNKNOWN;
  if (Math.abs(value) < 999_999.5) return count(rounded(value));
  return Math.abs(value) < 1e9 ? unit(threeDigits(value / 1e6), 'M') : unit(threeDigits(value / 1e9), 'G');
}

export const rate = (value) => (known(value) ? `${count(rounded(value))}/s` : UNKNOWN);

export function bytes(value) {
  if (!known(value)) return UNKNOWN;
  if (Math.abs(value) < 1024) return unit(count(Math.round(value)), 'B');
  const names = ['KiB', 'MiB', 'GiB', 'TiB'];
  let size = value / 1024;
  for (; Math.abs(size) >= 999.5 && names.length > 1; size /= 1024) names.shift();
  return unit(threeDigits(size), names[0]);
}

export const percent = (value) => (known(value) ? unit(count(Math.round(value)), '%') : UNKNOWN);

export function duration(ms) {
  if (!known(ms)) return UNKNOWN;
  const span = Math.max(0, Number(ms));
  if (span < 1000) return unit(rounded(span), 'ms');
  if (span < 10_000) return unit((span / 1000).toFixed(1), 's');
  if (span < 60_000) return unit(Math.floor(span / 1000), 's');
  const minutes = Math.floor(span / 60_000);
  if (minutes < 60) return unit(minutes, 'min');
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return unit(hours, 'h') + (minutes % 60 ? ` ${unit(minutes % 60, 'min')}` : '');
  return unit(Math.floor(hours / 24), 'd') + (hours % 24 ? ` ${unit(hours % 24, 'h')}` : '');
}

let utc = false;
export const useUtc = (on) => { utc = on; };

export function zoneName(now) {
  if (utc) return 'UTC';
  const ahead = -new Date(now).getTimezoneOffset();
  const two = (value) => String(value).padStart(2, '0');
  const size = Math.abs(ahead);
  return `UTC${ahead < 0 ? MINUS : '+'}${two(Math.floor(size / 60))}:${two(size % 60)}`;
}

function parts(ms) {
  // Shifted so that the UTC getters give the fields of the page's zone.
  const shift = utc ? 0 : new Date(ms).getTimezoneOffset() * 60_000;
  return new Date(ms - shift).toISOString();
}

const MONTHS = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec'];

/** Today 03:17:02, else 21 Nov 03:17. */
export function clock(ms, now) {
  if (!known(ms)) return UNKNOWN;
  const text = parts(Number(ms));
  if (now === undefined || parts(now).slice(0, 10) === text.slice(0, 10)) return text.slice(11, 19);
  const year = text.slice(0, 4) === parts(now).slice(0, 4) ? '' : ` ${text.slice(0, 4)}`;
  return `${Number(text.slice(8, 10))} ${MONTHS[Number(text.slice(5, 7)) - 1]}${year} ${text.slice(11, 16)}`;
}

export const clockMs = (ms) => (known(ms) ? parts(Number(ms)).slice(11, 23) : UNKNOWN);
export const iso = (ms) => (known(ms) ? new Date(Number(ms)).toISOString() : UNKNOWN);

/** 03:06:12 (11 min): an age is always together with its time. */
export function since(ms, now) {
  return known(ms) ? `${clock(ms, now)} (${duration(now - ms)})` : UNKNOWN;
}

export function until(ms, now) {
  if (!known(ms)) return 'without end';
  return ms > now ? `${clock(ms, now)} (in ${duration(ms - now)})` : `${clock(ms, now)} (over)`;
}

/** 8f2c…01: enough of a client id to distinguish two. */
export const shortId = (id) => (String(id).length > 12 ? `${String(id).slice(0, 4)}…${String(id).slice(-4)}` : String(id));

export const plural = (number, one, many = `${one}s`) => `${count(number)} ${Number(number) === 1 ? one : many}`;
