// Parts that the tests of the walkie-talkie share: the server with this example's configuration, its pages, and a browser whose microphone
// beeps.
import { launch } from '../../../tests/e2e/browser.mjs';
import { until } from '../../../tests/e2e/patience.mjs';
import { freePort, Server, token } from '../../../tests/e2e/server.mjs';
import { servePages } from '../pages.mjs';

const SECRET = 'the-secret-of-the-tests-of-the-walkie-talkie';
export const KEY = 'the-key-of-the-tests';

const config = new URL('../touchline.toml', import.meta.url).pathname;

/** The server, with lines over TCP on `tcp`, and a listener for the pages on `pages`. */
export async function start() {
  const tcp = await freePort();
  Object.assign(process.env, { TOUCHLINE_TCP_PORT: String(tcp), TOUCHLINE_HTTP_API_KEY: KEY, TOUCHLINE_CLIENT_TOKEN_HMAC_SECRET_KEY: SECRET });
  const server = await Server.start({ args: (port) => ['serve', '--dev', '--no-match', '--port', String(port), '--config', config] });
  for (const name of ['TOUCHLINE_TCP_PORT', 'TOUCHLINE_HTTP_API_KEY', 'TOUCHLINE_CLIENT_TOKEN_HMAC_SECRET_KEY']) delete process.env[name];
  const listeners = [];
  /** The address of pages that connect to the server at this address. */
  const pagesFor = async (websocket) => {
    const port = await freePort();
    listeners.push(await servePages(port, websocket));
    return `http://127.0.0.1:${port}`;
  };
  return {
    server, tcp, pagesFor, pages: await pagesFor(server.websocket),
    stop: async () => {
      listeners.forEach((listener) => { listener.close(); listener.closeAllConnections(); });
      await server.stop();
    },
  };
}

export const dispatcherToken = (room) => token({
  sub: 'dispatcher', exp: Math.floor(Date.now() / 1000) + 3600, register: { floor: [`dispatch/${room}`] }, groups: [{ scope: 'floor', group: `dispatch/${room}` }],
}, SECRET);

export const expiredToken = (room) => token({ sub: room, exp: Math.floor(Date.now() / 1000) - 60 }, SECRET);

/** Chromium with a microphone that beeps once a second. `isDenied`: the page gets no permission to use it. */
export function launchWithMicrophone({ isDenied = false, hasNone = false } = {}) {
  // A hidden page keeps its timers.
  const awake = ['--disable-background-timer-throttling', '--disable-renderer-backgrounding', '--disable-backgrounding-occluded-windows'];
  const microphone = [...(hasNone ? [] : ['--use-fake-device-for-media-stream']), ...(isDenied ? ['--deny-permission-prompts'] : ['--use-fake-ui-for-media-stream'])];
  return launch(['--autoplay-policy=no-user-gesture-required', ...awake, ...microphone]);
}

/**
 * A page in the room, in a separate browser context. `standsStill`: the page's timers, its time and the clocks of its sound move only by
 * `page.clock.runFor`, so that the load of the machine cannot make a frame late. Such a page takes a link without messages for lost after
 * 8 s of its time. `isGated`: what the microphone records is said only as far as `letSay` permits, so that the load cannot change the number
 * of frames. A page that stands still listens, or talks if it is gated: the clock of its microphone moves.
 */
export async function enter(browser, url, { room, name, token: given, keepsTracks = false, standsStill = false, isGated = false, ...options }) {
  const context = await browser.newContext({ viewport: { width: 390, height: 844 }, ...options });
  const page = await context.newPage();
  if (standsStill) {
    await page.clock.install({ time: 0 });
    await page.clock.pauseAt(1_000);
  }
  if (standsStill && !isGated) {
    await page.addInitScript(() => {
      Object.defineProperty(BaseAudioContext.prototype, 'currentTime', { get: () => performance.now() / 1000 });
    });
  }
  if (isGated) {
    await page.addInitScript(() => {
      globalThis.framesToSay = 0;
      const { encode } = AudioEncoder.prototype;
      AudioEncoder.prototype.encode = function encodePermitted(sound) {
        if (globalThis.framesToSay === 0) return;
        globalThis.framesToSay -= 1;
        encode.call(this, sound);
      };
    });
  }
  // Records the tracks of the microphone, for a test that unplugs it.
  if (keepsTracks) {
    await page.addInitScript(() => {
      globalThis.tracks = [];
      const { mediaDevices } = navigator;
      const open = mediaDevices.getUserMedia.bind(mediaDevices);
      mediaDevices.getUserMedia = async (wanted) => {
        const stream = await open(wanted);
        globalThis.tracks.push(...stream.getAudioTracks());
        return stream;
      };
    });
  }
  page.faults = [];
  page.on('pageerror', (error) => page.faults.push(error.message));
  page.on('console', (message) => message.type() === 'error' && !/WebSocket connection|ERR_CONNECTION/.test(message.text()) && page.faults.push(message.text()));
  await page.goto(`${url}/#${new URLSearchParams({ room, ...(given && { token: given }) })}`);
  await page.getByLabel('Your name').fill(name);
  await page.getByRole('button', { name: 'Join' }).click();
  await page.locator('#state[data-state=live]').waitFor();
  return page;
}

export const talkButton = (page) => page.locator('#talk');
/** The counters of this moment. The button that starts the sound refreshes what the page shows, without a timer. */
export const counters = (page) => page.evaluate(async () => {
  await document.getElementById('sound').onclick();
  const { dataset } = document.getElementById('counters');
  return Object.fromEntries(Object.entries(dataset).map(([key, value]) => [key, Number(value)]));
});
export const news = (page) => page.locator('#news').innerText();
export const mood = (page) => page.locator('#room').getAttribute('data-mood');

/** Waits until the microphone works. */
export const isReady = (page) => page.locator('#talk[aria-disabled=false]').waitFor();

/** Holds the button down. */
export async function press(page) {
  await isReady(page);
  await talkButton(page).hover();
  await page.mouse.down();
}
/** Holds the button of a page that stands still, until it has the floor. It asks for the floor in a timer. */
export async function pressStill(page) {
  await press(page);
  await until(async () => {
    await page.clock.runFor(1);
    return (await mood(page)) === 'talking';
  }, 'the page has the floor');
}

/** Lets a gated page say this many frames more. The end of its talk adds one: the rest of the sound in the encoder. */
export const letSay = (page, frames) => page.evaluate((count) => { globalThis.framesToSay += count; }, frames);

export const release = (page) => page.mouse.up();

