// The talks that a client missed: the frames in the channel's history that the other clients heard. Pure.

import { LIMIT_MS } from './floor.js';
import { decodeFrame, FRAME_MS, laterMs } from './frames.js';

/**
 * Talks in the order in which they began, each with its frames in the order in which they were recorded.
 * A frame counts only if its client had the floor for its talk, before another talk began, and within the limit of a talk.
 * @param {object[]} publications in the order of the channel
 * @param {(client: string, talk: number) => object | undefined} speakerOf the speaker who had the floor for this talk
 * @param {Set<string>} own ids that this client has had, because a client does not need to hear its own talk
 */
export function missedTalks(publications, speakerOf, own) {
  const talks = [];
  for (const { data, info, time } of publications) {
    const frame = decodeFrame(data);
    const speaker = frame && info && speakerOf(info.client, frame.talk);
    if (!speaker) continue;
    const isOf = (talk) => talk?.client === info.client && talk.number === frame.talk;
    if (!isOf(talks.at(-1))) {
      if (talks.some(isOf)) continue;
      talks.push({ client: info.client, number: frame.talk, beganMs: time, name: speaker.name, face: speaker.face, frames: new Map() });
    }
    const talk = talks.at(-1);
    if (time - talk.beganMs < LIMIT_MS) talk.frames.set(frame.sequence, frame);
  }
  return talks.filter(({ client }) => !own.has(client)).map(({ frames, ...talk }) => {
    const inOrder = [...frames.values()].sort((one, other) => laterMs(one.capturedMs, other.capturedMs) || one.sequence - other.sequence);
    return { ...talk, frames: inOrder, seconds: (inOrder.length * FRAME_MS) / 1000 };
  });
}
