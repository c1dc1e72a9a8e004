// The agent of redlock for Node: reads orders, writes answers, as driver/strings.rs lists them.
import { createInterface } from 'node:readline';
import { Redis } from 'ioredis';
import Redlock from 'redlock';

const [host, port, , lease] = process.argv.slice(2);
const KEY = 'string-lock';
const connect = (options) => new Redis({ host, port, ...options }).on('error', () => {});
const redlock = new Redlock([connect()]);
redlock.on('clientError', () => {});

// Tries on after the library has given up: by default it does so after 11 tries.
async function lock() {
  for (;;) {
    try {
      return await redlock.lock(KEY, Number(lease));
    } catch {}
  }
}

async function contend(threads, rounds) {
  let [left, released, refused, unsure] = [rounds, 0, 0, 0];
  const work = async () => {
    const plain = connect({ maxRetriesPerRequest: 0 });
    while (left-- > 0) {
      const held = await lock();
      try {
        await plain.set('counter', Number(await plain.get('counter')) + 1);
      } catch {
        unsure++;
      }
      await held.unlock().then(() => released++, () => refused++);
    }
    plain.disconnect();
  };
  await Promise.all(Array.from({ length: threads }, work));
  return `contended ${released} ${refused} ${unsure}`;
}

let held;
console.log('ready');
for await (const line of createInterface({ input: process.stdin })) {
  const [order, ...numbers] = line.split(' ');
  let answer = KEY;
  if (order === 'lock') {
    held = await lock();
    answer = 'locked';
  } else if (order === 'unlock') {
    const before = Math.floor((performance.timeOrigin + performance.now()) * 1000);
    answer = await held.unlock().then(() => `unlocked ${before}`, (error) => `refused ${error}`);
  } else if (order === 'contend') {
    answer = await contend(...numbers.map(Number));
  }
  console.log(answer);
}
process.exit();
