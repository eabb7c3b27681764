// The texts of the page and the terminal. Pure.

export const MICROPHONE = {
  insecure: 'No microphone: browsers give it only to pages of https:// or of localhost. You can listen.',
  denied: 'No microphone: this page is not permitted to use it. Permit it in the address bar and press “Try the microphone again”. You can listen.',
  none: 'No microphone: this device has none. Plug one in and press “Try the microphone again”. You can listen.',
  busy: 'No microphone: another program uses it. Close that and press “Try the microphone again”. You can listen.',
  broken: 'No microphone: this browser cannot record sound here. You can listen.',
  ended: 'The microphone was unplugged or switched off. You can listen.',
};

const ORDINALS = ['', '1st', '2nd', '3rd'];
export const ordinal = (n) => ORDINALS[n] ?? `${n}th`;

/** Why a talk of this client has ended; empty if the client ended it itself. */
export const ENDED = {
  released: '',
  limit: 'Your time is over: a talk has 30 seconds. Press again to speak again.',
  dispatcher: 'The dispatcher speaks. Your talk has ended.',
  taken: 'The floor was taken from you.',
  lost: 'The link was lost. Your talk is not sent any more.',
  microphone: 'Your talk has ended, for the microphone is gone.',
};

export const WARNING = 'Your time is over in 5 seconds.';
export const LOST = 'Link lost: nothing that you say is sent. Trying to come back…';
export const BACK = 'The link is back.';
export const LEFT_QUEUE = 'You are not in the queue any more.';
export const SPEAK = 'You have the floor. Speak now.';

export function closed(reason) { return `The server does not let this page in: ${reason || 'the connection was closed'}. Reload the page to try again.`; }
export function refused(error) { return `The server has refused: ${error.message}.`; }

/** The floor is taken, or another client is earlier in the queue. */
export function waiting(speaker, place) {
  const who = !speaker ? 'The floor is about to be given.' : speaker.isDispatcher ? `The dispatcher ${speaker.name} speaks.` : `${speaker.name} has the floor.`;
  return place > 0 ? `${who} You are ${ordinal(place)} in the queue.` : who;
}

export function missed(seconds, isPartial) {
  const all = `Play what was missed (${Math.max(1, Math.round(seconds))} s)`;
  return isPartial ? `${all}; what is older is not kept` : all;
}
