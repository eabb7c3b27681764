// The same scenarios as in Node, in a real browser.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { after, before, describe, test } from 'node:test';
import { launch } from './browser.mjs';
import { scenarios } from './scenarios.mjs';
import { Server, token } from './server.mjs';

const files = {
  '/': ['text/html', () => '<!doctype html><title>scenarios</title><script src="/centrifuge.js"></script>'],
  '/centrifuge.js': ['text/javascript', () => readFileSync(new URL('node_modules/centrifuge/dist/centrifuge.js', import.meta.url))],
  '/scenarios.mjs': ['text/javascript', () => readFileSync(new URL('scenarios.mjs', import.meta.url))],
};

describe('centrifuge-js in Chromium', () => {
  let server, pages, browser;
  before(async () => {
    server = await Server.start();
    pages = createServer((request, response) => {
      const [type, body] = files[request.url] ?? ['text/plain', () => ''];
      response.writeHead(200, { 'content-type': type }).end(body());
    });
    await new Promise((resolve) => pages.listen(0, '127.0.0.1', resolve));
    browser = await launch();
  });
  after(async () => {
    await browser?.close();
    pages?.close();
    await server?.stop();
  });

  for (const name of Object.keys(scenarios)) {
    test(name, { timeout: 30_000 }, async () => {
      const page = await browser.newPage();
      try {
        await page.exposeFunction('token', token);
        await page.exposeFunction('api', (method, body) => server.api(method, body));
        await page.exposeFunction('equal', (found, expected) => {
          try { assert.deepEqual(found, expected); return null; } catch (error) { return error.message; }
        });
        await page.goto(`http://127.0.0.1:${pages.address().port}/`);
        await page.evaluate(async ([name, url]) => {
          const { scenarios } = await import('/scenarios.mjs');
          const pending = [];
          const equal = (found, expected) => pending.push(window.equal(JSON.parse(JSON.stringify(found)), expected));
          await scenarios[name]({ client: (options = {}) => new Centrifuge(url, options), token: window.token, api: window.api, equal });
          const failures = (await Promise.all(pending)).filter(Boolean);
          if (failures.length) throw new Error(failures.join('\n'));
        }, [name, server.websocket]);
      } finally {
        await page.close();
      }
    });
  }

  test('a page from a foreign origin is refused', { timeout: 30_000 }, async () => {
    const strict = await Server.start({ change: { client: { allowed_origins: ['https://example.com'] } } });
    const page = await browser.newPage();
    await page.goto(`http://127.0.0.1:${pages.address().port}/`);
    const outcome = await page.evaluate((url) => new Promise((resolve) => {
      const socket = new WebSocket(url);
      socket.onopen = () => resolve('open');
      socket.onerror = () => resolve('refused');
    }), strict.websocket);
    await page.close();
    await strict.stop();
    assert.equal(outcome, 'refused');
  });
});
