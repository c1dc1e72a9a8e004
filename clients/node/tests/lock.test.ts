/** What every library does: acquire, wait in order, give up, release, and the other kinds of locks. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Redis } from 'ioredis';
import {
    type Hold,
    type Holder,
    type Leader,
    LockClient,
    LockLostError,
    NotAcquiredError,
    QueueFullError,
    RefusedError,
} from 'redis-lock-client';
import { TestServer } from 'redis-lock-client/testing';
import { BOTH, failure, fresh, LIBRARIES, Server, side, until } from './harness.js';

const real = await Server.start();

/** How a library connects, and where: the real server, or one in memory. */
function placeOf(library: string): [(typeof LIBRARIES)[string], Pick<Server, 'port' | 'call' | 'waiters' | 'isFree'>] {
    if (library !== 'in memory') return [LIBRARIES[library]!, real];
    const memory = new TestServer();
    const locks = new LockClient(memory);
    const place = {
        port: 0,
        waiters: async (key: string) => (await locks.lock(key).info()).waiters,
        isFree: async (key: string) => (await locks.lock(key).info()).mode === undefined,
        call: async (_: string, key: string | number) => memory.lose(String(key)),
    };
    return [async () => ({ redis: memory, close: () => {} }), place as never];
}

const server = real;

for (const [library, connect] of Object.entries(LIBRARIES)) {
    test(`${library}: a free lock is granted at once, its tokens rise, and a release frees it`, async () => {
        await using one = await side(connect, server.port);
        const lock = one.locks.lock(fresh('free'));
        const hold = await lock.acquire();
        assert.ok(hold.valid() && hold.validFor() > 20_000 && !hold.signal.aborted);
        assert.equal(await lock.tryAcquire(), null);
        assert.equal((await failure(lock.acquire({ wait: 1 }))).code, 'NOT_ACQUIRED');
        await hold.release();
        assert.ok(!hold.valid() && hold.validFor() === 0);
        assert.ok(await server.isFree(hold.key));
        await using next = await lock.acquire();
        assert.ok(next.token > hold.token);
    });

    test(`${library}: waits are granted in their order, over two connections`, async () => {
        await using one = await side(connect, server.port);
        const key = fresh('order');
        const first = await one.locks.lock(key).acquire();
        const before = (await clients()).length;
        const order: number[] = [];
        const waits: Promise<void>[] = [];
        for (let number = 0; number < 20; number += 1) {
            waits.push(one.locks.using(key, () => void order.push(number)));
            await until(async () => (await server.waiters(key)) === number + 1);
        }
        // The one of the requests was there.
        assert.equal((await clients()).length, before + 1);
        await first.release();
        await Promise.all(waits);
        assert.deepEqual(order, [...order.keys()]);
        assert.ok(await server.isFree(key));
    });
}

