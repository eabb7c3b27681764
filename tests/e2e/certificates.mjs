// Makes certificates for one test run with openssl.
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const openssl = (...words) => execFileSync('openssl', words, { stdio: ['ignore', 'ignore', 'pipe'] });
const KEY = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes'];

export class Authority {
  constructor() {
    this.directory = mkdtempSync(join(tmpdir(), 'touchline-tls-'));
    openssl('req', '-x509', ...KEY, '-keyout', this.path('ca.key'), '-out', this.path('ca.pem'), '-days', '2', '-subj', '/CN=Test authority');
    writeFileSync(this.path('names'), 'subjectAltName=DNS:localhost,IP:127.0.0.1');
  }

  path(name) { return join(this.directory, name); }
  get ca() { return readFileSync(this.path('ca.pem')); }

  /** Makes NAME.pem and NAME.key, and replaces existing files. */
  issue(name, subject) {
    openssl('req', ...KEY, '-keyout', this.path('new.key'), '-out', this.path('csr'), '-subj', subject);
    openssl('x509', '-req', '-in', this.path('csr'), '-CA', this.path('ca.pem'), '-CAkey', this.path('ca.key'), '-CAcreateserial', '-out', this.path('new.pem'), '-days', '2', '-extfile', this.path('names'));
    for (const kind of ['key', 'pem']) writeFileSync(this.path(`${name}.${kind}`), readFileSync(this.path(`new.${kind}`)));
    return { cert: readFileSync(this.path(`${name}.pem`)), key: readFileSync(this.path(`${name}.key`)) };
  }

  destroy() { rmSync(this.directory, { recursive: true, force: true }); }
}
