// Locks of the redis-lock module for ioredis. Times are in milliseconds.
import { setTimeout as sleep } from 'node:timers/promises';
import { ReplyError } from 'ioredis';

// What would be sent again silently, and for how long, is decided here instead.
const ALONE = { autoResendUnfulfilledCommands: false, maxRetriesPerRequest: 0, socketTimeout: 5_000 };

// The fencing token, or null when it was not granted in time.
export async function acquire(redis, key, owner, wait, lease) {
  const until = performance.now() + wait;
  // A connection of its own: on the one of `redis` everything would wait behind a parked request.
  const own = redis.duplicate(ALONE).on('error', () => {});
  try {
    for (;;) {
      const block = Math.max(1, Math.min(2_000, Math.floor(until - performance.now())));
      const options = ['PX', lease, 'BLOCK', block, 'ONCE'];
      try {
        const token = await own.call('LOCK.ACQUIRE', key, owner, ...options);
        if (token !== null || performance.now() >= until) return token;
      } catch (error) {
        if (error instanceof ReplyError || performance.now() >= until) throw error;
        await sleep(50); // then again: ONCE makes that safe
      }
    }
  } finally {
    own.disconnect();
  }
}

// False: the lock is lost, stop working. (ioredis sends it again itself; with the token that is safe.)
export async function renew(redis, key, owner, token, lease) {
  return 1 === (await redis.call('LOCK.RENEW', key, owner, 'PX', lease, 'TOKEN', token));
}

// False: it was not held any more.
export async function release(redis, key, owner, token) {
  return 1 === (await redis.call('LOCK.RELEASE', key, owner, 'ALL', 'TOKEN', token));
}
