// The agent of the Node package: the orders of driver/ticket_agent.rs, over node-redis, ioredis and iovalkey, and above
// the server in memory (`double`).
import { createInterface } from 'node:readline';
import * as ioredis from 'ioredis';
import * as iovalkey from 'iovalkey';
import { createClient, createCluster } from 'redis';
import { LockClient } from 'redis-lock-client';
import { TestServer } from 'redis-lock-client/testing';

const [host, port, library, tag] = process.argv.slice(2);
const socket = { host, port: Number(port) };

async function connect() {
  const io = { ioredis, iovalkey }[library];
  if (io) return (tag ? new io.Cluster([socket]) : new io.Redis(socket)).on('error', () => {});
  const client = tag ? createCluster({ rootNodes: [{ socket }] }) : createClient({ socket });
  return client.on('error', () => {}).connect();
}

const redis = library === 'double' ? new TestServer() : await connect();
const running = new Map(); // what cancels each acquire
const holds = new Map(); // by key, owner and token
const over = new WeakSet(); // the holds that are released or left
const events = new Map(); // what the observer was told, by the keys with commas

const tell = (word) => (lock) => {
  const key = lock.name.replaceAll(', ', ',');
  events.set(key, [...(events.get(key) ?? []), word]);
};
const observer = {
  asked: tell('asked'),
  answered: (lock, granted, waited, error) =>
    tell(granted ? 'granted' : error === undefined ? 'refused' : 'failed')(lock),
  released: tell('released'),
  lost: tell('lost'),
  late: tell('late'),
};
const locks = new LockClient(redis, { onWarning: () => {}, observer });

// The options of the package, by words such as `queue=1`.
const NUMBERS = { queue: 'queue', replicas: 'replicas', within: 'replicasWithin', limit: 'permits', count: 'count' };
function optionsOf(lease, words) {
  const options = { lease: Number(lease) };
  for (const [name, value] of words.map((word) => word.split('='))) {
    if (name === 'mode' || name === 'note') options[name] = value;
    else if (name in NUMBERS) options[NUMBERS[name]] = Number(value);
  }
  return options;
}
const lockOf = (key, lease, words, more) => locks.lock(key.split(','), { ...optionsOf(lease, words), ...more });
const permitsOf = (key, lease, words) => locks.semaphore(key, optionsOf(lease, words));

// Waits for a lock or a permit, and remembers the hold.
async function granted(id, limiter, key, owner, wait) {
  const controller = new AbortController();
  running.set(id, controller);
  try {
    const hold = await limiter.tryAcquire({ wait: Number(wait), signal: controller.signal });
    if (hold === null) return 'nil';
    return remember(key, owner, hold);
  } catch (error) {
    if (controller.signal.aborted) return 'cancelled';
    throw error;
  }
}

function remember(key, owner, hold) {
  holds.set(`${key} ${owner} ${hold.token}`, hold);
  return `token ${hold.token}`;
}

const held = (key, owner, token) => holds.get(`${key} ${owner} ${token}`);

