// A client without rules: it uses the link of this example, and publishes any bytes.
import { encodeFrame, FRAME_MS, FRAME_SAMPLES, newTalk } from '../frames.js';
import { dialLines } from '../lines.mjs';
import { Link } from '../link.js';

export async function rawClient(tcp, room) {
  const link = new Link(dialLines('127.0.0.1', tcp));
  await new Promise((resolve) => {
    link.subscribe(`talk:${room}`, { onSubscribed: resolve });
    link.connect();
  });
  let talk = newTalk();
  let sequence = 0;
  let timer;
  return {
    link,
    /** Registers a name. From then on it speaks a new talk. */
    async register(name = `floor/${room}`) {
      const next = newTalk();
      await link.rpc('registry.register', { scope: 'floor', name, meta: { name: 'Rogue', face: 'devil', talk: next } });
      talk = next;
    },
    /** Publishes noise in real time until `quiet` is called. */
    speak() {
      timer = setInterval(() => {
        const payload = new Uint8Array(2 * FRAME_SAMPLES).fill(77);
        link.publish(`talk:${room}`, encodeFrame({ codec: 'pcm', sequence: sequence++, capturedMs: Date.now(), talk, payload })).catch(() => {});
      }, FRAME_MS);
    },
    quiet: () => clearInterval(timer),
    close() { clearInterval(timer); link.disconnect(); },
  };
}