for (const library of [...BOTH, 'in memory']) {
    const [connect, server] = placeOf(library);

    test(`${library}: an aborted wait rejects with the reason of its signal, and leaves nothing`, async () => {
        await using one = await side(connect, server.port);
        const key = fresh('abort');
        const first = await one.locks.lock(key).acquire();
        const controller = new AbortController();
        const wait = failure(one.locks.lock(key).acquire({ signal: controller.signal }));
        await until(async () => (await server.waiters(key)) === 1);
        const reason = new Error('the user has left');
        controller.abort(reason);
        assert.equal(await wait, reason);
        await until(async () => (await server.waiters(key)) === 0);
        await first.release();
        assert.ok(await server.isFree(key));
        assert.equal(await failure(one.locks.lock(key).acquire({ signal: controller.signal })), reason);
    });

    test(`${library}: a bounded wait ends at its bound and leaves nothing`, async () => {
        await using one = await side(connect, server.port);
        const key = fresh('bound');
        await using first = await one.locks.lock(key).acquire();
        const error = await failure(one.locks.lock(key).acquire({ wait: 50 }));
        assert.ok(error instanceof NotAcquiredError && error.message.includes(key));
        await until(async () => (await server.waiters(key)) === 0);
        assert.ok(first.valid());
    });

    test(`${library}: using() releases after its function, whatever becomes of it`, async () => {
        await using one = await side(connect, server.port);
        const key = fresh('using');
        assert.equal(await one.locks.using(key, { lease: 5_000 }, (hold) => hold.token > 0 && 'done'), 'done');
        const error = new Error('of the function');
        assert.equal(await failure(one.locks.using(key, () => Promise.reject(error))), error);
        assert.ok(await server.isFree(key));
        const lost = await failure(one.locks.using(key, async () => void (await server.call('LOCK.BREAK', key))));
        assert.ok(lost instanceof LockLostError && lost.code === 'LOST' && lost.reason === 'taken');
    });

    test(`${library}: an owner that the program names has one hold, which another client can release`, async () => {
        await using one = await side(connect, server.port);
        await using two = await side(connect, server.port);
        const key = fresh('named');
        const owner = 'deployment 7';
        const hold = await one.locks.lock(key, { owner }).acquire();
        const same = await two.locks.lock(key, { owner }).acquire();
        assert.equal(same.token, hold.token);
        assert.equal(await two.locks.lock(key).tryAcquire(), null);
        await same.release();
        assert.ok(await server.isFree(key));
        // It has its token, so it ends no later hold of its owner.
        await using later = await two.locks.lock(key, { owner }).acquire();
        assert.equal((await failure(hold.release())).code, 'LOST');
        assert.ok(later.valid() && !(await server.isFree(key)));
    });

    test(`${library}: readers share a lock, and a writer has it alone`, async () => {
        await using one = await side(connect, server.port);
        const key = fresh('shared');
        const [reading, writing] = [one.locks.lock(key, { mode: 'read' }), one.locks.lock(key, { mode: 'write' })];
        const readers = [await reading.acquire(), await reading.acquire()];
        assert.equal(await writing.tryAcquire(), null);
        const write = writing.acquire();
        await until(async () => (await server.waiters(key)) === 1);
        assert.equal(await reading.tryAcquire(), null); // behind the writer
        await Promise.all(readers.map((reader) => reader.release()));
        await (await write).release();
        assert.ok(await server.isFree(key));
    });

    test(`${library}: several keys are granted together, and one that is lost ends the hold`, async () => {
        await using one = await side(connect, server.port);
        const keys = [fresh('many'), fresh('many'), fresh('many')];
        const single = await one.locks.lock(keys[1]!).acquire();
        const wait = one.locks.lock(keys, { lease: 6_000 }).acquire();
        await until(async () => (await server.waiters(keys[0]!)) === 1);
        assert.ok((await one.locks.lock(keys[2]!).tryAcquire()) === null); // it waits there in the queue, too
        await single.release();
        const hold = await wait;
        assert.equal(hold.tokens.length, 3);
        await server.call('LOCK.BREAK', keys[1]!);
        await until(() => hold.signal.aborted);
        assert.equal((await failure(hold.release())).code, 'LOST');
        await until(async () => (await server.isFree(keys[0]!)) && (await server.isFree(keys[2]!)));
    });

    test(`${library}: a queue has a bound`, async () => {
        await using one = await side(connect, server.port);
        const [x, m, n, w, p] = [fresh('x'), fresh('m'), fresh('n'), fresh('w'), fresh('p')];
        const queue = 1;
        for (const kind of [
            one.locks.lock(x, { queue }),
            one.locks.lock([m, n], { queue }),
            one.locks.lock(w, { mode: 'write', queue }),
            one.locks.semaphore(p, { permits: 1, queue }),
        ]) {
            const hold = await kind.acquire(); // free: granted
            const wait = kind.acquire();
            await until(async () => (await one.locks.semaphore(p).info()).waiters + (await waitersOf(hold.key)) === 1);
            const error = await failure(kind.acquire());
            assert.ok(error instanceof QueueFullError && error instanceof RefusedError && error.code === 'QUEUEFULL');
            assert.equal(await kind.tryAcquire(), null);
            await hold.release();
            await (await wait).release();
        }
        const none = one.locks.lock(x, { queue: 0 });
        await using _hold = await none.acquire();
        assert.equal((await failure(none.acquire())).code, 'QUEUEFULL');
        for (const wrong of [-1, 1_000_001, 0.5])
            assert.throws(() => one.locks.lock(x, { queue: wrong }), { code: 'CONFIG' });

        async function waitersOf(key: string): Promise<number> {
            return key === p ? 0 : server.waiters(key);
        }
    });

    test(`${library}: several permits are taken in one step`, async () => {
        await using one = await side(connect, server.port);
        const key = fresh('count');
        const three = one.locks.semaphore(key, { permits: 4, count: 3, lease: 6_000 });
        const single = one.locks.semaphore(key, { permits: 4 });
        const hold = await three.acquire();
        const { free, nextEnd } = await single.info();
        assert.deepEqual([hold.count, free], [3, 1]);
        let last = nextEnd!;
        await until(async () => {
            const [before, now] = [last, (last = (await single.info()).nextEnd!)];
            return now > before; // renewed
        });
        assert.equal(await three.tryAcquire(), null);
        const wait = three.acquire();
        await until(async () => (await single.info()).waiters === 1);
        await hold.release();
        const next = await wait;
        await next.leave(60_000);
        assert.equal((await single.info()).free, 1);
        await (await three.resume(next.owner, next.token)).release();
        await using permit = await single.acquire();
        assert.deepEqual([permit.count, (await single.info()).free], [1, 3]);
        const more = one.locks.semaphore(key, { count: 4 });
        assert.equal(await more.tryAcquire(), null);
        const late = more.acquire();
        await until(async () => (await single.info()).waiters === 1);
        await single.setPermits(5);
        await (await late).release();
        for (const count of [0, 65, 1.5]) assert.throws(() => one.locks.semaphore(key, { count }), { code: 'CONFIG' });
        assert.throws(() => one.locks.lock(key, { count: 2 } as never), { code: 'CONFIG' });
    });

    test(`${library}: a hold that is left is resumed by another client`, async () => {
        await using here = await side(connect, server.port);
        await using there = await side(connect, server.port);
        const [x, w, p] = [fresh('x'), fresh('w'), fresh('p')];
        for (const [first, then] of [
            [here.locks.lock(x), there.locks.lock(x, { lease: 6_000 })],
            [here.locks.lock(w, { mode: 'write' }), there.locks.lock(w, { mode: 'write', lease: 6_000 })],
            [here.locks.semaphore(p, { permits: 1 }), there.locks.semaphore(p, { lease: 6_000 })],
        ] as const) {
            const hold = await first.acquire();
            for (const rest of [0, -1, NaN, '5' as never])
                assert.equal((await failure(hold.leave(rest))).code, 'CONFIG');
            await hold.leave(3_600_000);
            await hold.release(); // the same outcome
            assert.ok(!hold.valid() && (await first.tryAcquire()) === null);
            const next = await then.resume(hold.owner, hold.token);
            assert.ok(next.token === hold.token && next.validFor() <= 6_000);
            const left = async () => {
                const info = await then.info();
                return 'nextEnd' in info ? info.nextEnd! : info.holders[0]!.remaining!;
            };
            let last = await left();
            await until(async () => {
                const [before, now] = [last, (last = await left())];
                return now > before; // renewed
            });
            await next.release();
            assert.equal((await failure(then.resume(hold.owner, hold.token))).code, 'LOST');
            assert.equal((await failure(then.resume('#', 5))).code, 'CONFIG');
            await using _free = await first.acquire({ wait: 60_000 });
        }
    });
}

