// How long tests wait. This module has no imports, because pages in browsers load it, too.

/** The time in ms that a test waits for an event. It is several times as long as a busy machine stands still. */
export const PATIENCE = 120_000;

/** The options of a test. A test may wait for several events. */
export const LIMIT = { timeout: 600_000 };

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/**
 * Waits until a condition holds, and returns its value. If the condition throws an error, it does not hold yet.
 * `what`: the awaited event in words, or a function that returns the words.
 */
export async function until(condition, what = `${condition}`) {
  let last;
  for (const end = Date.now() + PATIENCE; Date.now() < end; await sleep(20)) {
    try {
      const value = await condition();
      if (value) return value;
    } catch (error) {
      last = error;
    }
  }
  const words = typeof what === 'function' ? await what() : what;
  throw new Error(`waited too long for: ${typeof words === 'string' ? words : JSON.stringify(words)}${last ? `; the last error: ${last.message}` : ''}`);
}
