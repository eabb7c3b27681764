// A client without rules: it uses the link of this example, and publishes any bytes.
import { until } from '../../../tests/e2e/patience.mjs';
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
  const publish = (byte = 77) => {
    const payload = new Uint8Array(2 * FRAME_SAMPLES).fill(byte);
    const bytes = encodeFrame({ codec: 'pcm', sequence, capturedMs: sequence * FRAME_MS, talk, payload });
    sequence += 1;
    return () => link.publish(`talk:${room}`, bytes);
  };
  return {
    link,
    /** Registers a name. From then on it speaks a new talk. */
    async register(name = `floor/${room}`) {
      const next = newTalk();
      await link.rpc('registry.register', { scope: 'floor', name, meta: { name: 'Rogue', face: 'devil', talk: next } });
      talk = next;
      sequence = 0;
    },
    unregister: (name = `floor/${room}`) => link.rpc('registry.unregister', { scope: 'floor', name }),
    /** Publishes frames, each when the server has accepted the one before: as fast as the server's limit of rate permits. */
    async say(frames, byte) {
      for (let n = 0; n < frames; n++) {
        const send = publish(byte);
        await until(async () => send().then(() => true), 'the server accepts a frame');
      }
    },
    /** Publishes noise in real time until the client is closed. */
    speak() { timer = setInterval(() => publish()().catch(() => {}), FRAME_MS); },
    close() { clearInterval(timer); link.disconnect(); },
  };
}
