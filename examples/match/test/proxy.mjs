// A network that a test can cut and restore.
import { createServer, connect } from 'node:net';
import { freePort } from '../../../tests/e2e/server.mjs';

/** A TCP proxy whose connections a test can cut, as in a bad network. */
export async function proxy(port) {
  const sockets = new Set();
  const listener = createServer((near) => {
    const far = connect(port, '127.0.0.1');
    for (const socket of [near, far]) {
      sockets.add(socket);
      socket.on('error', () => {}).on('close', () => { near.destroy(); far.destroy(); });
    }
    near.pipe(far).pipe(near);
  });
  const listen = () => new Promise((resolve) => listener.listen(own, '127.0.0.1', resolve));
  const own = await freePort();
  await listen();
  return {
    base: `http://127.0.0.1:${own}`,
    mend: listen,
    cut: () => new Promise((resolve) => { listener.close(resolve); sockets.forEach((socket) => socket.destroy()); sockets.clear(); }),
  };
}