for (const library of BOTH) {
    const connect = LIBRARIES[library]!;

    test(`${library}: a semaphore has as many holds as permits, and is renewed`, async () => {
        await using one = await side(connect, server.port);
        const semaphore = one.locks.semaphore(fresh('permits'), { permits: 2, lease: 6_000 });
        const holds = [await semaphore.acquire(), await semaphore.acquire()];
        assert.equal(await semaphore.tryAcquire(), null);
        const third = semaphore.acquire();
        const ends = async () => String(await server.call('ZRANGE', `{${holds[0]!.key}}:timeout`, 0, -1, 'WITHSCORES'));
        const before = await ends();
        await until(async () => (await ends()) !== before);
        assert.ok(holds.every((hold) => hold.valid()));
        await holds[0]!.release();
        await (await third).release();
        await semaphore.setPermits(3);
        await (await semaphore.acquire()).release();
        await holds[1]!.release();
        assert.equal((await failure(holds[1]!.execute('GET', 'x'))).code, 'CONFIG');
    });

    test(`${library}: an election has one leader, who says where it is`, async () => {
        await using one = await side(connect, server.port);
        await using two = await side(connect, server.port);
        const name = fresh('leader');
        const [mine, other] = [one.locks.election(name), two.locks.election(name)];
        const seen: (Leader | null)[] = [];
        const stop = new AbortController();
        const watching = failure(
            (async () => {
                for await (const leader of other.observe({ interval: 10, signal: stop.signal })) seen.push(leader);
            })(),
        );
        await until(() => seen.length === 1);
        const first = await mine.campaign('10.0.0.7:80');
        const second = other.campaign('10.0.0.8:80');
        await until(() => seen.at(-1)?.note === '10.0.0.7:80');
        await first.setNote('10.0.0.7:81');
        await until(() => seen.at(-1)?.note === '10.0.0.7:81');
        assert.deepEqual(await mine.leader(), { note: '10.0.0.7:81', token: first.token });
        await first.release();
        await using leader = await second;
        await until(() => seen.at(-1)?.token === leader.token);
        assert.equal(seen[0], null);
        stop.abort();
        assert.equal((await watching).name, 'AbortError');
    });

    test(`${library}: an observation goes on when the server is there again`, async () => {
        const own = await Server.start();
        await using one = await side(connect, own.port);
        const election = one.locks.election('leader');
        const leader = election.leader.bind(election);
        let failures = 0;
        election.leader = () =>
            leader().catch((error) => {
                failures += 1;
                throw error;
            });
        const seen: (Leader | null)[] = [];
        const watching = failure(
            (async () => {
                for await (const leader of election.observe({ interval: 10 })) seen.push(leader);
            })(),
        );
        await until(() => seen.length === 1);
        await own.kill();
        await until(() => failures > 0);
        await own.run();
        await own.call('LOCK.ACQUIRE', 'leader', 'other', 'PX', 600_000, 'NOTE', 'here');
        const isSeen = until(() => seen.at(-1)?.note === 'here');
        assert.ok((await Promise.race([isSeen, watching])) === true);
        await own.call('ACL', 'SETUSER', 'default', '-lock.info');
        assert.equal((await watching).code, 'NOPERM');
        assert.equal(seen.length, 2);
    });

    test(`${library}: a command under a lock runs only while the lock is held`, async () => {
        await using one = await side(connect, server.port);
        const [key, total] = [fresh('fence'), fresh('total')];
        const hold = await one.locks.lock(key).acquire();
        assert.equal(await hold.execute('SET', total, 100), 'OK');
        assert.equal(await hold.execute('INCRBY', total, '5'), 105);
        assert.equal(await hold.execute('GET', total), '105');
        assert.equal((await failure(hold.execute('LPUSH', total, 1))).code, 'WRONGTYPE');
        await server.call('LOCK.BREAK', key);
        assert.equal((await failure(hold.execute('SET', total, 1))).code, 'LOST');
        assert.ok(hold.signal.aborted && !hold.valid());
        assert.equal(await server.call('GET', total), '105');
    });

    test(`${library}: keyPrefix is the lock's, too`, async () => {
        await using one = await side(connect, server.port, { keyPrefix: 'app:' });
        const key = fresh('prefix');
        const hold = await one.locks.lock(key).acquire();
        assert.equal(hold.key, `app:${key}`);
        const wait = one.locks.lock(key).acquire();
        await until(async () => (await server.waiters(`app:${key}`)) === 1);
        await hold.execute('SET', 'plain', 1);
        await hold.release();
        await (await wait).release();
        assert.equal(await server.call('GET', 'plain'), '1');
        const semaphore = one.locks.semaphore(fresh('prefix'));
        await semaphore.setPermits(1);
        await using _permit = await semaphore.acquire();
        assert.equal(await semaphore.tryAcquire(), null);
    });

    test(`${library}: close() ends the waits and releases the holds`, async () => {
        await using one = await side(connect, server.port);
        const key = fresh('close');
        const hold: Hold = await one.locks.lock(key).acquire();
        const wait = failure(one.locks.lock(key).acquire());
        await until(async () => (await server.waiters(key)) === 1);
        await one.locks.close();
        assert.equal((await wait).code, 'CLOSED');
        assert.ok(!hold.valid() && (await server.isFree(key)));
        assert.equal((await failure(one.locks.lock(key).acquire())).code, 'CLOSED');
    });
}

