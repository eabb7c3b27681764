// Runs on the thread of sound: makes frames of 20 ms out of what the microphone gives, at whatever rate.

import { Framer } from './pcm.js';

class Capture extends AudioWorkletProcessor {
  #framer = new Framer(sampleRate);

  process([[channel]]) {
    for (const samples of channel ? this.#framer.take(channel) : []) this.port.postMessage({ samples, atS: currentTime });
    return true;
  }
}

registerProcessor('capture', Capture);
