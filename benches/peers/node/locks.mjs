// Acquire and release through libraries for Node, one pair after the other on one connection.
//
// usage: node locks.mjs PORT redlock|semaphore|raw SECONDS
// Warms up, says "ready", waits for a line, measures, says how many pairs took how many seconds.

import { once } from "node:events";
import Redis from "ioredis";

const [port, way, seconds] = process.argv.slice(2);
const client = new Redis({ host: "127.0.0.1", port: Number(port) });

const ways = {
  async redlock() {
    const { default: Redlock } = await import("redlock");
    const redlock = new Redlock([client]);
    return async () => {
      const lock = await redlock.acquire(["lock:redlock"], 30000);
      await lock.release();
    };
  },
  async semaphore() {
    const { Mutex } = await import("redis-semaphore");
    return async () => {
      const mutex = new Mutex(client, "lock:semaphore", { lockTimeout: 30000 });
      await mutex.acquire();
      await mutex.release();
    };
  },
  async raw() {
    const owner = "8743c9c0-0795-4907-87fd-6c719a6b4586:10";
    return async () => {
      const token = await client.call("LOCK.ACQUIRE", "lock:node:raw", owner, "PX", 30000);
      const freed = await client.call("LOCK.RELEASE", "lock:node:raw", owner);
      if (!token || freed !== 1) throw new Error("the lock was not granted, or not freed");
    };
  },
};

async function repeat(pair) {
  const start = performance.now();
  const spent = () => (performance.now() - start) / 1000;
  let pairs = 0;
  for (; spent() < Number(seconds); pairs++) await pair();
  return `${pairs} ${spent()}`;
}

const pair = await ways[way]();
await repeat(pair);
console.log("ready");
await Promise.race([once(process.stdin, "data"), once(process.stdin, "end").then(() => process.exit())]);
console.log(await repeat(pair));
process.exit();