for (const library of BOTH) {
    const connect = LIBRARIES[library]!;

    test(`${library}: a semaphore that nobody has created is an error, and not a wait`, async () => {
        await using one = await side(connect, server.port);
        const name = fresh('nobody');
        const semaphore = one.locks.semaphore(name);
        assert.equal((await failure(semaphore.acquire())).code, 'NO_SEMAPHORE');
        assert.equal((await failure(semaphore.tryAcquire())).code, 'NO_SEMAPHORE');
        await semaphore.setPermits(1);
        const hold = await semaphore.acquire();
        assert.equal(await semaphore.tryAcquire(), null);
        const wait = semaphore.acquire();
        await until(async () => (await server.call('SEM.INFO', name))[9] === 1);
        // With a subscription, too.
        assert.equal((await failure(one.locks.semaphore(fresh('nobody')).acquire())).code, 'NO_SEMAPHORE');
        await hold.release();
        await (await wait).release();
        // A user that may not ask waits.
        await server.call('ACL', 'SETUSER', 'default', '-exists');
        try {
            assert.equal(await one.locks.semaphore(fresh('nobody')).tryAcquire(), null);
        } finally {
            await server.call('ACL', 'SETUSER', 'default', '+exists');
        }
    });

    test(`${library}: an observation ends when its reader leaves, and with the client`, async () => {
        await using one = await side(connect, server.port);
        const leaders = one.locks.election(fresh('leaves')).observe({ interval: 600_000 });
        assert.deepEqual(await leaders.next(), { done: false, value: null });
        const next = leaders.next();
        assert.equal((await leaders.return()).done, true);
        assert.equal((await next).done, true);
        const others = one.locks.election(fresh('leaves')).observe({ interval: 600_000 });
        await others.next();
        const last = failure(others.next());
        await one.locks.close();
        assert.equal((await last).code, 'CLOSED');
    });

    test(`${library}: who holds a lock and who waits is known`, async () => {
        await using one = await side(connect, server.port);
        const lock = one.locks.lock(fresh('known'), { note: 'host 7', lease: 60_000 });
        assert.deepEqual(await lock.info(), { mode: undefined, holders: [], waiters: 0, longestWait: 0 });
        const hold = await lock.acquire();
        const wait = lock.acquire();
        await until(async () => (await server.waiters(hold.key)) === 1);
        const { mode, holders, waiters, longestWait } = await lock.info();
        const [{ remaining, held, ...holder }] = holders as [Holder];
        assert.deepEqual(holder, { owner: hold.owner, note: 'host 7', token: hold.token, holds: 1 });
        assert.ok(mode === 'exclusive' && waiters === 1 && longestWait >= 0 && holders.length === 1);
        assert.ok(remaining! > 0 && remaining! <= 60_000 && held! >= 0);
        await hold.release();
        await (await wait).release();
        await using _one = await one.locks.lock(hold.key, { mode: 'read' }).acquire();
        await using _two = await one.locks.lock(hold.key, { mode: 'read' }).acquire();
        const read = await lock.info();
        assert.ok(read.mode === 'read' && read.holders.length === 2);

        const taken = fresh('redisson');
        await server.call('HSET', taken, 'uuid:1', 1);
        const [other] = (await one.locks.lock(taken).info()).holders;
        assert.deepEqual(
            { ...other },
            { owner: 'uuid:1', note: undefined, token: undefined, holds: 1, remaining: undefined, held: undefined },
        );
        await server.call('SET', taken, 'x');
        assert.equal((await failure(one.locks.lock(taken).info())).code, 'WRONGTYPE');
        assert.equal((await failure(one.locks.lock(['{a}', '{a}b']).info())).code, 'CONFIG');

        const permits = one.locks.semaphore(fresh('permits'), { permits: 3 });
        assert.equal((await permits.info()).permits, 0);
        await using _permit = await permits.acquire();
        const { nextEnd, ...counts } = await permits.info();
        assert.deepEqual(counts, { permits: 3, held: 1, free: 2, waiters: 0, longestWait: 0 });
        assert.ok(nextEnd! > 0);
    });

    test(`${library}: a lock that is left is free after its rest, and a loss is found`, async () => {
        await using one = await side(connect, server.port);
        const keys = [fresh('left'), fresh('left')];
        const hold = await one.locks.lock(keys).acquire();
        await hold.leave(1_000);
        for (const key of keys) assert.ok((await server.call('PTTL', key)) <= 1_000);
        await (await one.locks.lock(keys).acquire()).release();
        const lost = await one.locks.lock(keys[0]!).acquire();
        await server.call('LOCK.BREAK', keys[0]!);
        assert.equal((await failure(lost.leave(60_000))).code, 'LOST');
    });

    test(`${library}: a word that cannot be sent is refused, and others are as the client has them`, async () => {
        await using one = await side(connect, server.port);
        await using hold = await one.locks.lock(fresh('words')).acquire();
        const key = fresh('words');
        for (const word of [true, null, undefined, {}, [], new Date(), Symbol.iterator] as never[]) {
            assert.equal((await failure(hold.execute('SET', key, word))).code, 'CONFIG');
            assert.equal((await failure(hold.execute(word))).code, 'CONFIG');
            assert.equal((await failure(hold.setNote(word))).code, 'CONFIG');
        }
        assert.ok(hold.valid());
        for (const word of ['text', 5, 1.5, 2n ** 64n, Buffer.from('bytes'), new TextEncoder().encode('more')]) {
            await hold.execute('SET', key, word);
            const text = word instanceof Uint8Array ? Buffer.from(word).toString() : String(word);
            assert.equal(await server.call('GET', key), text);
        }
    });
}

