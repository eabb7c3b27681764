// The part of the Protobuf protocol (docs/reference/protocol.md) that this example uses: bytes stay bytes. Pure.
// A message is a command or a reply with its length before it; an empty one is a ping, or the answer to one.

/** A message's fields: name → [number, type]. A type is a table if the field contains a message; `many` if the field is repeated. */
const CLIENT_INFO = { user: [1, 'text'], client: [2, 'text'] };
const PUBLICATION = {
  data: [4, 'bytes'], info: [5, CLIENT_INFO], offset: [6, 'number'], time: [9, 'number'], epoch: [14, 'text'],
};
const POSITION = { offset: [1, 'number'], epoch: [2, 'text'] };
const ERROR = { code: [1, 'number'], message: [2, 'text'], temporary: [3, 'flag'] };

export const COMMAND = {
  id: [1, 'number'],
  connect: [4, { token: [1, 'text'], name: [4, 'text'] }],
  subscribe: [5, { channel: [1, 'text'] }],
  publish: [7, { channel: [1, 'text'], data: [2, 'bytes'] }],
  history: [10, { channel: [1, 'text'], limit: [7, 'number'], since: [8, POSITION] }],
  rpc: [13, { data: [1, 'bytes'], method: [2, 'text'] }],
};

export const REPLY = {
  id: [1, 'number'],
  error: [2, ERROR],
  push: [4, {
    channel: [2, 'text'], pub: [4, PUBLICATION], unsubscribe: [7, { code: [2, 'number'], reason: [3, 'text'] }],
    message: [8, { data: [1, 'bytes'] }], disconnect: [11, { code: [1, 'number'], reason: [2, 'text'] }],
  }],
  connect: [5, { client: [1, 'text'], ping: [7, 'number'], pong: [8, 'flag'] }],
  subscribe: [6, { epoch: [6, 'text'], offset: [9, 'number'] }],
  publish: [8, {}],
  history: [11, { publications: [1, PUBLICATION, 'many'], epoch: [2, 'text'], offset: [3, 'number'] }],
  rpc: [13, { data: [1, 'bytes'] }],
};

const VARINT = 0;
const LENGTH = 2;
const utf8 = new TextEncoder();
const text = new TextDecoder();

function putVarint(out, value) {
  // By division: numbers may have more than 32 bits.
  for (; value >= 128; value = Math.floor(value / 128)) out.push((value % 128) | 128);
  out.push(value);
}

function put(out, message, schema) {
  for (const [name, [number, type, many]] of Object.entries(schema)) {
    const value = message[name];
    if (value === undefined || value === 0 || value === '' || value === false) continue;
    for (const one of many ? value : [value]) {
      const isNumber = type === 'number' || type === 'flag';
      putVarint(out, number * 8 + (isNumber ? VARINT : LENGTH));
      if (isNumber) putVarint(out, Number(one));
      else putBytes(out, type === 'bytes' ? one : type === 'text' ? utf8.encode(one) : whole(one, type));
    }
  }
}

function putBytes(out, bytes) {
  putVarint(out, bytes.length);
  for (const byte of bytes) out.push(byte);
}

function whole(message, schema) {
  const out = [];
  put(out, message, schema);
  return out;
}

/** A message with its length before it. */
export function encode(message, schema = COMMAND) {
  const out = [];
  putBytes(out, whole(message, schema));
  return Uint8Array.from(out);
}

/** The messages of a WebSocket frame. Throws an error if the bytes are not messages. */
export function decode(bytes, schema = REPLY) {
  const reader = { bytes, at: 0 };
  const messages = [];
  while (reader.at < bytes.length) messages.push(read(takeBytes(reader), schema));
  return messages;
}

function takeVarint(reader) {
  for (let value = 0, unit = 1; ; unit *= 128) {
    const byte = reader.bytes[reader.at++];
    if (byte === undefined || unit > 2 ** 63) throw new Error('this is no Protobuf');
    value += (byte % 128) * unit;
    if (byte < 128) return value;
  }
}

function takeBytes(reader) {
  const length = takeVarint(reader);
  if (reader.at + length > reader.bytes.length) throw new Error('a message of Protobuf is cut off');
  reader.at += length;
  return reader.bytes.subarray(reader.at - length, reader.at);
}

const SIZES = { 1: 8, 5: 4 };

function read(bytes, schema) {
  const byNumber = new Map(Object.entries(schema).map(([name, [number, type, many]]) => [number, { name, type, many }]));
  const message = {};
  for (const reader = { bytes, at: 0 }; reader.at < bytes.length;) {
    const tag = takeVarint(reader);
    const kind = tag % 8;
    const raw = kind === VARINT ? takeVarint(reader) : kind === LENGTH ? takeBytes(reader) : (reader.at += SIZES[kind] ?? NaN, null);
    if (Number.isNaN(reader.at)) throw new Error('this is no Protobuf');
    const field = byNumber.get(Math.floor(tag / 8));
    if (!field) continue;
    const { name, type, many } = field;
    const value = type === 'number' ? raw : type === 'flag' ? raw !== 0 : type === 'text' ? text.decode(raw) : type === 'bytes' ? raw : read(raw, type);
    if (many) (message[name] ??= []).push(value);
    else message[name] = value;
  }
  return message;
}
