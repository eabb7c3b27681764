// Shows a room.

import { CHOICE, FACES } from './faces.js';
import { LIMIT_MS } from './floor.js';
import * as words from './words.js';

const SVG = 'http://www.w3.org/2000/svg';
const MOODS = { talking: 'Speak now', waiting: 'Waiting…' };
const STATES = { connecting: 'Connecting…', live: 'Connected', lost: 'Link lost', closed: 'Not connected' };

const $ = (id) => document.getElementById(id);

/** Shows a text. `parts`: the same text with drawings. */
function put(element, text, parts = () => [text]) {
  if (element.textContent !== text) element.replaceChildren(...parts());
}

function drawing(face) {
  const svg = document.createElementNS(SVG, 'svg');
  svg.setAttribute('viewBox', '0 0 24 24');
  svg.setAttribute('aria-hidden', 'true');
  for (const part of ['lines', 'solid'].filter((name) => FACES[face][name])) {
    const path = svg.appendChild(document.createElementNS(SVG, 'path'));
    path.setAttribute('class', part);
    path.setAttribute('d', FACES[face][part]);
  }
  return svg;
}

/** A drawing, and its label for screen readers. */
function labelled(face) {
  return [drawing(face), Object.assign(document.createElement('span'), { className: 'unseen', textContent: FACES[face].label })];
}

export function fillFaces(parent, chosen) {
  const first = CHOICE.includes(chosen) ? chosen : CHOICE[0];
  for (const face of CHOICE) {
    const label = document.createElement('label');
    const input = Object.assign(document.createElement('input'), { type: 'radio', name: 'face', value: face, checked: face === first });
    input.setAttribute('aria-label', FACES[face].label);
    const sign = document.createElement('span');
    sign.append(drawing(face));
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
    put(sign, FACES[face].label, () => labelled(face));
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
  if (!isFloorKnown) put($('speaker'), 'Who speaks is not known now.');
  else if (isOurs) put($('speaker'), 'You speak');
  else if (!speaker) put($('speaker'), 'The floor is free.');
  else {
    // The role is before the face, where no name can be.
    const [role, name] = [speaker.isDispatcher ? 'Dispatcher ' : '', ` ${speaker.name} speaks`];
    put($('speaker'), `${role}${FACES[speaker.face].label}${name}`, () => [role, ...labelled(speaker.face), name]);
  }
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