test('ioredis with enableAutoPipelining: what is given up does not overtake its request', async () => {
    const redis = new Redis({ host: '127.0.0.1', port: server.port, enableAutoPipelining: true });
    const locks = new LockClient(redis);
    await redis.ping();
    for (let turn = 0; turn < 5; turn += 1) {
        const keys = [fresh('{auto}'), fresh('{auto}')];
        const controller = new AbortController();
        // An owner with a name has no number that makes its late requests void.
        const acquiring = failure(locks.lock(keys, { owner: 'named' }).acquire({ signal: controller.signal }));
        controller.abort();
        assert.equal((await acquiring).name, 'AbortError');
        await locks.using(fresh('after'), () => {});
        for (const key of keys) assert.ok(await server.isFree(key));
    }
    await locks.close();
    redis.disconnect();
});

test('one AbortSignal ends many waits without a warning', async () => {
    await using one = await side(LIBRARIES['node-redis 6']!, server.port);
    await using hold = await one.locks.lock(fresh('many')).acquire();
    const warnings: Error[] = [];
    const warned = (warning: Error) => warnings.push(warning);
    process.on('warning', warned);
    const stop = new AbortController();
    const waits = Array.from({ length: 30 }, () => failure(one.locks.lock(hold.key).acquire({ signal: stop.signal })));
    await until(async () => (await server.waiters(hold.key)) === 30);
    stop.abort();
    for (const wait of waits) assert.equal((await wait).name, 'AbortError');
    await new Promise(setImmediate);
    process.off('warning', warned);
    assert.deepEqual(warnings, []);
});

