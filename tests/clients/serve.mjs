// What the agents of Node's clients share: reads orders, writes answers, as driver/agent.rs lists them.
// `raw` sends an acquire without the helper on `plain`, a client as it comes.
import { createInterface } from 'node:readline';
import { acquire, release, renew } from './redis_lock.mjs';

const shown = (token) => (token === null ? 'nil' : `token ${token}`);

export async function serve(client, plain, raw) {
  async function pingBehind(...request) {
    const waiting = raw(...request).catch(() => {}); // only the PING is measured
    const start = performance.now();
    await plain.ping();
    const took = Math.round(performance.now() - start);
    await waiting;
    return `ping ${took}`;
  }

  const orders = {
    acquire: async (key, owner, wait, lease) =>
      shown(await acquire(client, key, owner, Number(wait), Number(lease))),
    renew: async (...words) => Number(await renew(client, ...words)),
    release: async (...words) => Number(await release(client, ...words)),
    raw: async (...request) => shown(await raw(...request)),
    'ping-behind': pingBehind,
  };

  console.log('ready');
  for await (const line of createInterface({ input: process.stdin })) {
    const [order, ...words] = line.split(' ');
    if (order === 'quit') break;
    try {
      console.log(await orders[order](...words));
    } catch (error) {
      console.log(`error ${error}`.replaceAll('\n', ' '));
    }
  }
  process.exit();
}
