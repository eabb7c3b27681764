// Makes the picture of the README: the fan's page and the reporter's page in the middle of the recorded match.
// Usage: node examples/match/test/screenshot.mjs docs/images/match.png
import { readFileSync } from 'node:fs';
import { launch } from '../../../tests/e2e/browser.mjs';
import { Server } from '../../../tests/e2e/server.mjs';

const EVENTS = 50;
const { events } = JSON.parse(readFileSync(new URL('../matches/city-united.json', import.meta.url)));
const server = await Server.start({ args: (port) => ['serve', '--dev', '--no-match', '--port', String(port)] });
const [, key] = /reporter#key=(\S+)/.exec(server.output);
for (const { data } of events.slice(0, EVENTS)) {
  const body = JSON.stringify({ channel: 'match:live', data });
  await fetch(`${server.http}/api/publish`, { method: 'POST', headers: { 'X-API-Key': key }, body });
}
const browser = await launch();
const page = await browser.newPage({ viewport: { width: 1380, height: 860 }, colorScheme: 'light' });
await page.goto(`${server.http}/health`);
await page.setContent(`
  <style>
    body { margin: 0; height: 860px; display: flex; gap: 24px; padding: 28px; box-sizing: border-box; background: #b5d0c1; }
    iframe { border: 0; border-radius: 18px; box-shadow: 0 12px 40px rgb(0 0 0 / 35%); height: 100%; color-scheme: light; background: #fff; }
  </style>
  <iframe src="${server.http}/" style="width: 410px"></iframe><iframe src="${server.http}/reporter#key=${key}" style="flex: 1"></iframe>`);
for (const frame of page.frames().slice(1)) await frame.locator('#state[data-state=live]').waitFor();
const reporter = page.frames().find((frame) => frame.url().includes('reporter'));
await reporter.locator('input[name=player]').fill('Paulo Marques');
await reporter.locator('fieldset').first().locator('.goal').click();
await reporter.getByText(/^Seen on the channel/).waitFor();
await page.waitForTimeout(1_500); // waits: the picture shows a page that has settled.
await page.screenshot({ path: process.argv[2] });
await browser.close();
await server.stop();
