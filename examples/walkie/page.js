// The page: from the entry form to the room, and from the room's state to the view.

import { Link } from './link.js';
import { hasOpus, Microphone } from './microphone.js';
import { Room } from './room.js';
import { Speaker } from './speaker.js';
import { TalkButton } from './talk-button.js';
import { dispatcherRoom } from './token.js';
import { fillFaces, showRoom } from './view.js';
import { dialWebSocket } from './websocket.js';
import * as words from './words.js';

const $ = (id) => document.getElementById(id);
const TICK_MS = 500;

/** `#token=…&room=…`: a dispatcher's address. The token does not stay in the address bar. */
const given = new URLSearchParams(location.hash.slice(1));
history.replaceState(null, '', location.pathname + location.search);

function say(text) { $('news').textContent = text; }

function complain(text) {
  $('problem').hidden = !text;
  $('problem').textContent = text;
}

/** Shows the room: problems first, then the speaker. */
class Screen {
  #isLost = false;
  #wasLive = false;
  refusal = '';
  trouble = null; // of the microphone

  constructor(parts) { Object.assign(this, parts); }

  /** `trouble`: the trouble with the microphone, or null. Without a microphone the client does not keep the floor. */
  onMicrophone(trouble) {
    this.trouble = trouble;
    if (trouble && this.room.isWanted) {
      this.button.isHeld = false;
      this.room.unwant('microphone');
    }
    this.update();
  }

  #problem() {
    const { room } = this;
    if (room.state === 'closed') return words.closed(room.reason);
    return this.#isLost ? words.LOST : this.refusal || words.MICROPHONE[this.trouble] || '';
  }

  update() {
    const { room, microphone, speaker, button } = this;
    const wasLost = this.#isLost;
    this.#wasLive ||= room.state === 'live';
    this.#isLost = this.#wasLive && ['lost', 'connecting'].includes(room.state);
    if (wasLost && room.state === 'live') say(words.BACK);
    const problem = this.#problem();
    if (problem !== $('problem').textContent) complain(problem);
    $('again').hidden = !this.trouble || this.trouble === 'insecure';
    $('sound').hidden = speaker.isOn;
    showRoom(room, { speaker, canTalk: microphone.isOpen, isHeld: button.isHeld, say });
  }
}

/** Plays missed talks until a client speaks. */
class Replay {
  #timer = null;
  #talks = []; // those that are played, each with the moment of its end

  constructor(speaker) { this.speaker = speaker; }

  async start(talks) {
    say(`Plays what was missed: ${talks.map(({ name }) => name).join(', ')}.`);
    await this.speaker.on();
    const nowMs = performance.now();
    const ends = this.speaker.replay(talks);
    this.#talks = talks.map((talk, n) => ({ talk, endsMs: nowMs + ends[n] }));
    this.#timer = setTimeout(() => this.#end('All that was missed was played.'), ends.at(-1) ?? 0);
  }

  #end(text) {
    clearTimeout(this.#timer);
    this.#timer = null;
    say(text);
  }

  /** Stops, because a client speaks. Returns the talks that were not played to their end. */
  stop() {
    if (this.#timer === null) return [];
    this.speaker.silence();
    this.#end('Somebody speaks: the replay has ended. What is left of it is still behind the button.');
    return this.#talks.filter(({ endsMs }) => endsMs > performance.now()).map(({ talk }) => talk);
  }
}

/** The page's reactions to events in the room. */
const events = (screen, replay) => ({
  onChange: () => screen.update(),
  onFrame: (frame) => {
    const left = replay.stop();
    if (left.length) screen.room.giveBackMissed(left);
    return screen.speaker.take(frame);
  },
  onTurn: (turn) => {
    say(words.SPEAK);
    screen.microphone.start(turn.codec, (payload, capturedMs) => turn.send(payload, capturedMs)).catch(() => screen.onMicrophone('broken'));
  },
  onTurnEnd: async (reason) => {
    screen.button.isHeld = false;
    say(words.ENDED[reason]);
    await screen.microphone.stop();
  },
  onWarning: () => say(words.WARNING),
  onMissed: (seconds) => {
    $('missed').hidden = seconds === 0;
    $('missed').textContent = words.missed(seconds, screen.room.isMissedPartial);
  },
  onRefusal: (error) => {
    screen.refusal = words.refused(error);
    screen.update();
  },
});

/** The handlers of the talk button. */
const presses = (screen) => ({
  onPress: () => {
    screen.speaker.on();
    screen.refusal = '';
    if (screen.room.state !== 'live') return say(words.LOST);
    say('');
    screen.room.want();
  },
  onRelease: () => {
    const { room } = screen;
    const wasWaiting = room.isWanted && !room.turn;
    room.unwant();
    if (wasWaiting) say(words.LEFT_QUEUE);
  },
});

async function enter({ room: name, person, token }) {
  $('join').hidden = true;
  $('room').hidden = false;
  $('where').textContent = `· ${name}`;
  const codecs = (await hasOpus()) ? ['opus', 'pcm'] : ['pcm'];
  const { server } = await (await fetch('settings.json')).json();
  const speaker = new Speaker();
  const replay = new Replay(speaker);
  const link = new Link(dialWebSocket(server), { token });
  const onMicrophone = (trouble) => screen.onMicrophone(trouble);
  const screen = new Screen({ speaker, microphone: new Microphone(onMicrophone) });
  const options = { isDispatcher: dispatcherRoom(token) === name, position: remembered(name) };
  screen.room = new Room(link, name, { ...person, codecs }, events(screen, replay), options);
  screen.button = new TalkButton($('talk'), $('toggle'), presses(screen));
  $('again').onclick = async () => onMicrophone(await screen.microphone.open());
  $('sound').onclick = () => speaker.on().then(() => screen.update());
  $('missed').onclick = () => replay.start(screen.room.takeMissed());
  const remember = () => screen.room.position && localStorage.setItem(`walkie:${name}`, JSON.stringify(screen.room.position));
  addEventListener('pagehide', remember);
  $('leave').onclick = () => location.reload();
  setInterval(() => screen.update(), TICK_MS);
  link.connect();
  speaker.on();
  onMicrophone(await screen.microphone.open());
  $('talk').focus();
}

/** The stored position of this browser in the room's channel. */
function remembered(room) {
  try { return JSON.parse(localStorage.getItem(`walkie:${room}`)); } catch { return null; }
}

const form = $('join');
const token = given.get('token') ?? '';
const fixed = dispatcherRoom(token);
fillFaces($('choice'), localStorage.getItem('walkie-face'));
form.elements.name.value = localStorage.getItem('walkie-name') ?? (fixed ? 'Dispatcher' : '');
form.elements.room.value = fixed ?? given.get('room') ?? localStorage.getItem('walkie-room') ?? 'team';
form.elements.room.readOnly = Boolean(fixed);
form.onsubmit = (event) => {
  event.preventDefault();
  const { room, name, face } = Object.fromEntries(new FormData(form));
  for (const [key, value] of Object.entries({ room, name, face })) localStorage.setItem(`walkie-${key}`, value);
  enter({ room, person: { name: name.trim(), face }, token }).catch((error) => complain(`This page does not work: ${error.message}.`));
};
