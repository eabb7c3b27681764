// The site that `./x docs` builds: its links, its pictures and its search work in a browser, without any other host.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { createServer } from 'node:http';
import { extname, join, normalize, relative } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { launch } from './browser.mjs';
import { LIMIT } from './patience.mjs';

const root = new URL('../../', import.meta.url).pathname;
const site = join(root, 'target/docs/site');
const types = { '.html': 'text/html; charset=utf-8', '.css': 'text/css', '.js': 'text/javascript', '.json': 'application/json', '.svg': 'image/svg+xml', '.png': 'image/png' };

function pages(directory = site) {
  return readdirSync(directory, { withFileTypes: true }).flatMap((entry) => {
    const path = join(directory, entry.name);
    return entry.isDirectory() ? pages(path) : entry.name.endsWith('.html') ? [path] : [];
  });
}

describe('the site', () => {
  let server, browser, address;
  before(async () => {
    // A link or an anchor without a target, and a page outside the menu, make this fail.
    execFileSync(join(root, 'x'), ['docs'], { cwd: root, stdio: 'inherit' });
    server = createServer((request, response) => {
      const path = join(site, normalize(decodeURIComponent(new URL(request.url, 'http://localhost').pathname)));
      if (!existsSync(path) || !extname(path)) return response.writeHead(404).end();
      response.writeHead(200, { 'content-type': types[extname(path)] ?? 'application/octet-stream' }).end(readFileSync(path));
    });
    await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
    address = `http://127.0.0.1:${server.address().port}`;
    browser = await launch();
  });
  after(async () => {
    await browser?.close();
    server?.close();
  });

  test('every picture of a diagram is drawn, and nothing is loaded from another host', LIMIT, async () => {
    const withDiagrams = pages().filter((path) => readFileSync(path, 'utf8').includes('class="mermaid"'));
    assert.ok(withDiagrams.length >= 8, `${withDiagrams.length} pages`);
    const page = await browser.newPage();
    const [foreign, errors] = [[], []];
    page.on('request', (request) => { if (!/^(data|blob):/.test(request.url()) && !request.url().startsWith(address)) foreign.push(request.url()); });
    page.on('pageerror', (error) => errors.push(`${page.url()}: ${error}`));
    for (const path of withDiagrams) {
      const count = readFileSync(path, 'utf8').split('<pre class="mermaid"').length - 1;
      await page.goto(`${address}/${relative(site, path)}`);
      // The theme replaces each block by a drawing of some height.
      await page.waitForFunction((count) => [...document.querySelectorAll('div.mermaid')].filter((div) => div.clientHeight > 40).length === count, count);
    }
    assert.deepEqual({ foreign, errors }, { foreign: [], errors: [] });
  });

  test('the search finds a page by a word of it', LIMIT, async () => {
    const page = await browser.newPage();
    await page.goto(`${address}/index.html`);
    await page.keyboard.press('/');
    await page.keyboard.type('publish_proxy_enabled');
    const found = page.locator('a[href*="hooks.html"], a[href*="configuration.html"]').filter({ hasText: /publish_proxy_enabled/i });
    await found.first().waitFor();
  });
});
