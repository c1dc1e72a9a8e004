// Locks of the redis-lock module for ioredis, with waits by ticket. Times are in milliseconds.
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { ReplyError } from 'ioredis';
import * as locks from './redis_lock.mjs';

const OVER = new Error('no message in time');

export class Tickets {
  #open = new Map(); // by its tag, each wait: how it asks, and what it does with a message

  constructor(redis, shard = '') { // `shard`, in a cluster: the hash tag of the keys, '{invoices}'
    this.redis = redis;
    this.channel = `lock:${shard}${randomUUID()}`;
    const own = shard ? redis : redis.duplicate({ autoResubscribe: false, retryStrategy: () => 50 });
    const subscribe = () => (shard ? own.ssubscribe(this.channel) : own.subscribe(this.channel))
      .then(() => this.#open.forEach(({ ask }) => ask()), () => {}); // messages may have been lost: all ask again
    own.on(shard ? 'subscribersReady' : 'ready', subscribe).on('error', () => {});
    own.on(shard ? 'smessage' : 'message', (channel, text) => {
      const words = text.split(' ');
      if (channel === this.channel) this.#open.get(words.at(-1))?.hear(...words);
    });
    if (shard) subscribe();
  }

  // The fencing token, or null when it was not granted in time. An AbortSignal gives up.
  async acquire(key, owner, wait, lease, signal) {
    signal?.throwIfAborted();
    const [until, tag, number] = [performance.now() + wait, randomUUID(), locks.nextNumber()];
    let timer;
    try {
      return await new Promise((resolve, reject) => {
        const ask = async () => {
          const left = Math.max(1, Math.ceil(until - performance.now()));
          const words = [key, owner, 'PX', lease, 'BLOCK', left, 'NOTIFY', this.channel, tag, 'ONCE', 'SEQ', number];
          try {
            const token = await locks.call(this.redis, 'LOCK.ACQUIRE', ...words);
            if (token !== 'QUEUED') resolve(token);
          } catch (error) { // ONCE makes another request safe
            if (!(error instanceof ReplyError)) setTimeout(() => this.#open.has(tag) && ask(), 50);
            else if (!error.message.startsWith('NOSUBSCRIBER')) reject(error); // else the next subscription asks
          }
        };
        const hear = async (word, value) => {
          if (word === 'timeout') reject(OVER);
          else if (word === 'failed') reject(new ReplyError(value));
          else if (await this.renew(key, owner, value, lease).catch(() => false)) resolve(Number(value));
          else ask();
        };
        this.#open.set(tag, { ask, hear }); // before the request: the message may be quicker than the reply
        timer = setTimeout(reject, wait + 1_000, OVER);
        signal?.addEventListener('abort', () => reject(signal.reason));
        ask();
      });
    } catch (error) {
      this.#open.delete(tag);
      // What is served late grants nothing.
      const final = locks.call(this.redis, 'LOCK.RELEASE', key, owner, 'FINAL', number);
      const failed = await Promise.race([final.then(() => null), sleep(5_000, OVER, { ref: false })]).catch((e) => e);
      if (error !== OVER) throw error;
      if (failed) throw failed;
      return null;
    } finally {
      clearTimeout(timer);
      this.#open.delete(tag);
    }
  }

  renew = (...words) => locks.renew(this.redis, ...words);

  release = (...words) => locks.release(this.redis, ...words);
}
