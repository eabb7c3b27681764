// The transport of the terminal: a bare TCP socket, one JSON object per line, bytes as {"$b64": "…"}.

import { connect } from 'node:net';
import { createInterface } from 'node:readline';

const toNotation = (bytes) => ({ $b64: Buffer.from(bytes).toString('base64') });
const fromNotation = (data) => (typeof data?.$b64 === 'string' ? new Uint8Array(Buffer.from(data.$b64, 'base64')) : data);

const outgoing = (command) => (command.publish ? { ...command, publish: { ...command.publish, data: toNotation(command.publish.data) } } : command);

function incoming(reply) {
  for (const publication of reply.history?.publications ?? [reply.push?.pub].filter(Boolean)) publication.data = fromNotation(publication.data);
  return reply;
}

export const dialLines = (host, port) => ({ onOpen, onReply, onClose }) => {
  let end = { code: 0, reason: '' };
  const socket = connect({ host, port, noDelay: true }, onOpen);
  socket.on('error', (error) => (end.reason ||= error.message));
  socket.on('close', () => onClose(end.code, end.reason));
  createInterface({ input: socket }).on('line', (line) => {
    const reply = JSON.parse(line);
    if (reply.push?.disconnect) end = reply.push.disconnect;
    else onReply(incoming(reply));
  }).on('error', () => {});
  return {
    send: (command) => socket.write(`${JSON.stringify(outgoing(command))}\n`),
    close: () => socket.destroy(),
  };
};
