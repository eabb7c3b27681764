// A rival: a minimal topic server with the `ws` package of npm, which tests/e2e has. Usage: node ws.mjs PORT
// A text frame with a channel's name subscribes, and the first frame from the server acknowledges it.
// POST /api/publish takes the same request as Touchline.
import { createServer } from 'node:http';
import { createRequire } from 'node:module';

const { WebSocketServer } = createRequire(new URL('../../../tests/e2e/package.json', import.meta.url))('ws');
const channels = new Map();

const server = createServer((request, response) => {
  let body = '';
  request.on('data', (chunk) => (body += chunk));
  request.on('end', () => {
    const { channel, data } = JSON.parse(body);
    const event = Buffer.from(JSON.stringify({ push: { channel, pub: { data } } }));
    for (const socket of channels.get(channel) ?? []) socket.send(event, { binary: false });
    response.setHeader('Content-Type', 'application/json');
    response.end('{"result":{}}');
  });
});
const sockets = new WebSocketServer({ server, perMessageDeflate: false });
sockets.on('connection', (socket) => {
  socket.once('message', (name) => {
    const channel = String(name);
    if (!channels.has(channel)) channels.set(channel, new Set());
    channels.get(channel).add(socket);
    socket.once('close', () => channels.get(channel).delete(socket));
    socket.send('{}');
  });
});
server.listen({ port: Number(process.argv[2]), host: '127.0.0.1', backlog: 4096 });
