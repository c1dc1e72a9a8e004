// Locks of the redis-lock module for ioredis. Times are in milliseconds.
import { setTimeout as sleep } from 'node:timers/promises';
import { ReplyError } from 'ioredis';

let last = Date.now() * 1_000;
export const nextNumber = () => ++last; // of an acquisition: it rises, over a restart too
// What would be sent again silently, and for how long, is decided here instead.
const ALONE = { autoResendUnfulfilledCommands: false, maxRetriesPerRequest: 0, socketTimeout: 5_000 };

// With `keyPrefix`, which ioredis puts before the keys of its own commands only.
export const call = (redis, name, key, ...words) => redis.call(name, (redis.options.keyPrefix ?? '') + key, ...words);

// The fencing token, or null when it was not granted in time.
export async function acquire(redis, key, owner, wait, lease) {
  let [until, number, token, lost] = [performance.now() + wait, nextNumber(), null, false];
  // A connection of its own: on the one of `redis` everything would wait behind a parked request.
  const own = redis.duplicate(ALONE).on('error', () => {});
  try {
    for (;;) {
      const block = Math.max(1, Math.min(2_000, Math.floor(until - performance.now())));
      try {
        token = await call(own, 'LOCK.ACQUIRE', key, owner, 'PX', lease, 'BLOCK', block, 'ONCE', 'SEQ', number);
        if (token !== null || performance.now() >= until) return token;
      } catch (error) {
        lost ||= !(error instanceof ReplyError);
        if (error instanceof ReplyError || performance.now() >= until) throw error;
        await sleep(50); // then again: ONCE makes that safe
      }
    }
  } finally { // what is still to be served grants nothing
    if (lost && token === null) await call(own, 'LOCK.RELEASE', key, owner, 'FINAL', number).catch(() => {});
    own.disconnect();
  }
}

// False: lost, stop working; and not held any more. (ioredis sends both again itself; with the token that is safe.)
export const renew = async (redis, key, owner, token, lease) =>
  1 === await call(redis, 'LOCK.RENEW', key, owner, 'PX', lease, 'TOKEN', token);
export const release = async (redis, key, owner, token) =>
  1 === await call(redis, 'LOCK.RELEASE', key, owner, 'ALL', 'TOKEN', token);
