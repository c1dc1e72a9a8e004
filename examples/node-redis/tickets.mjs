// Locks of the redis-lock module for node-redis, with waits by ticket. Times are in milliseconds.
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { ErrorReply } from 'redis';

const OVER = new Error('no message in time');
let last = Date.now() * 1_000; // the number of an acquisition: it rises, over a restart too

export class Tickets {
  #open = new Map(); // by its tag, each wait: how it asks, and what it does with a message

  constructor(client, shard = '') { // `shard`, in a cluster: the hash tag of the keys, '{invoices}'
    const prefix = client._keyPrefix ?? ''; // node-redis puts it before the keys of its own commands only
    this.send = (name, key, ...words) =>
      client.sendCommand(...(shard ? [shard, false] : []), [name, prefix + key, ...words.map(String)]);
    this.channel = `lock:${shard}${randomUUID()}`;
    const hear = (text) => this.#open.get(text.split(' ').at(-1))?.hear(...text.split(' '));
    const ask = () => this.#open.forEach((wait) => wait.ask()); // messages may have been lost: all ask again
    client[shard ? 'sSubscribe' : 'subscribe'](this.channel, hear).then(ask, () => {});
    if (shard) setInterval(ask, 2_000).unref(); // no event says that a cluster's client has subscribed again
    else client.on('ready', ask); // by then it has subscribed again
  }

  // The fencing token, or null when it was not granted in time. An AbortSignal gives up.
  async acquire(key, owner, wait, lease, signal) {
    signal?.throwIfAborted();
    const [until, tag, number] = [performance.now() + wait, randomUUID(), ++last];
    let timer;
    try {
      return await new Promise((resolve, reject) => {
        const ask = async () => {
          const left = Math.max(1, Math.ceil(until - performance.now()));
          const words = [key, owner, 'PX', lease, 'BLOCK', left, 'NOTIFY', this.channel, tag, 'ONCE', 'SEQ', number];
          try {
            const token = await this.send('LOCK.ACQUIRE', ...words);
            if (token !== 'QUEUED') resolve(token);
          } catch (error) { // ONCE makes another request safe
            if (!(error instanceof ErrorReply)) setTimeout(() => this.#open.has(tag) && ask(), 50);
            else if (!error.message.startsWith('NOSUBSCRIBER')) reject(error); // else the next subscription asks
          }
        };
        const hear = async (word, value) => {
          if (word === 'timeout') reject(OVER);
          else if (word === 'failed') reject(new ErrorReply(value));
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
      const final = this.send('LOCK.RELEASE', key, owner, 'FINAL', number); // also what is served late grants nothing
      const failed = await Promise.race([final.then(() => null), sleep(5_000, OVER, { ref: false })]).catch((e) => e);
      if (error !== OVER) throw error;
      if (failed) throw failed;
      return null;
    } finally {
      clearTimeout(timer);
      this.#open.delete(tag);
    }
  }

  // False: the lock is lost, stop working.
  renew = async (key, owner, token, lease) =>
    1 === await this.send('LOCK.RENEW', key, owner, 'PX', lease, 'TOKEN', token);

  // False: it was not held any more.
  release = async (key, owner, token) => 1 === await this.send('LOCK.RELEASE', key, owner, 'ALL', 'TOKEN', token);
}
