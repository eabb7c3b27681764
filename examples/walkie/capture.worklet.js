// Runs on the audio thread: cuts the microphone's samples, at any rate, into frames of 20 ms.

import { Framer } from './pcm.js';

class Capture extends AudioWorkletProcessor {
  #framer = new Framer(sampleRate);

  process([[channel]]) {
    for (const samples of channel ? this.#framer.take(channel) : []) this.port.postMessage({ samples, atS: currentTime });
    return true;
  }
}

registerProcessor('capture', Capture);
