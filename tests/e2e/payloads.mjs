// The Protobuf SDK gives payloads as bytes. This module makes them JSON values, so that one scenario works for both encodings.

const bytes = (value) => (value === undefined || value instanceof Uint8Array ? value : new TextEncoder().encode(JSON.stringify(value)));

function value(bytes) {
  try { return JSON.parse(new TextDecoder().decode(bytes)); } catch { return bytes; }
}

/** A copy in which `change` has replaced each payload. */
function map(message, change, isPayload) {
  if (message === null || typeof message !== 'object' || message instanceof Uint8Array) return message;
  if (Array.isArray(message)) return message.map((item) => map(item, change, isPayload));
  const copy = {};
  for (const key in message) {
    const isWhole = message.delta === true && key === 'data' || !isPayload(key, message[key]);
    copy[key] = isWhole ? map(message[key], change, isPayload) : change(message[key]);
  }
  return copy;
}

const PAYLOADS = ['data', 'conn_info', 'chan_info', 'connInfo', 'chanInfo'];

export function withJsonPayloads(client) {
  const codec = client._codec;
  if (codec.name() !== 'protobuf') return client;
  const { encodeCommands, decodeReplies, applyDeltaIfNeeded } = Object.getPrototypeOf(codec);
  codec.encodeCommands = (commands) => encodeCommands.call(codec, map(commands, bytes, (key) => key === 'data'));
  codec.decodeReplies = (data) => map(decodeReplies.call(codec, data), value, (key, held) => PAYLOADS.includes(key) && held instanceof Uint8Array);
  codec.applyDeltaIfNeeded = (publication, before) => {
    const applied = applyDeltaIfNeeded.call(codec, { ...publication, data: bytes(publication.data) }, before);
    return { ...applied, newData: value(applied.newData) };
  };
  return client;
}
