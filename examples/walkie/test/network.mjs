// A network that a test can cut, restore and stop.
import { connect, createServer } from 'node:net';
import { freePort } from '../../../tests/e2e/server.mjs';

export async function network(port) {
  const sides = { toServer: new Set(), toClient: new Set() };
  const still = { toServer: false, toClient: false };
  const listener = createServer((near) => {
    const far = connect(port, '127.0.0.1');
    for (const [direction, from, to] of [['toServer', near, far], ['toClient', far, near]]) {
      sides[direction].add(from);
      from.on('error', () => {}).on('data', (data) => to.write(data)).on('close', () => { sides[direction].delete(from); to.destroy(); });
      if (still[direction]) from.pause();
    }
  });
  const own = await freePort();
  const listen = () => new Promise((resolve) => listener.listen(own, '127.0.0.1', resolve));
  await listen();
  return {
    websocket: `ws://127.0.0.1:${own}/connection/websocket`,
    cut: () => new Promise((resolve) => {
      listener.close(resolve);
      Object.values(sides).forEach((sockets) => sockets.forEach((socket) => socket.destroy()));
    }),
    mend: listen,
    /** Stops the data that is on its way, or lets it continue. */
    standStill: (direction, is) => {
      still[direction] = is;
      sides[direction].forEach((socket) => (is ? socket.pause() : socket.resume()));
    },
  };
}
