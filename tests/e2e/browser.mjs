// Starts Chromium in the same way for all tests.
import { existsSync } from 'node:fs';
import { chromium } from 'playwright-core';
import { PATIENCE } from './patience.mjs';

/** `more`: arguments of Chromium. */
export async function launch(more = []) {
  const executablePath = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find(existsSync);
  if (!executablePath) throw new Error('the tests need Chromium (Debian package chromium)');
  const quiet = ['--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'];
  const browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-gpu', ...quiet, ...more] });
  browser.on('context', (context) => context.setDefaultTimeout(PATIENCE));
  return browser;
}
