// Commands from a table of PostgreSQL or from a stream of NATS, while nodes are killed and frozen.
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { JetStream } from './jetstream.mjs';
import { Nats } from './nats.mjs';
import { LIMIT, until } from './patience.mjs';
import { Postgres } from './postgres.mjs';
import { KEY, Server } from './server.mjs';

/** The number of times that a node is killed. */
const KILLS = process.env.TOUCHLINE_LONG ? 100 : process.env.TOUCHLINE_FULL ? 5 : 2;
const KEPT = { history_size: 100_000, history_ttl: '1h' };

let postgres;
let tables = 0;
before(async () => { postgres = await Postgres.start(); });
after(async () => { await postgres?.stop(); });

/** Makes a separate table, as the guide does. */
async function outbox() {
  const table = `outbox_${tables++}`;
  await postgres.sql(`CREATE TABLE ${table} (id bigserial PRIMARY KEY, method text NOT NULL, payload jsonb NOT NULL,
    partition integer NOT NULL DEFAULT 0, created_at timestamptz NOT NULL DEFAULT now())`);
  return table;
}

const consumer = (table, more = {}) => ({
  name: table, enabled: true, type: 'postgresql',
  postgresql: { dsn: postgres.url, outbox_table_name: table, partition_poll_interval: '50ms', ...more },
});
const insert = (table, method, payload, partition = 0) =>
  postgres.sql(`INSERT INTO ${table} (method, payload, partition) VALUES ('${method}', '${JSON.stringify(payload)}', ${partition})`);
/** Inserts the numbers from `first` to `last` for the channels `<prefix>0` to `<prefix>4`. With several partitions, each channel has its own. */
const insertNumbers = (table, prefix, first, last, partitions = 1) =>
  postgres.sql(`INSERT INTO ${table} (method, payload, partition) SELECT 'publish',
    jsonb_build_object('channel', '${prefix}' || (i % 5), 'data', i), (i % 5) % ${partitions} FROM generate_series(${first}, ${last}) i`);
const waiting = async (table) => Number(await postgres.sql(`SELECT count(*) FROM ${table}`));
const isEmpty = (table) => until(async () => (await waiting(table)) === 0, `${table} to be empty`);
const data = async (server, channel, limit = 100_000) =>
  (await server.api('history', { channel, limit })).result.publications.map((publication) => publication.data);
/** The expected content of each channel of `insertNumbers`. */
const numbers = (channel, last) => Array.from({ length: last }, (_, n) => n + 1).filter((n) => n % 5 === channel);
const metric = (server, name, consumerName, more = '') => server.metric(name, `consumer="${consumerName}"${more}`);

test('rows are carried out in their order, and what cannot be is put aside with its reason', LIMIT, async () => {
  const table = await outbox();
  await insert(table, 'publish', { channel: 'history:a', data: { n: 1 }, tags: { sport: 'chess' } });
  await insert(table, 'publish', JSON.stringify({ channel: 'history:a', data: { n: 2 } }));
  await insert(table, 'publish', { channel: 'none:a', data: 1 });
  await insert(table, 'publish', 7);
  await insert(table, 'no_such_method', {});
  await insert(table, 'broadcast', { channels: ['history:a', 'history:b'], data: { n: 3 } });
  await insert(table, 'broadcast', { channels: ['history:b', 'none:b'], data: { n: 4 } });
  await insert(table, 'history_remove', { channel: 'history:b' });
  await insert(table, 'disconnect', { user: 'nobody' });
  await insert(table, 'publish', { channel: 'history:a', data: { n: 5 }, idempotency_key: 'mine' });
  await insert(table, 'publish', { channel: 'history:a', data: { n: 6 }, idempotency_key: 'mine' });
  const server = await Server.start({ change: { consumers: [consumer(table)] } });
  try {
    await isEmpty(table);
    assert.deepEqual((await data(server, 'history:a')).map(({ n }) => n), [1, 2, 3, 5]);
    assert.deepEqual(await data(server, 'history:b'), []);
    const dead = (await postgres.sql(`SELECT id || ' ' || method || ' ' || error FROM ${table}_dead ORDER BY number`)).split('\n');
    assert.deepEqual(dead.map((line) => line.slice(0, 30)), [
      '3 publish 102: unknown channel', '4 publish the payload is not a '.slice(0, 30).padEnd(30, 'J'),
      '5 no_such_method no consumer c', '7 broadcast 102: unknown chann',
    ], dead.join('\n'));
    for (const [outcome, count] of [['processed', 7], ['failed', 4]]) {
      await until(async () => (await metric(server, 'consumer_commands_total', table, `,outcome="${outcome}"`)) === count, `${count} ${outcome}`);
    }
  } finally {
    await server.stop();
  }
});

