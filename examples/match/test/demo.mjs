// The demo for the tests of its pages: the real server without its recorded match, and pages that record their errors.
import { until } from '../../../tests/e2e/patience.mjs';
import { Server } from '../../../tests/e2e/server.mjs';

export async function startDemo(port) {
  const server = await Server.start({ port, args: (free) => ['serve', '--dev', '--no-match', '--port', String(free)] });
  // The server may answer before its banner has been read.
  const told = () => /reporter#key=(\S+)/.exec(server.output)?.[1];
  const key = await until(told, () => `the address of the reporter in the banner: ${server.output}`);
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

