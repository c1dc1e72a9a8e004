// The agent of the Node package: the orders of driver/ticket_agent.rs, over node-redis and over ioredis.
import { createInterface } from 'node:readline';
import { Cluster, Redis } from 'ioredis';
import { createClient, createCluster } from 'redis';
import { LockClient } from 'redis-lock-client';

const [host, port, library, tag] = process.argv.slice(2);
const socket = { host, port: Number(port) };

async function connect() {
  if (library === 'ioredis') return (tag ? new Cluster([socket]) : new Redis(socket)).on('error', () => {});
  const client = tag ? createCluster({ rootNodes: [{ socket }] }) : createClient({ socket });
  return client.on('error', () => {}).connect();
}

const locks = new LockClient(await connect(), { onWarning: () => {} });
const running = new Map(); // what cancels each acquire
const holds = new Map(); // by key, owner and token

const orders = {
  async acquire(id, key, owner, wait, lease) {
    const controller = new AbortController();
    running.set(id, controller);
    try {
      const lock = locks.lock(key, { owner, lease: Number(lease), renew: false });
      const hold = await lock.tryAcquire({ wait: Number(wait), signal: controller.signal });
      if (hold === null) return 'nil';
      holds.set(`${key} ${owner} ${hold.token}`, hold);
      return `token ${hold.token}`;
    } catch (error) {
      if (controller.signal.aborted) return 'cancelled';
      throw error;
    }
  },
  renew: (id, key, owner, token, lease) => ended(holds.get(`${key} ${owner} ${token}`)?.renew(Number(lease))),
  release: (id, key, owner, token) => ended(holds.get(`${key} ${owner} ${token}`)?.release()),
};

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

console.log('ready');
for await (const line of createInterface({ input: process.stdin })) {
  const [id, order, ...words] = line.split(' ');
  if (order === 'cancel') running.get(words[0]).abort();
  else {
    orders[order](id, ...words)
      .catch((error) => `error ${error}`.replaceAll('\n', ' '))
      .then((answer) => console.log(`${id} ${answer}`));
  }
}
process.exit();
