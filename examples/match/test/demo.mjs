// The demo for the tests of its pages: the real server without its recorded match, and pages that record their errors.
import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { Server } from '../../../tests/e2e/server.mjs';

export async function startDemo(port) {
  const server = await Server.start({ port, args: (free) => ['serve', '--dev', '--no-match', '--port', String(free)] });
  // The server may answer before its banner has been read.
  const told = () => /reporter#key=(\S+)/.exec(server.output)?.[1];
  for (const end = Date.now() + 30_000; !told() && Date.now() < end; await sleep(20));
  const key = told();
  assert.ok(key, `the banner tells the reporter's address: ${server.output}`);
  return { server, key };
}

/** A connected page in a separate browser context. */
export async function openPage(browser, url, options = {}) {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  page.faults = [];
  page.on('pageerror', (error) => page.faults.push(error.message));
  page.on('console', (message) => message.type() === 'error' && !/WebSocket connection|ERR_CONNECTION|401/.test(message.text()) && page.faults.push(message.text()));
  await page.goto(url);
  await page.locator('#state[data-state=live]').waitFor();
  return page;
}

export async function until(condition, what) {
  for (const end = Date.now() + 30_000; Date.now() < end; await sleep(25)) if (await condition()) return;
  assert.fail(`in vain: ${what}`);
}
