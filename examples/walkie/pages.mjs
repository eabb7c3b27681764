// Serves the pages of this folder, and tells them the address of the server. Usage: node pages.mjs PORT ws://HOST:PORT/connection/websocket

import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { pathToFileURL } from 'node:url';

const TYPES = { html: 'text/html; charset=utf-8', css: 'text/css; charset=utf-8', js: 'text/javascript; charset=utf-8' };

/** @returns {Promise<import('node:http').Server>} listening on this machine only */
export function servePages(port, server) {
  const listener = createServer(async ({ url }, response) => {
    const [pathname] = url.split('?');
    if (pathname === '/settings.json') return response.setHeader('Content-Type', 'application/json').end(JSON.stringify({ server }));
    // Only files directly in this folder.
    const [, name = 'index.html', ending = 'html'] = /^\/(?:([\w.-]+\.(html|css|js)))?$/.exec(pathname) ?? [null, ''];
    const body = name && (await readFile(new URL(name, import.meta.url)).catch(() => null));
    if (!body) return response.writeHead(404).end('not found');
    response.writeHead(200, { 'Content-Type': TYPES[ending], 'Cache-Control': 'no-cache' }).end(body);
  });
  return new Promise((resolve, reject) => listener.on('error', reject).listen(port, '127.0.0.1', () => resolve(listener)));
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) await servePages(Number(process.argv[2]), process.argv[3]);
