// The transport of pages: WebSocket, with messages as Protobuf.

import { decode, encode } from './wire.js';

const utf8 = new TextEncoder();

/** The registry's methods are JSON, which Protobuf carries as bytes. */
const outgoing = (command) => (command.rpc ? { ...command, rpc: { ...command.rpc, data: utf8.encode(JSON.stringify(command.rpc.data)) } } : command);
const json = (bytes) => (bytes ? JSON.parse(new TextDecoder().decode(bytes)) : null);

/** Parses values that are JSON: answers of the registry, and the publications of its channels. */
function incoming(reply) {
  if (reply.rpc) reply.rpc.data = json(reply.rpc.data);
  const { channel, pub } = reply.push ?? {};
  if (pub && channel.startsWith('$registry:')) pub.data = json(pub.data);
  return reply;
}

export const dialWebSocket = (url) => ({ onOpen, onReply, onClose }) => {
  const socket = new WebSocket(url, 'centrifuge-protobuf');
  socket.binaryType = 'arraybuffer';
  socket.onopen = onOpen;
  socket.onmessage = ({ data }) => decode(new Uint8Array(data)).map(incoming).forEach(onReply);
  socket.onclose = ({ code, reason }) => onClose(code, reason);
  return {
    send: (command) => socket.readyState === WebSocket.OPEN && socket.send(encode(outgoing(command))),
    close: () => socket.close(),
  };
};
