// Certificates from an ACME authority: the server orders them, proves its names by TLS or HTTP, stores and renews them.
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import https from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, afterEach, describe, test } from 'node:test';
import tls from 'node:tls';
import { Centrifuge } from 'centrifuge';
import WebSocket from 'ws';
import { Authority } from './certificates.mjs';
import { LIMIT, PATIENCE, until } from './patience.mjs';
import { Pebble } from './pebble.mjs';
import { freePort, Server } from './server.mjs';

const authority = new Authority();
const caches = mkdtempSync(join(tmpdir(), 'touchline-acme-'));
after(() => {
  authority.destroy();
  rmSync(caches, { recursive: true, force: true });
});
/** Ends the processes that a test has left running. */
const running = [];
afterEach(async () => {
  for (const one of running.splice(0)) await one.stop();
});
const authorize = async (ports) => {
  const pebble = await Pebble.start(authority, ports);
  running.push(pebble);
  return pebble;
};
const cache = () => mkdtempSync(join(caches, 'cache-'));
const kept = (cache_dir) => join(cache_dir, readdirSync(cache_dir)[0]);

/** The certificate that the server uses for a name, or the reason why it has none. */
const certificate = (port, servername, options = {}) => new Promise((resolve, reject) => {
  const socket = tls.connect({ host: '127.0.0.1', port, servername, rejectUnauthorized: false, ...options }, () => {
    resolve({ names: socket.getPeerCertificate().subjectaltname, serial: socket.getPeerCertificate().serialNumber, protocol: socket.alpnProtocol });
    socket.destroy();
  }).once('error', reject);
});
function fan(port, pebble) {
  class Secure extends WebSocket { constructor(url, protocols) { super(url, protocols, { ca: pebble.roots, servername: 'live.example', checkServerIdentity: () => undefined }); } }
  const client = new Centrifuge(`wss://127.0.0.1:${port}/connection/websocket`, { websocket: Secure });
  client.connect();
  return client;
}
const holds = (port, servername) => async () => Boolean(await certificate(port, servername));

async function serve(pebble, port, autocert, { ready = holds(port, 'live.example'), change = {}, http = {} } = {}) {
  const tls_autocert = { enabled: true, host_whitelist: ['live.example'], directory_url: pebble.directory, ca_pem: authority.path('ca.pem'), ...autocert };
  const server = await Server.start({ port, ready, change: { ...change, http_server: { tls_autocert, ...http } } });
  running.push(server);
  return server;
}