test('a notification wakes a partition, and rows that no consumer reads are counted', LIMIT, async () => {
  const table = await outbox();
  await postgres.sql(`CREATE FUNCTION ${table}_told() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN PERFORM pg_notify('${table}', NEW.partition::text); RETURN NULL; END $$;
    CREATE TRIGGER told AFTER INSERT ON ${table} FOR EACH ROW EXECUTE FUNCTION ${table}_told()`);
  await insert(table, 'publish', { channel: 'history:a', data: 0 }, 2);
  const more = { num_partitions: 2, partition_poll_interval: '1h', partition_notification_channel: table };
  const server = await Server.start({ change: { consumers: [consumer(table, more)] } });
  try {
    await until(async () => (await metric(server, 'consumer_unread', table)) === 1, 'the row is counted');
    assert.match(server.output, /rows are in partitions that nobody reads/);
    for (let n = 1; n <= 6; n++) {
      await insert(table, 'publish', { channel: 'history:a', data: n }, n % 2);
      await until(async () => (await data(server, 'history:a')).length === n, `publication ${n}`);
    }
    // The consumer deletes a row after its publication.
    await until(async () => (await waiting(table)) === 1, 'only the row that nobody reads waits');
  } finally {
    await server.stop();
  }
});

test('a table that is not there yet, and a database that goes away, are waited for', LIMIT, async () => {
  const own = await Postgres.start();
  const settings = consumer('later');
  settings.postgresql.dsn = own.url;
  const server = await Server.start({ change: { consumers: [settings] } });
  try {
    await server.until(() => /there is no table later/.test(server.output));
    await own.sql(`CREATE TABLE later (id bigserial PRIMARY KEY, method text NOT NULL, payload jsonb NOT NULL, partition integer NOT NULL DEFAULT 0)`);
    const add = (n) => own.sql(`INSERT INTO later (method, payload) VALUES ('publish', '{"channel": "history:a", "data": ${n}}')`);
    await add(1);
    await until(async () => (await data(server, 'history:a')).length === 1, 'the first');
    await own.kill();
    await until(async () => (await (await fetch(`${server.http}/readyz`)).json()).consumers_stuck?.[0] === 'later', 'it is told');
    await own.again();
    await add(2);
    await until(async () => (await data(server, 'history:a')).length === 2, 'the second');
    assert.deepEqual(await data(server, 'history:a'), [1, 2]);
    await until(async () => !(await (await fetch(`${server.http}/readyz`)).json()).consumers_stuck, 'it gets on');
    assert.doesNotMatch(server.output, /postgres:\/\//, 'no address with a password is logged');
  } finally {
    await server.stop();
    await own.stop();
  }
});

test('the guide works as it is pasted', LIMIT, async () => {
  const page = readFileSync(new URL('../../docs/guides/consumers.md', import.meta.url), 'utf8');
  const section = page.split(/^## /m).find((part) => part.startsWith('A table of PostgreSQL'));
  const [table, toml, insertion, trigger] = [...section.matchAll(/^```(?:sql|toml)\n([^]*?)^```$/gm)].map(([, text]) => text);
  await postgres.sql("CREATE TABLE orders (id int, state text); INSERT INTO orders VALUES (42, 'new')");
  await postgres.sql(table);
  await postgres.sql(insertion);
  const directory = mkdtempSync(join(tmpdir(), 'consumers-'));
  const file = join(directory, 'touchline.toml');
  const args = (port) => {
    const own = `[http_server]\naddress = "127.0.0.1"\nport = ${port}\n[http_api]\nkey = "${KEY}"\n[health]\nenabled = true\n`
      + '[client]\nallow_anonymous_connect_without_token = true\n[[channel.namespaces]]\nname = "news"\nhistory_size = 10\nhistory_ttl = "1m"\n';
    writeFileSync(file, own + toml.replace(/dsn = .*/, `dsn = "${postgres.url}"`));
    return ['serve', '--config', file];
  };
  const server = await Server.start({ args });
  try {
    await until(async () => (await data(server, 'news:live', 10)).length === 1, 'the publication');
    await postgres.sql(trigger);
    await postgres.sql(insertion);
    await until(async () => (await data(server, 'news:live', 10)).length === 2, 'the other one');
    assert.deepEqual((await data(server, 'news:live', 10))[0], { order: 42, state: 'paid' });
  } finally {
    await server.stop();
    rmSync(directory, { recursive: true });
  }
});

const durable = (table, url, more) => ({
  history: { ...KEPT, durable: true }, store: { primary: { url } }, consumers: [consumer(table, more)],
});

for (const [name, isSame] of [['exactly once into durable channels of the same database', true], ['once by their keys into another database', false]]) {
  test(`through ${KILLS} kills of the node rows are published ${name}, in order`, LIMIT, async () => {
    const table = await outbox();
    const directory = mkdtempSync(join(tmpdir(), 'consumers-'));
    const url = isSame ? postgres.url : `sqlite:${join(directory, 'primary.db')}`;
    const prefix = `history:${table}_`;
    const change = durable(table, url, { partition_select_limit: 50 });
    let [server, last] = [null, 0];
    try {
      for (let kill = 0; kill < KILLS; kill++) {
        server = await Server.start({ change });
        await insertNumbers(table, prefix, last + 1, last + 2_000);
        last += 2_000;
        const left = Math.floor(Math.random() * 1_900);
        await until(async () => (await waiting(table)) <= left, 'some of it');
        await server.stop('SIGKILL');
      }
      server = await Server.start({ change });
      await isEmpty(table);
      for (let channel = 0; channel < 5; channel++) {
        assert.deepEqual(await data(server, `${prefix}${channel}`), numbers(channel, last));
      }
      // With a key, a row that was published twice would not be visible.
      if (isSame) assert.equal(await postgres.sql(`SELECT count(*) FROM touchline.idempotency k JOIN touchline.channel c ON c.id = k.channel WHERE c.name LIKE '${prefix}%'`), '0');
    } finally {
      await server?.stop();
      rmSync(directory, { recursive: true });
    }
  });
}

test('two nodes share the partitions, and a frozen one loses its own within seconds', LIMIT, async () => {
  const table = await outbox();
  const prefix = `history:${table}_`;
  const change = durable(table, postgres.url, { partition_select_limit: 20, num_partitions: 5 });
  const servers = await Promise.all([Server.start({ change }), Server.start({ change })]);
  try {
    await insertNumbers(table, prefix, 1, 5_000, 5);
    await until(async () => (await waiting(table)) < 4_500, 'some of it');
    servers[0].process.kill('SIGSTOP');
    await isEmpty(table);
    await insertNumbers(table, prefix, 5_001, 5_500, 5);
    await isEmpty(table);
    servers[0].process.kill('SIGCONT');
    await insertNumbers(table, prefix, 5_501, 6_000, 5);
    await isEmpty(table);
    for (const server of servers) {
      for (let channel = 0; channel < 5; channel++) {
        assert.deepEqual(await data(server, `${prefix}${channel}`), numbers(channel, 6_000));
      }
    }
  } finally {
    servers[0].process.kill('SIGCONT');
    await Promise.all(servers.map((server) => server.stop()));
  }
});

test('what may succeed later is tried again until it does, and nothing overtakes it', LIMIT, async () => {
  const [table, nats] = [await outbox(), await Nats.start()];
  const server = await Server.start({ change: {
    history: KEPT, cluster: { engine: 'nats', nats_url: [nats.url] }, consumers: [consumer(table)],
  } });
  try {
    await insertNumbers(table, 'history:', 1, 100);
    await isEmpty(table);
    await nats.kill();
    await insertNumbers(table, 'history:', 101, 200);
    await until(async () => (await metric(server, 'consumer_commands_total', table, ',outcome="retried"')) >= 3, 'it is retried');
    assert.equal(await waiting(table), 100);
    await nats.run();
    await isEmpty(table);
    for (let channel = 0; channel < 5; channel++) {
      assert.deepEqual(await data(server, `history:${channel}`), numbers(channel, 200));
    }
    assert.equal(await postgres.sql(`SELECT count(*) FROM ${table}_dead`), '0');
  } finally {
    await server.stop();
    await nats.stop();
  }
});

const streamConsumer = (nats, more = {}) => ({
  name: 'news', enabled: true, type: 'nats_jetstream',
  nats_jetstream: { url: nats.url, stream_name: 'NEWS', durable_consumer_name: 'touchline', deliver_policy: 'all', subjects: ['news.>'], ...more },
});

test('messages of a stream are carried out once, by method, by envelope and as data', LIMIT, async () => {
  const nats = await Nats.start();
  const stream = await JetStream.connect(nats.port);
  await stream.create('NEWS', ['news.>', 'data.>', 'other.>']);
  await stream.publish('news.a', JSON.stringify({ method: 'publish', payload: { channel: 'history:a', data: 1 } }));
  await stream.publish('news.a', JSON.stringify({ channel: 'history:a', data: 2 }), { 'centrifugo-method': 'publish' });
  await stream.publish('other.a', JSON.stringify({ method: 'publish', payload: { channel: 'history:a', data: 'of another subject' } }));
  await stream.publish('news.a', 'junk');
  await stream.publish('news.a', JSON.stringify({ method: 'publish', payload: { channel: 'none:a', data: 1 } }));
  await stream.publish('data.a', '3.50', { 'centrifugo-channels': 'history:a', 'centrifugo-tag-sport': 'chess', 'centrifugo-version': '7' });
  await stream.publish('data.a', '4', { 'centrifugo-channels': 'history:a,history:b' });
  await stream.publish('data.a', '5', { 'centrifugo-channels': 'history:a', 'centrifugo-version': 'junk' });
  const asData = { ...streamConsumer(nats, { subjects: ['data.>'], durable_consumer_name: 'data', publication_data_mode: { enabled: true } }), name: 'data' };
  const server = await Server.start({ change: { consumers: [streamConsumer(nats), asData] } });
  try {
    await until(async () => (await data(server, 'history:a')).length >= 4, 'four publications');
    assert.deepEqual((await data(server, 'history:a')).sort(), [1, 2, 3.5, 4]);
    assert.deepEqual(await data(server, 'history:b'), [4]);
    await until(async () => (await metric(server, 'consumer_commands_total', 'news', ',outcome="failed"')) === 2, 'the bad ones');
    await until(async () => (await metric(server, 'consumer_commands_total', 'data', ',outcome="failed"')) === 1, 'the bad one');
    await until(async () => (await stream.consumer('NEWS', 'touchline')).num_ack_pending === 0, 'all are acknowledged');
    // A stream that is deleted and made again is read again.
    await stream.remove('NEWS');
    await stream.create('NEWS', ['news.>', 'data.>']);
    await stream.publish('news.a', JSON.stringify({ method: 'publish', payload: { channel: 'history:b', data: 8 } }));
    await until(async () => (await data(server, 'history:b')).at(-1) === 8, 'the new stream');
  } finally {
    await server.stop();
    stream.close();
    await nats.stop();
  }
});

test('NATS that is away, at the start or later, is waited for', LIMIT, async () => {
  const nats = await Nats.start();
  let stream = await JetStream.connect(nats.port);
  await stream.create('NEWS', ['news.>'], 'file');
  stream.close();
  await nats.kill('SIGTERM');
  const server = await Server.start({ change: { consumers: [streamConsumer(nats)] } });
  const publish = async (n) => {
    stream = await JetStream.connect(nats.port);
    await until(() => stream.publish('news.a', JSON.stringify({ method: 'publish', payload: { channel: 'history:a', data: n } })), 'JetStream');
    stream.close();
    await until(async () => (await data(server, 'history:a')).length === n, `publication ${n}`);
  };
  try {
    await server.until(() => /a consumer waits: connecting to NATS/.test(server.output));
    await nats.run();
    await publish(1);
    await nats.kill('SIGTERM');
    await server.until(async () => (await (await fetch(`${server.http}/readyz`)).json()).consumers_stuck?.[0] === 'news');
    await nats.run();
    await publish(2);
    assert.deepEqual(await data(server, 'history:a'), [1, 2]);
  } finally {
    await server.stop();
    await nats.stop();
  }
});

test(`through ${KILLS} kills of the node no message of a stream is lost or published twice`, LIMIT, async () => {
  const [nats, table] = [await Nats.start(), await outbox()];
  const stream = await JetStream.connect(nats.port);
  await stream.create('NEWS', ['news.>']);
  const [prefix, change] = [`history:${table}_`, { ...durable(table, postgres.url), consumers: [streamConsumer(nats)] }];
  let [server, last] = [null, 0];
  const stored = async () => Number(await postgres.sql(`SELECT count(*) FROM touchline.publication p JOIN touchline.channel c ON c.id = p.channel WHERE c.name LIKE '${prefix}%'`));
  try {
    for (let kill = 0; kill < KILLS; kill++) {
      server = await Server.start({ change });
      for (let n = last + 1; n <= last + 200; n++) {
        await stream.publish('news.a', JSON.stringify({ method: 'publish', payload: { channel: `${prefix}${n % 5}`, data: n } }));
      }
      last += 200;
      const least = last - 1 - Math.floor(Math.random() * 190);
      await until(async () => (await stored()) >= least, 'some of it');
      await server.stop('SIGKILL');
    }
    server = await Server.start({ change });
    await until(async () => (await stored()) >= last, 'all of it');
    await until(async () => (await stream.consumer('NEWS', 'touchline')).num_ack_pending === 0, 'all are acknowledged');
    for (let channel = 0; channel < 5; channel++) {
      const found = await data(server, `${prefix}${channel}`);
      assert.deepEqual(found.toSorted((a, b) => a - b), numbers(channel, last));
    }
  } finally {
    await server?.stop();
    stream.close();
    await nats.stop();
  }
});

test('a consumer that cannot be had stops the start, and says why', LIMIT, async () => {
  for (const [change, why] of [
    [{ name: 'a_b', type: 'kafka' }, /consumers\[a_b\]\.type: expected one of "", "postgresql", "nats_jetstream", found "kafka", which is not supported/],
    [{ name: 'a_b' }, /consumers\[a_b\]\.type: missing/],
    [{ name: 'a', type: 'postgresql' }, /expected two to 64/],
    [{ ...consumer('x; DROP TABLE users'), name: 'shop' }, /outbox_table_name: expected a name/],
    [{ name: 'shop', enabled: true, type: 'postgresql' }, /postgresql\.dsn: missing/],
    [{ name: 'shop', enabled: true, type: 'nats_jetstream' }, /stream_name: missing/],
  ]) {
    await assert.rejects(Server.start({ change: { consumers: [change] }, seconds: 20 }), why);
  }
});
