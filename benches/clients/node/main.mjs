// The process of the contenders in Node of `make bench-clients`. It obeys the orders of python/load.py, line by line.
import { closeSync, openSync, readFileSync, readSync, writeSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { Redis } from 'ioredis';
import { LockClient } from 'redis-lock-client';
import { Mutex } from 'redis-semaphore';
import Redlock from 'redlock';

const LOCK = 'lock:clients';
const LEASE = 30_000;
/** Ends a contender that is never told to stop. */
const MOST_PAIRS = 1_000_000;
/** In one of so many pairs other contenders get the chance to come between. */
const LETS_OTHERS_RUN = 50;
const STOPS_WITHIN = 60_000;

const turn = () => new Promise(setImmediate);

/**
 * A way makes a client object. Its `lock` makes the lock of a contender, as a function that waits without an end and
 * resolves to the fencing token, undefined where the library has none, and to the function that releases.
 */
const WAYS = {
  /** No lock at all: the updates that its contenders lose show that the check of the cells works. */
  unlocked: () => ({
    lock: () => () => turn().then(() => ({ release: turn })),
    close() {},
  }),
  lock(port) {
    const redis = new Redis(port);
    const locks = new LockClient(redis);
    return {
      lock(name) {
        const lock = locks.lock(name, { lease: LEASE });
        return async () => {
          const hold = await lock.acquire();
          return { token: hold.token, release: () => hold.release() };
        };
      },
      close: () => locks.close().finally(() => redis.disconnect()),
    };
  },
  redlock(port) {
    const redis = new Redis(port);
    const locks = new Redlock([redis], { retryCount: -1 });
    return {
      lock: (name) => async () => {
        const lock = await locks.acquire([name], LEASE);
        return { release: () => lock.release() };
      },
      close: () => redis.disconnect(),
    };
  },
  semaphore(port) {
    const redis = new Redis(port);
    return {
      lock(name) {
        const mutex = new Mutex(redis, name, { lockTimeout: LEASE, acquireTimeout: Infinity });
        const release = () => mutex.release();
        return () => mutex.acquire().then(() => ({ release }));
      },
      close: () => redis.disconnect(),
    };
  },
};

/**
 * What the lock guards: a count and the last fencing token, in a file that the bench reads as well. Node maps no files:
 * each step reads or writes it in place. A lost update is a lock that two had at a time.
 */
class Guarded {
  #words = new BigInt64Array(2);

  constructor(path) {
    this.file = openSync(path, 'r+');
  }

  /** The count. Fails when a new holder's token is not above that of the one before. */
  enter(token) {
    readSync(this.file, this.#words, 0, 16, 0);
    if (token !== undefined) {
      if (BigInt(token) <= this.#words[1]) throw new Error(`token ${token} after ${this.#words[1]}`);
      this.#words[1] = BigInt(token);
      writeSync(this.file, this.#words, 0, 16, 0);
    }
    return this.#words[0];
  }

  leave(count) {
    writeSync(this.file, BigInt64Array.of(count + 1n), 0, 8, 0);
  }

  close() {
    closeSync(this.file);
  }
}

/** Contenders of one way on one lock, spread over client objects. */
class Cell {
  measuring = false;
  stopped = false;
  failure = null;
  open = [];

  constructor(way, port, contenders, clients, pause, path) {
    this.guarded = new Guarded(path);
    this.pause = Number(pause);
    this.clients = Array.from({ length: Number(clients) }, () => WAYS[way](Number(port)));
    this.contenders = Array.from({ length: Number(contenders) }, (_, number) => ({
      lock: this.clients[number % this.clients.length].lock(LOCK),
      pairs: 0,
      /** When the open wait began; 0 without one. */
      asked: 0,
      waits: [],
    }));
  }

  /** Each client object opens its connection with a pair on another lock. */
  async connect() {
    for (const client of this.clients) {
      const { release } = await client.lock(`${LOCK}:connect`)();
      await release();
    }
  }

  start() {
    this.running = Promise.all(this.contenders.map((each) => this.contend(each).catch((error) => this.fail(error))));
  }

  async contend(each) {
    while (!this.stopped && each.pairs < MOST_PAIRS) {
      each.asked = performance.now();
      const { token, release } = await each.lock();
      if (this.measuring) each.waits.push(performance.now() - each.asked);
      each.asked = 0;
      const count = this.guarded.enter(token);
      if (each.pairs % LETS_OTHERS_RUN === 0) await turn();
      this.guarded.leave(count);
      each.pairs += 1;
      await release();
      if (this.pause > 0) await new Promise((resolve) => setTimeout(resolve, this.pause));
    }
  }

  fail(error) {
    this.failure ??= String(error);
    this.stopped = true;
  }

  /** Ends the measured time. The waits that are still open count with their age. */
  endMeasured() {
    this.measuring = false;
    const moment = performance.now();
    this.open = this.contenders.filter(({ asked }) => asked > 0).map(({ asked }) => moment - asked);
  }

  /** Ends the contenders. A contender that waits is granted the lock once more. */
  async figures() {
    this.stopped = true;
    const late = setTimeout(() => {
      console.error('the contenders do not end');
      process.exit(1);
    }, STOPS_WITHIN);
    await this.running;
    clearTimeout(late);
    for (const client of this.clients) await client.close();
    this.guarded.close();
    const nanoseconds = (times) => times.map((time) => Math.round(time * 1e6));
    return JSON.stringify({
      waits: nanoseconds(this.contenders.flatMap(({ waits }) => waits)),
      grants: this.contenders.map(({ waits }) => waits.length),
      open: nanoseconds(this.open),
      pairs: this.contenders.reduce((sum, { pairs }) => sum + pairs, 0),
      failure: this.failure,
    });
  }
}

/** The libraries as package.json pins them. */
function versions() {
  const { dependencies } = JSON.parse(readFileSync(new URL('package.json', import.meta.url)));
  const found = Object.entries(dependencies).map((each) => each.join(' '));
  return `${found.join(', ')}; Node ${process.versions.node}`;
}

let cell;
for await (const line of createInterface({ input: process.stdin })) {
  const [order, ...words] = line.split(' ');
  let answer = 'done';
  if (order === 'versions') {
    answer = versions();
  } else if (order === 'cell') {
    cell = new Cell(...words);
    answer = await cell.connect().then(() => 'ready', String);
  } else if (order === 'start') {
    cell.start();
  } else if (order === 'measure') {
    cell.measuring = true;
  } else if (order === 'pause') {
    cell.endMeasured();
  } else {
    answer = await cell.figures();
  }
  console.log(answer);
}