describe('ACME', () => {
  test('names are proved by TLS; SDKs and devices come in; the certificate is kept and served again without the authority', LIMIT, async () => {
    const [port, tcp_port, cache_dir] = [await freePort(), await freePort(), cache()];
    const pebble = await authorize({ tls: port });
    const hosts = { cache_dir, host_whitelist: ['live.example', 'Devices.example'], email: 'operator@live.example' };
    const change = { tcp: { enabled: true, address: '127.0.0.1', port: tcp_port, tls: { enabled: true } } };
    const server = await serve(pebble, port, hosts, { change, ready: holds(port, 'devices.example') });
    const first = await certificate(port, 'live.example');
    assert.equal(first.names, 'DNS:live.example');
    assert.equal((await certificate(port, 'DEVICES.example')).names, 'DNS:devices.example');
    assert.equal((await certificate(port, undefined)).names, 'DNS:live.example', 'whoever names nothing gets the first');
    assert.equal((await certificate(tcp_port, 'devices.example', { ca: pebble.roots, rejectUnauthorized: true })).names, 'DNS:devices.example');
    await assert.rejects(certificate(port, 'elsewhere.example'));
    await assert.rejects(certificate(port, 'live.example', { ALPNProtocols: ['acme-tls/1'] }), 'nothing is to be proved now');
    const client = fan(port, pebble);
    await client.ready(PATIENCE);
    client.disconnect();
    const intermediates = readFileSync(join(kept(cache_dir), 'live.example.pem'), 'utf8').match(/BEGIN CERTIFICATE/g).length;
    assert.ok(intermediates > 1, 'the chain is kept too');
    for (const name of ['account.json', 'live.example.pem', 'devices.example.pem']) assert.equal(statSync(join(kept(cache_dir), name)).mode & 0o777, 0o600, name);
    assert.equal(await server.stop(), 0);
    await pebble.stop();
    const again = await serve(pebble, port, hosts);
    assert.equal((await certificate(port, 'live.example')).serial, first.serial);
    assert.equal(await again.stop(), 0);
  });

  test('names are proved by HTTP, which sends everything else to https', LIMIT, async () => {
    const [port, http_port] = [await freePort(), await freePort()];
    const pebble = await authorize({ http: http_port });
    const server = await serve(pebble, port, { cache_dir: cache(), http: true, http_addr: `127.0.0.1:${http_port}`, ca_pem: authority.ca.toString('base64') });
    assert.equal((await certificate(port, 'live.example')).names, 'DNS:live.example');
    const ask = (path, options = {}) => fetch(`http://127.0.0.1:${http_port}${path}`, { redirect: 'manual', ...options });
    const sent = await ask('/connection/websocket?a=1');
    assert.deepEqual([sent.status, sent.headers.get('location')], [302, 'https://127.0.0.1/connection/websocket?a=1']);
    assert.equal((await ask('/api/publish', { method: 'POST', body: '{}' })).status, 400);
    assert.equal((await ask('/.well-known/acme-challenge/none')).status, 404);
    assert.equal(await server.stop(), 0);
  });

  test('where every client must have a certificate, the authority proves names without one', LIMIT, async () => {
    const port = await freePort();
    const pebble = await authorize({ tls: port });
    const lamp = authority.issue('lamp', '/CN=lamp-7');
    const http = { tls: { client_ca_pem: authority.path('ca.pem'), client_auth: 'require', client_user: 'common_name' } };
    const with_certificate = { ...lamp, ca: pebble.roots };
    const server = await serve(pebble, port, { cache_dir: cache() }, { http, ready: async () => Boolean(await certificate(port, 'live.example', with_certificate)) });
    const health = (options) => new Promise((resolve, reject) => {
      https.get({ host: '127.0.0.1', port, path: '/health', servername: 'live.example', ca: pebble.roots, agent: false, ...options }, (response) => resolve(response.statusCode)).once('error', reject);
    });
    assert.equal(await health(lamp), 200);
    await assert.rejects(health({}));
    assert.equal(await server.stop(), 0);
  });

  test('certificates are renewed while clients stay, also by an authority that has forgotten the account', LIMIT, async () => {
    const [port, cache_dir] = [await freePort(), cache()];
    const pebble = await authorize({ tls: port, lives: 24 });
    const server = await serve(pebble, port, { cache_dir });
    const first = await certificate(port, 'live.example');
    const client = fan(port, pebble);
    await client.ready(PATIENCE);
    let ended = false;
    client.once('connecting', () => (ended = true));
    await pebble.pause();
    await pebble.run();
    await until(async () => (await certificate(port, 'live.example')).serial !== first.serial, 'another certificate');
    assert.equal(ended, false);
    client.disconnect();
    assert.equal(await server.stop(), 0);
  });

  test('the log has the reason why a name cannot be proved, and other names get their certificates', LIMIT, async () => {
    const [port, cache_dir] = [await freePort(), cache()];
    const pebble = await authorize({ tls: port });
    const server = await serve(pebble, port, { cache_dir, host_whitelist: ['refused.example', 'live.example'] });
    assert.equal((await certificate(port, 'live.example')).names, 'DNS:live.example');
    await assert.rejects(certificate(port, 'refused.example'));
    assert.match(server.output, /refused\.example.*rejectedIdentifier/);
    assert.match(server.output, /again_in.*120s/);
    assert.equal(await server.stop(), 0);
  });

  test('an account with a customer of the authority; a broken file in the directory; an authority that is not trusted', LIMIT, async () => {
    const [port, cache_dir] = [await freePort(), cache()];
    const secret = Buffer.alloc(32, 7).toString('base64url');
    const pebble = await authorize({ tls: port, more: { externalAccountBindingRequired: true, externalAccountMACKeys: { 'kid-1': secret } } });
    const complains = async (autocert, pattern) => {
      const server = await serve(pebble, port, { cache_dir, ...autocert }, { ready: async () => true });
      await server.until(() => pattern.test(server.output));
      assert.doesNotMatch(server.output, new RegExp(secret));
      await server.stop();
    };
    await complains({}, /externalAccountRequired/);
    await complains({ ca_pem: '', eab_kid: 'kid-1', eab_hmac_key: secret }, /invalid peer certificate/);
    writeFileSync(join(kept(cache_dir), 'live.example.pem'), 'half a certificate');
    const server = await serve(pebble, port, { cache_dir, eab_kid: 'kid-1', eab_hmac_key: secret });
    assert.match(server.output, /a stored certificate can't be used and is ignored/);
    assert.equal((await certificate(port, 'live.example')).names, 'DNS:live.example');
    assert.equal(await server.stop(), 0);
  });
});
