// Shows a room.

import { LIMIT_MS } from './floor.js';
import * as words from './words.js';

export const FACES = [
  ['🦊', 'Fox'], ['🐻', 'Bear'], ['🐸', 'Frog'], ['🦉', 'Owl'], ['🐙', 'Octopus'], ['🦁', 'Lion'], ['🐼', 'Panda'], ['🐝', 'Bee'],
];
const MOODS = { talking: 'Speak now', waiting: 'Waiting…' };
const STATES = { connecting: 'Connecting…', live: 'Connected', lost: 'Link lost', closed: 'Not connected' };

const $ = (id) => document.getElementById(id);

function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function fillFaces(parent, chosen) {
  for (const [face, name] of FACES) {
    const label = document.createElement('label');
    const input = Object.assign(document.createElement('input'), { type: 'radio', name: 'face', value: face, checked: face === chosen });
    input.setAttribute('aria-label', name);
    const sign = Object.assign(document.createElement('span'), { textContent: face, ariaHidden: 'true' });
    label.append(input, sign);
    parent.append(label);
  }
}

/** A list of faces with names. Rows that stay are not rebuilt, so that screen readers keep their place. */
function list(parent, people) {
  people.forEach(({ face, name, note, isSpeaking }, n) => {
    const row = parent.children[n] ?? parent.appendChild(document.createElement('li'));
    if (!row.children.length) row.append(...['face', 'name', 'note'].map((className) => Object.assign(document.createElement('span'), { className })));
    const [sign, title, remark] = row.children;
    sign.ariaHidden = 'true';
    put(sign, face);
    put(title, name);
    put(remark, note);
    row.classList.toggle('speaking', Boolean(isSpeaking));
  });
  while (parent.children.length > people.length) parent.lastElementChild.remove();
}

/** The state of the floor for this client in one word, for the button and the style sheet. */
function mood(room, speaker) {
  if (room.turn) return 'talking';
  if (room.isWanted) return 'waiting';
  return speaker ? 'hearing' : 'free';
}

/** A screen reader announces the speaker, but not the remaining time each second. */
function showSpeaker({ isFloorKnown }, speaker, isOurs, nowMs) {
  // The role is before the face, where no name can be.
  const who = isOurs ? 'You speak' : speaker && `${speaker.isDispatcher ? 'Dispatcher ' : ''}${speaker.face} ${speaker.name} speaks`;
  put($('speaker'), !isFloorKnown ? 'Who speaks is not known now.' : (who || 'The floor is free.'));
  const leftMs = isFloorKnown && speaker ? LIMIT_MS - (nowMs - speaker.sinceMs) : 0;
  put($('left'), leftMs > 0 ? `· ${Math.ceil(leftMs / 1000)} s` : '');
}

/**
 * @param {Room} room
 * @param {{speaker: Speaker, canTalk: boolean, isHeld: boolean, say: (text: string) => void}} more
 */
export function showRoom(room, { speaker: sound, canTalk, isHeld, say }) {
  const nowMs = Date.now();
  const { floor, link } = room;
  const speaker = floor.speaker(nowMs);
  const isOurs = speaker?.client === link.client;
  const now = mood(room, speaker);
  put($('state'), STATES[room.state]);
  $('state').dataset.state = room.state;
  showSpeaker(room, speaker, isOurs, nowMs);
  $('room').dataset.mood = now;
  const talk = $('talk');
  // The accessible name of a pressed button does not change; its other text is announced in the news.
  put($('talk-name'), room.isDispatcher ? 'Interrupt and talk' : 'Talk');
  put($('talk-mood'), MOODS[now] ?? '');
  talk.setAttribute('aria-pressed', String(isHeld));
  // Not `disabled`: the button would lose the focus, and a screen reader its place.
  talk.setAttribute('aria-disabled', String(!canTalk || room.state === 'closed'));
  put($('how'), $('toggle').checked ? 'Press the button or the space bar, speak, and press again.' : 'Hold the button or the space bar, and speak.');
  // Announced when it changes, not each second.
  const told = now === 'waiting' ? words.waiting(speaker, room.place) : '';
  if (told && told !== room.told) say(told);
  room.told = told;
  const own = (client) => (client === link.client ? 'you' : '');
  const row = (client, entry) => ({ ...entry, note: own(client), isSpeaking: client === speaker?.client });
  list($('queue'), floor.queue.map((client) => row(client, floor.waiting.get(client))));
  $('nobody').hidden = floor.waiting.size > 0;
  list($('people'), [...floor.people].map(([client, entry]) => {
    const roles = [own(client), floor.dispatchers.has(client) && 'dispatcher', client === speaker?.client && 'speaks', floor.waiting.has(client) && 'waits'];
    return { ...row(client, entry), note: roles.filter(Boolean).join(', ') };
  }));
  showCounters(room, sound);
}

function showCounters(room, { heardS, late, missing, peak }) {
  const said = (room.sent * 0.02).toFixed(1);
  const { ignored, sent, sentOpus, dropped } = room;
  const heard = `Heard ${heardS.toFixed(1)} s, ${late} frames late, ${missing} missing, ${ignored} ignored.`;
  put($('counters'), `${heard} Said ${said} s, ${dropped} frames dropped.`);
  const sound = { heard: heardS.toFixed(2), late, missing, ignored, sent, dropped, opus: sentOpus, peak: peak.toFixed(3) };
  Object.assign($('counters').dataset, sound);
}
