/** The server in memory: its clock, its losses, and what runs under a lock. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LockClient, LockLostError } from 'redis-lock-client';
import { TestServer } from 'redis-lock-client/testing';
import { failure } from './harness.js';

test('a lease ends on the clock of the test, and a loss is known at once', async () => {
    const server = new TestServer();
    await using locks = new LockClient(server, { onWarning: () => {} });
    const lock = locks.lock('x', { lease: 60_000 });
    const hold = await lock.acquire();
    const { signal } = hold;
    await server.advance(59_000);
    assert.ok((await lock.tryAcquire()) === null && !signal.aborted);
    await server.advance(2_000);
    assert.ok(signal.reason instanceof LockLostError && !hold.valid());
    assert.equal((await failure(hold.execute('GET', 'x'))).code, 'LOST');
    const next = (await lock.tryAcquire())!;
    assert.ok(next.token > hold.token);
    const wait = lock.acquire();
    while (server.counts().waiting === 0) await new Promise(setImmediate);
    await server.lose('x');
    assert.ok(!next.valid());
    const last = await wait;
    await last.release();
    assert.deepEqual(server.counts(), { held: 0, waiting: 0 });
});

test('a wait has a bound, and what runs under a lock is answered by the test', async () => {
    const values = new Map<string, unknown>();
    const server = new TestServer((command, key, value) => {
        if (command === 'SET') return values.set(String(key), value) && 'OK';
        throw new Error(`ERR unknown command '${command}'`);
    });
    await using one = new LockClient(server);
    await using two = new LockClient(server);
    const hold = await one.lock('x').acquire();
    assert.equal(await two.lock('x').tryAcquire({ wait: 20 }), null);
    assert.equal(await hold.execute('SET', 'total', 5), 'OK');
    assert.equal(values.get('total'), '5');
    assert.equal((await failure(hold.execute('NONE', 'total'))).code, 'ERR');
    await hold.release();
    assert.equal((await failure(hold.execute('SET', 'total', 6))).code, 'LOST');
    await using replicated = await two.lock('x', { replicas: 2 }).acquire();
    assert.ok(replicated.valid());
    await assert.rejects(two.semaphore('none').acquire(), { code: 'NO_SEMAPHORE' });
    const election = two.election('leader');
    assert.equal(await election.leader(), null);
    await using leadership = await election.campaign('host 7');
    assert.deepEqual(await election.leader(), { note: 'host 7', token: leadership.token });
});

test('an owner has several modes, keys and waits', async () => {
    const server = new TestServer();
    await using locks = new LockClient(server);
    const owner = 'me';
    const read = await locks.lock('rw', { owner, mode: 'read' }).acquire();
    const write = await locks.lock('rw', { owner, mode: 'write' }).acquire({ wait: 0 });
    assert.equal(await locks.lock('rw', { mode: 'read' }).tryAcquire(), null);
    const wrote = await locks.lock('w', { owner, mode: 'write' }).acquire();
    const reads = await locks.lock('w', { owner, mode: 'read' }).acquire({ wait: 0 });
    assert.equal(reads.token, wrote.token);
    const one = await locks.lock('a', { owner }).acquire();
    const two = await locks.lock(['a', 'b'], { owner }).acquire({ wait: 0 });
    assert.equal(two.token, one.token);
    const names = ['k1', 'k2'];
    const others = await Promise.all(names.map((name) => locks.lock(name).acquire()));
    const waits = names.map((name) => locks.lock(name, { owner }).acquire());
    while (server.counts().waiting < 2) await new Promise(setImmediate);
    const both = locks.lock(['free', 'k1']).acquire();
    while (server.counts().waiting < 3) await new Promise(setImmediate);
    assert.equal((await locks.lock('free').info()).mode, 'exclusive');
    for (const hold of [...others, read, write, wrote, reads, two]) await hold.release();
    for (const hold of await Promise.all(waits)) await hold.release();
    await (await both).release();
    assert.deepEqual(server.counts(), { held: 0, waiting: 0 });
});
