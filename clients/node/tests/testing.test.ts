/** The server in memory: its clock, its losses, its order, the kinds of its keys, and what it refuses. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LockClient, LockLostError } from 'redis-lock-client';
import { TestServer } from 'redis-lock-client/testing';
import { failure, until } from './harness.js';

const HOUR = 3_600_000;

async function waiting(locks: LockClient, name: string, count: number): Promise<void> {
    await until(async () => (await locks.lock(name).info()).waiters === count);
}

test('what is renewed outlasts the time that passes; other leases and waits end', async () => {
    const server = new TestServer();
    await using locks = new LockClient(server, { onWarning: () => {} });
    const kept = await locks.lock('kept').acquire();
    const permit = await locks.semaphore('permit', { permits: 1 }).acquire();
    const read = await locks.lock('read', { mode: 'read' }).acquire();
    const fixed = await locks.lock('fixed', { renew: false, lease: 60_000 }).acquire();
    const limited = await locks.lock('limited', { maxHold: 60_000 }).acquire();
    const left = await locks.lock('left').acquire();
    await left.leave(60_000);
    const bounded = locks.lock('kept').tryAcquire({ wait: HOUR / 2 });
    const next = locks.lock('fixed').acquire({ wait: HOUR / 2 });
    await waiting(locks, 'fixed', 1);
    const { signal } = fixed;
    await server.advance(45_000);
    assert.ok(fixed.valid() && limited.valid() && fixed.validFor() < 15_000);
    for (const name of ['kept', 'fixed', 'limited', 'left']) assert.equal(await locks.lock(name).tryAcquire(), null);
    await server.advance(HOUR);
    assert.ok(signal.reason instanceof LockLostError && !limited.valid());
    // The fixed lease was over before the bound of the wait.
    assert.ok((await next).token > fixed.token);
    assert.equal(await bounded, null);
    for (const name of ['limited', 'left']) assert.ok(await locks.lock(name).tryAcquire());
    for (const hold of [kept, permit, read]) {
        assert.ok(hold.valid());
        await hold.release();
    }
    await server.advance(HOUR);
    assert.ok((await next).valid());
});

test('a loss is known at once, and those that wait are granted in their order', async () => {
    const server = new TestServer();
    await using locks = new LockClient(server, { onWarning: () => {} });
    const hold = await locks.lock(['x', 'y']).acquire();
    const order: string[] = [];
    const waits: Promise<void>[] = [];
    for (const names of [['x'], ['x', 'z'], ['x']]) {
        waits.push(locks.using(names, () => void order.push(names.join())));
        await waiting(locks, 'x', waits.length);
    }
    // It is free, and asked for together with another one.
    assert.equal(await locks.lock('z').tryAcquire(), null);
    await server.lose('x');
    assert.ok(!hold.valid());
    assert.equal((await failure(hold.release())).reason, 'taken');
    await Promise.all(waits);
    assert.deepEqual(order, ['x', 'x,z', 'x']);
});

test('an owner has several modes, keys and waits', async () => {
    await using locks = new LockClient(new TestServer(), { onWarning: () => {} });
    const owner = 'me';
    const read = await locks.lock('rw', { owner, mode: 'read' }).acquire();
    const write = await locks.lock('rw', { owner, mode: 'write' }).acquire({ wait: 0 });
    assert.ok(write.token > read.token);
    // The former token of a reader is good for its own requests, and for no command.
    await read.renew();
    assert.equal((await failure(read.execute('GET', 'total'))).code, 'LOST');
    assert.equal(await locks.lock('rw', { mode: 'read' }).tryAcquire(), null);
    await write.release();
    const other = await locks.lock('rw', { mode: 'read' }).acquire({ wait: 0 });
    assert.equal(other.token, write.token);
    const one = await locks.lock('a', { owner }).acquire();
    const two = await locks.lock(['a', 'b'], { owner }).acquire({ wait: 0 });
    assert.equal(two.token, one.token);
    const names = ['k1', 'k2'];
    const others = await Promise.all(names.map((name) => locks.lock(name).acquire()));
    const waits = names.map((name) => locks.lock(name, { owner }).acquire());
    for (const name of names) await waiting(locks, name, 1);
    for (const hold of others) await hold.release();
    for (const hold of await Promise.all(waits)) await hold.release();
    const election = locks.election('leader');
    assert.equal(await election.leader(), null);
    await using leadership = await election.campaign('host 7');
    assert.deepEqual(await election.leader(), { note: 'host 7', token: leadership.token });
});

test('a key is of one kind, and what the server does not know is refused', async () => {
    const server = new TestServer();
    await using locks = new LockClient(server, { onWarning: () => {} });
    const hold = await locks.lock('x').acquire();
    await locks.lock('rw', { mode: 'read' }).acquire();
    await locks.semaphore('s').setPermits(1);
    await hold.execute('SET', 'text', 'no number');
    const refused = async (asked: Promise<unknown>, code: string) => assert.equal((await failure(asked)).code, code);
    await refused(locks.lock('x', { mode: 'read' }).acquire(), 'LOCKTYPE');
    await refused(locks.lock(['free', 'rw']).acquire(), 'LOCKTYPE');
    await refused(locks.semaphore('x', { permits: 1 }).acquire(), 'WRONGTYPE');
    for (const name of ['s', 'text']) await refused(locks.lock(name).acquire(), 'WRONGTYPE');
    await refused(locks.semaphore('text', { permits: 1 }).acquire(), 'LOCKTYPE');
    await refused(locks.semaphore('small', { permits: 1, count: 2 }).acquire(), 'ERR');
    await refused(hold.execute('GET', 'rw'), 'WRONGTYPE');
    await refused(hold.execute('SET', 'text', 1, 'KEEPTTL'), 'ERR');
    await refused(hold.execute('HGET', 'text', 'field'), 'ERR');
    await refused(hold.execute('LOCK.RELEASE', 'x', hold.owner), 'ERR');
    await refused(locks.lock('y', { replicas: 1 }).acquire(), 'NOT_REPLICATED');
    await refused(locks.semaphore('none').acquire(), 'NO_SEMAPHORE');
    const ask = (...words: string[]) =>
        new Promise((resolve) => server.send([{ key: '', words, answer: ({ error }) => resolve(String(error)) }]));
    assert.match(String(await ask('LOCK.ACQUIRE', 'y', 'me', 'SESSION')), /ERR syntax error/);
    assert.match(String(await ask('LOCK.INFO', 'y', 'WAITERS')), /ERR syntax error/);
    assert.match(String(await ask('LATCH.SET', 'y', '1')), /ERR unknown command/);
    // What is overwritten is lost, and waited for no more.
    const wait = failure(locks.lock('rw').acquire());
    const write = failure(locks.lock('rw', { mode: 'write' }).acquire());
    assert.equal((await wait).code, 'LOCKTYPE');
    await waiting(locks, 'rw', 1);
    assert.equal(await hold.execute('SET', 'rw', 1), 'OK');
    assert.equal((await write).code, 'WRONGTYPE');
});

test('a hold runs a function, whose error a loss does not replace, and is released unless it was left', async () => {
    const server = new TestServer();
    await using locks = new LockClient(server, { onWarning: () => {} });
    const lock = locks.lock('a');
    assert.equal(await (await lock.tryAcquire())?.run((hold) => hold.valid()), true);
    const failed = await lock.acquire();
    const work = failed.run(async () => {
        await server.lose('a');
        throw new Error('of the work');
    });
    assert.equal((await failure(work)).message, 'of the work');
    const lost = await lock.acquire();
    assert.equal((await failure(lost.run(() => server.lose('a')))).code, 'LOST');
    await (await lock.acquire()).run((hold) => hold.leave(HOUR));
    assert.equal(await lock.tryAcquire(), null);
});