const orders = {
  acquire: async (id, key, owner, wait, lease, ...words) =>
    granted(id, lockOf(key, lease, words, { owner, renew: false }), key, owner, wait),
  async keep(id, key, owner, wait, lease, ...words) {
    const answer = await granted(id, lockOf(key, lease, words, { owner }), key, owner, wait);
    if (words.includes('on-lost=close')) {
      held(key, owner, answer.split(' ')[1]).signal.addEventListener('abort', async () => {
        console.log(`${id} ${await orders.close()}`);
      });
    }
    return answer;
  },
  permit: async (id, key, owner, wait, lease, ...words) => granted(id, permitsOf(key, lease, words), key, owner, wait),
  async resume(id, key, owner, token, lease, ...words) {
    const one = (words.includes('permits=yes') ? permitsOf : lockOf)(key, lease, words);
    // The package makes the id of a permit.
    return remember(key, owner, await one.resume(held(key, owner, token)?.owner ?? owner, Number(token)));
  },
  renew: (id, key, owner, token, lease) => ended(held(key, owner, token)?.renew(Number(lease))),
  release: (id, ...of) => finished(held(...of), (hold) => hold.release()),
  leave: (id, key, owner, token, rest) => finished(held(key, owner, token), (hold) => hold.leave(Number(rest))),
  state: async (id, ...of) => (held(...of).valid() ? 'held' : 'lost'),
  do: async (id, key, owner, token, ...command) => `did ${await held(key, owner, token).execute(...command)}`,
  async info(id, key) {
    const { mode, holders, waiters } = await locks.lock(key).info();
    if (mode === undefined) return 'info nil';
    return ['info', mode, waiters, ...holders.map((one) => `${one.owner}/${one.token}/${one.note ?? ''}`)].join(' ');
  },
  async 'info-permits'(id, key) {
    const { permits, free, held, waiters } = await locks.semaphore(key).info();
    return permits + waiters === 0 ? 'info nil' : `info ${permits} ${free} ${held} ${waiters}`;
  },
  async events(id, key) {
    await new Promise(setImmediate); // the package tells in a later turn
    return ['events', ...(events.get(key) ?? [])].join(' ');
  },
  async advance(id, ms) {
    await redis.advance(Number(ms));
    return 'advanced';
  },
  async break(id, key) {
    await redis.lose(key);
    return 'broken';
  },
  async 'has-replicas'(id, number) {
    redis.replicas = Number(number);
    return 'has';
  },
  async lost(id, key, owner, token) {
    const { signal } = held(key, owner, token);
    if (!signal.aborted) await new Promise((resolve) => signal.addEventListener('abort', resolve));
    return 'lost';
  },
  async close() {
    await locks.close();
    return 'closed';
  },
  async disconnect() {
    await (library === 'node-redis' ? redis.close() : redis.quit());
    return 'disconnected';
  },
  async types(id, key, owner, token) {
    const values = {
      text: 'a\u00e9',
      bytes: Buffer.from([0, 255]),
      int: -12,
      float: 0.1,
      bigint: 2n ** 70n,
      bool: true,
      null: null,
      undefined: undefined,
      list: [1],
      date: new Date(0),
    };
    const found = [];
    for (const [name, value] of Object.entries(values)) {
      await Promise.resolve().then(() => redis.set(`own:${name}`, value)).catch(() => {});
      const done = held(key, owner, token).execute('SET', `do:${name}`, value);
      found.push(`${name}=${await done.then(() => 'ok', kind)}`);
    }
    return `types ${found.join(' ')}`;
  },
  async odd(id, what) {
    const [hold] = holds.values();
    const lock = (options) => locks.lock('odd', options).tryAcquire();
    const permit = (options) => locks.semaphore('odd', options).tryAcquire();
    const odd = {
      'lease-zero': () => lock({ lease: 0 }),
      'lease-negative': () => lock({ lease: -1 }),
      'lease-short': () => lock({ lease: 1.5 }),
      'lease-huge': () => lock({ lease: 200 * 365 * 86_400_000 }),
      'wait-negative': () => locks.lock('odd').tryAcquire({ wait: -1 }),
      'margin-negative': () => lock({ margin: -1 }),
      'margin-large': () => lock({ lease: 30_000, margin: 16_000 }),
      'hold-zero': () => lock({ maxHold: 0 }),
      'note-long': () => lock({ note: 'n'.repeat(257) }),
      'note-read': () => lock({ note: 'n', mode: 'read' }),
      'note-permit': () => permit({ note: 'n', permits: 1 }),
      'owner-empty': () => lock({ owner: '' }),
      'owner-reserved': () => lock({ owner: '#o' }),
      'owner-read': () => lock({ owner: 'mode', mode: 'read' }),
      'permits-zero': () => permit({ permits: 0 }),
      'permits-huge': () => permit({ permits: 2 ** 31 }),
      'permits-lock': () => lock({ permits: 1 }),
      'permit-lease-zero': () => permit({ lease: 0, permits: 1 }),
      'renew-zero': () => hold.renew(0),
      'renew-negative': () => hold.renew(-1),
      'renew-huge': () => hold.renew(200 * 365 * 86_400_000),
    }[what];
    return odd === undefined ? 'none' : `done ${await odd()}`;
  },
};

// Its release, or what takes the place of it. 0: it had been before.
async function finished(hold, doing) {
  if (hold === undefined || over.has(hold)) return 0;
  const answer = await ended(doing(hold));
  over.add(hold);
  return answer;
}

// 0: lost, or the token of another grant.
async function ended(doing) {
  try {
    await doing;
    return doing === undefined ? 0 : 1;
  } catch (error) {
    if (error.code === 'LOST') return 0;
    throw error;
  }
}

const kinds = {
  LOST: 'lost',
  UNHEARD: 'unheard',
  CLOSED: 'closed',
  CONFIG: 'usage',
  NO_SEMAPHORE: 'no-semaphore',
  QUEUEFULL: 'queue-full',
  NOT_REPLICATED: 'not-replicated',
};
const kind = (error) => kinds[error.code] ?? 'other';

console.log('ready');
for await (const line of createInterface({ input: process.stdin })) {
  const [id, order, ...words] = line.split(' ');
  if (order === 'cancel') running.get(words[0]).abort();
  else {
    orders[order](id, ...words)
      .catch((error) => `error ${kind(error)} ${error}`.replaceAll('\n', ' '))
      .then((answer) => console.log(`${id} ${answer}`));
  }
}
