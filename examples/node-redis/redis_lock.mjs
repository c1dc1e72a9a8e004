// Locks of the redis-lock module for node-redis. Times are in milliseconds.
import { setTimeout as sleep } from 'node:timers/promises';
import { ErrorReply } from 'redis';

// The fencing token, or null when it was not granted in time.
export async function acquire(client, key, owner, wait, lease) {
  const until = performance.now() + wait;
  // A connection of its own: on the client's everything would wait behind a parked request.
  const socket = { ...client.options.socket, socketTimeout: 5_000, reconnectStrategy: false };
  const own = client.duplicate({ socket }).on('error', () => {});
  try {
    for (;;) {
      const block = Math.max(1, Math.min(2_000, Math.floor(until - performance.now())));
      const words = ['LOCK.ACQUIRE', key, owner, 'PX', lease, 'BLOCK', block, 'ONCE'];
      try {
        if (!own.isOpen) await own.connect();
        const token = await own.sendCommand(words.map(String));
        if (token !== null || performance.now() >= until) return token;
      } catch (error) {
        if (error instanceof ErrorReply || performance.now() >= until) throw error;
        await sleep(50); // then again: ONCE makes that safe
      }
    }
  } finally {
    if (own.isOpen) own.destroy();
  }
}

// False: the lock is lost, stop working.
export const renew = (client, key, owner, token, lease) =>
  twice(client, ['LOCK.RENEW', key, owner, 'PX', lease, 'TOKEN', token]);

// False: it was not held any more.
export const release = (client, key, owner, token) =>
  twice(client, ['LOCK.RELEASE', key, owner, 'ALL', 'TOKEN', token]);

async function twice(client, words) { // with the token in it that is safe
  const send = () => client.sendCommand(words.map(String));
  return 1 === await send().catch((e) => (e instanceof ErrorReply ? Promise.reject(e) : send()));
}
