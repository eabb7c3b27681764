// Parses JSON without passing numbers of payloads through a double: 10.20 and 2^63 stay as they were written.

export class Written {
  constructor(source) { this.source = source; }
  toString() { return this.source; }
}

// These fields contain data of users; everything else is figures of the server, also in its pushes (`pub.data`).
const PAYLOADS = new Set(['data', 'payload', 'meta', 'event', 'conn_info', 'chan_info', 'info', 'value', 'header', 'error']);
const DEPTH_MAX = 500;
const SCALAR = /true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const STRING = /"(?:[^"\\\u0000-\u001f]|\\.)*"/y;
const SPACE = /[ \t\n\r]*/y;
const WORDS = { true: true, false: false, null: null };

/** Parses `text`; with `exact` every number is kept as it was written, else only those of payloads. */
export function read(text, exact = false) {
  let at = 0;
  const fail = () => {
    throw new SyntaxError(`not valid JSON at character ${at + 1}`);
  };
  const match = (pattern) => {
    pattern.lastIndex = at;
    const found = pattern.exec(text);
    if (!found) fail();
    at = pattern.lastIndex;
    return found[0];
  };
  const skip = () => match(SPACE);
  const take = (character) => text[at] === character && (at += 1);
  const list = (close, item) => {
    at += 1;
    skip();
    if (take(close)) return;
    do {
      skip();
      item();
      skip();
    } while (take(','));
    take(close) || fail();
  };
  const value = (kept, depth, of) => {
    if (depth > DEPTH_MAX) fail();
    skip();
    if (text[at] === '"') return JSON.parse(match(STRING));
    if (text[at] === '[') {
      const items = [];
      list(']', () => items.push(value(kept, depth + 1)));
      return items;
    }
    if (text[at] === '{') {
      // Without a prototype, a field "__proto__" is a field like any other.
      const fields = Object.create(null);
      list('}', () => {
        const key = JSON.parse(match(STRING));
        skip();
        take(':') || fail();
        fields[key] = value(kept || (PAYLOADS.has(key) && of !== 'pub'), depth + 1, key);
      });
      return fields;
    }
    const source = match(SCALAR);
    const double = Number(source);
    return source in WORDS ? WORDS[source] : kept && String(double) !== source ? new Written(source) : double;
  };
  const whole = value(exact, 0);
  skip();
  if (at !== text.length) fail();
  return whole;
}

/** The JSON of a value from `read`, with unchanged numbers; indented by `indent` spaces, or on one line. */
export function write(value, indent = 0, margin = '') {
  if (value instanceof Written) return value.source;
  if (value === null || typeof value !== 'object') return JSON.stringify(value) ?? 'null';
  const inner = margin + ' '.repeat(indent);
  const [open, close] = Array.isArray(value) ? '[]' : '{}';
  const items = Array.isArray(value)
    ? value.map((item) => write(item, indent, inner))
    : Object.entries(value).map(([key, item]) => `${JSON.stringify(key)}:${indent ? ' ' : ''}${write(item, indent, inner)}`);
  if (!items.length) return open + close;
  return indent ? `${open}\n${inner}${items.join(`,\n${inner}`)}\n${margin}${close}` : open + items.join(',') + close;
}