test('invalid arguments are refused before anything is sent', async () => {
    await using one = await side(LIBRARIES['ioredis 6']!, server.port);
    const codes = [
        () => one.locks.lock([]),
        () => one.locks.lock(['a', 'a']),
        () => one.locks.lock('a', { lease: 0 }),
        () => one.locks.lock('a', { lease: NaN }),
        () => one.locks.lock('a', { lease: 100, margin: 60 }),
        () => one.locks.lock('a', { owner: '' }),
        () => one.locks.semaphore('a', { permits: 0.5 }),
        () => one.locks.lock(5 as never),
        () => one.locks.lock([5] as never),
        () => one.locks.lock('a', { ttl: 5 } as never),
        () => one.locks.lock('a', { permits: 5 } as never),
        () => one.locks.lock('a', { wait: 5 } as never),
        () => one.locks.lock('a', 5 as never),
        () => one.locks.lock('a', { renew: 'no' as never }),
        () => one.locks.lock('a', { note: 5 as never }),
        () => one.locks.lock('a', { note: 'x', mode: 'read' }),
        () => one.locks.lock(['a', 'b'], { note: 'x' }),
        () => one.locks.semaphore('a', { owner: 'x' } as never),
        () => one.locks.election('a', { note: 'x' } as never),
        () => one.locks.election('a').observe({ every: 5 } as never),
        () => one.locks.election('a').observe({ interval: -1 }),
        () => new LockClient(one.redis, { timeout: 5 } as never),
    ].map((make) => {
        try {
            make();
        } catch (error) {
            return (error as { code: string }).code;
        }
        return 'none';
    });
    assert.deepEqual(new Set(codes), new Set(['CONFIG']));
    assert.equal((await failure(one.locks.lock('a').acquire({ wait: -1 }))).code, 'CONFIG');
    assert.equal((await failure(one.locks.lock('a').acquire({ timeout: 5 } as never))).code, 'CONFIG');
    assert.equal((await failure(one.locks.lock('a').acquire({ signal: {} as never }))).code, 'CONFIG');
    assert.throws(() => one.locks.using('a', { ttl: 5 } as never, () => {}), { code: 'CONFIG' });
    assert.equal((await failure(one.locks.using('a', {}, undefined as never))).code, 'CONFIG');
});

async function clients(): Promise<string[]> {
    return String(await server.call('CLIENT', 'LIST'))
        .trim()
        .split('\n');
}

test('a lease that is longer than a timer of Node is renewed and observed without haste', async () => {
    await using one = await side(LIBRARIES[BOTH[0]!]!, server.port);
    const overflows: Error[] = [];
    const warned = (warning: Error) => overflows.push(warning);
    process.on('warning', warned);
    const options = { lease: 90 * 86_400_000 };
    await using _hold = await one.locks.lock(fresh('long'), options).acquire();
    const stop = new AbortController();
    const leaders = one.locks.election(fresh('long'), options).observe({ signal: stop.signal });
    await leaders.next();
    const next = failure(leaders.next());
    await new Promise(setImmediate);
    stop.abort();
    await next;
    process.off('warning', warned);
    assert.deepEqual(overflows, []);
});
