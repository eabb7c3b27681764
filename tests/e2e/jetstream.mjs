// A minimal NATS client that publishes into a stream of JetStream. It uses the text protocol of NATS and no package.
import { connect } from 'node:net';

export class JetStream {
  static connect(port, host = '127.0.0.1') {
    const client = new JetStream();
    Object.assign(client, { buffer: Buffer.alloc(0), waiting: new Map(), serial: 0, inbox: `_INBOX.${Math.random().toString(36).slice(2)}` });
    client.socket = connect(port, host);
    client.socket.on('data', (bytes) => client.take(bytes));
    client.socket.on('error', (error) => client.fail(error));
    client.socket.on('close', () => client.fail(new Error('NATS has closed the connection')));
    client.socket.write(`CONNECT {"verbose":false,"headers":true}\r\nSUB ${client.inbox}.* 1\r\n`);
    return new Promise((resolve, reject) => {
      client.socket.once('connect', () => resolve(client));
      client.socket.once('error', reject);
    });
  }

  fail(error) {
    for (const { reject } of this.waiting.values()) reject(error);
    this.waiting.clear();
  }

  take(bytes) {
    this.buffer = Buffer.concat([this.buffer, bytes]);
    for (let end = this.buffer.indexOf('\r\n'); end >= 0; end = this.buffer.indexOf('\r\n')) {
      const words = this.buffer.subarray(0, end).toString().split(' ');
      if (words[0] === 'PING') this.socket.write('PONG\r\n');
      if (words[0] !== 'MSG' && words[0] !== 'HMSG') {
        this.buffer = this.buffer.subarray(end + 2);
        continue;
      }
      const length = Number(words.at(-1));
      if (this.buffer.length < end + 2 + length + 2) return;
      const skipped = words[0] === 'HMSG' ? Number(words.at(-2)) : 0;
      const text = this.buffer.subarray(end + 2 + skipped, end + 2 + length).toString();
      this.buffer = this.buffer.subarray(end + 2 + length + 2);
      const waiting = this.waiting.get(words[1]);
      this.waiting.delete(words[1]);
      const reply = text ? JSON.parse(text) : { error: { description: 'no responders' } };
      if (reply.error) waiting?.reject(new Error(JSON.stringify(reply.error)));
      else waiting?.resolve(reply);
    }
  }

  /** Sends a message and returns the reply. */
  request(subject, payload = '', headers = {}) {
    const reply = `${this.inbox}.${this.serial++}`;
    const body = Buffer.from(payload);
    const names = Object.entries(headers);
    const replied = new Promise((resolve, reject) => this.waiting.set(reply, { resolve, reject }));
    if (names.length === 0) {
      this.socket.write(`PUB ${subject} ${reply} ${body.length}\r\n`);
    } else {
      const head = `NATS/1.0\r\n${names.map(([name, value]) => `${name}: ${value}\r\n`).join('')}\r\n`;
      this.socket.write(`HPUB ${subject} ${reply} ${head.length} ${head.length + body.length}\r\n${head}`);
    }
    this.socket.write(Buffer.concat([body, Buffer.from('\r\n')]));
    return replied;
  }

  create(name, subjects, storage = 'memory', num_replicas = 1) { return this.request(`$JS.API.STREAM.CREATE.${name}`, JSON.stringify({ name, subjects, storage, num_replicas })); }
  streams() { return this.request('$JS.API.STREAM.LIST', '{}'); }
  remove(name) { return this.request(`$JS.API.STREAM.DELETE.${name}`); }
  consumer(stream, name) { return this.request(`$JS.API.CONSUMER.INFO.${stream}.${name}`); }
  publish(subject, payload, headers) { return this.request(subject, payload, headers); }
  close() { this.socket.destroy(); }
}
