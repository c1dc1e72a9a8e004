/** Waits: through breaks and restarts, many at a time, and the errors of a first request. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Redis } from 'ioredis';
import { createClient, createClientPool, createSentinel } from 'redis';
import { ConfigError, LockClient, NotLoadedError } from 'redis-lock-client';
import { BOTH, failure, freePort, fresh, LIBRARIES, Server, side, until } from './harness.js';

const server = await Server.start();

for (const library of BOTH) {
    const connect = LIBRARIES[library]!;

    test(`${library}: waits outlive a restart of the server, with a warning`, async () => {
        const own = await Server.start();
        await using one = await side(connect, own.port);
        const hold = await one.locks.lock('restart').acquire();
        let done = 0;
        const waits = [0, 1, 2, 3, 4].map(() => one.locks.using('restart', () => void (done += 1)));
        await until(async () => (await own.waiters('restart')) === 5);
        await own.kill();
        await until(() =>
            one.warnings.some((text) => /the wait for restart has had no server for \d+ s: 127/.test(text)),
        );
        await own.run();
        await Promise.all(waits);
        assert.equal(done, 5);
        assert.ok(await own.isFree('restart'));
        await hold.release().catch(() => {});
    });

    test(`${library}: when connections are killed, waits keep their order`, async () => {
        const own = await Server.start();
        await using one = await side(connect, own.port);
        const hold = await one.locks.lock('killed').acquire();
        const order: number[] = [];
        const waits: Promise<void>[] = [];
        for (let number = 0; number < 20; number += 1) {
            waits.push(one.locks.using('killed', () => void order.push(number)));
            await until(async () => (await own.waiters('killed')) === number + 1);
        }
        await own.call('CLIENT', 'KILL', 'TYPE', 'pubsub');
        await until(async () => /sub=1/.test(String(await own.call('CLIENT', 'LIST', 'TYPE', 'pubsub'))));
        await until(async () => (await own.waiters('killed')) === 20);
        await own.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
        await hold.release();
        await Promise.all(waits);
        assert.deepEqual(order, [...order.keys()]);
    });

    test(`${library}: messages prove nothing`, async () => {
        await using one = await side(connect, server.port);
        const key = fresh('forged');
        await using hold = await one.locks.lock(key).acquire();
        let isGranted = false;
        const wait = one.locks.lock(key).acquire({ wait: 60_000 });
        void wait.then(
            () => (isGranted = true),
            () => {},
        );
        await until(async () => (await server.waiters(key)) === 1);
        const info = JSON.stringify(await server.call('LOCK.INFO', key, 'WAITERS'));
        const [, channel, tag] = /"channel","([^"]+)","tag","([^"]+)"/.exec(info)!;
        for (const text of [`granted 5 ${tag}`, `timeout ${tag}`, 'granted', '', `hello ${tag}`, 'granted 5 99']) {
            assert.equal(await server.call('PUBLISH', channel!, text), 1);
        }
        // Each message is a reason to ask again: the wait is there, and is granted nothing.
        await until(async () => (await server.waiters(key)) === 1);
        assert.ok(!isGranted && hold.valid());
        await hold.release();
        await (await wait).release();
    });

    test(`${library}: a wait that the server ends fails with its code`, async () => {
        await using one = await side(connect, server.port);
        const key = fresh('purged');
        const hold = await one.locks.lock(key).acquire();
        const wait = failure(one.locks.lock(key).acquire());
        await until(async () => (await server.waiters(key)) === 1);
        await server.call('LOCK.BREAK', key, 'PURGE');
        assert.equal((await wait).code, 'LOCKBROKEN');
        assert.equal((await failure(hold.release())).code, 'LOST');
    });

    // node-redis writes the requests of a turn together; ioredis makes a system call of each.
    const crowd = library === 'ioredis 6' ? 2_000 : 10_000;
    test(`${library}: ${crowd} waits share two connections, and each is granted once`, async () => {
        await using one = await side(connect, server.port, { responseTimeout: 60_000 });
        const key = fresh('crowd');
        const hold = await one.locks.lock(key, { lease: 120_000 }).acquire();
        const before = String(await server.call('CLIENT', 'LIST'))
            .trim()
            .split('\n').length;
        let inside = 0;
        let granted = 0;
        const waits = Array.from({ length: crowd }, () =>
            one.locks.using(key, { lease: 120_000 }, () => {
                inside += 1;
                assert.equal(inside, 1);
                granted += 1;
                inside -= 1;
            }),
        );
        await until(async () => (await server.waiters(key)) === crowd);
        assert.equal(
            String(await server.call('CLIENT', 'LIST'))
                .trim()
                .split('\n').length,
            before + 1,
        );
        await hold.release();
        await Promise.all(waits);
        assert.equal(granted, crowd);
        assert.ok(await server.isFree(key));
    });
}

test('a first request that cannot be sent is an error at once, in the words of the transport', async () => {
    const port = await freePort();
    const redis = new Redis({ host: '127.0.0.1', port });
    const locks = new LockClient(redis);
    const error = await failure(locks.lock('a').acquire());
    assert.equal(error.code, 'CONNECTION');
    assert.match(error.message, new RegExp(`^127.0.0.1:${port}: .*ECONNREFUSED`));
    redis.disconnect();
    assert.match((await failure(locks.lock('a').acquire())).message, /closed/i);

    const other = createClient({ socket: { host: '127.0.0.1', port } }).on('error', () => {});
    const connecting = failure(other.connect());
    const refused = await failure(new LockClient(other).lock('a').acquire());
    assert.match(refused.message, new RegExp(`^127.0.0.1:${port}: .*ECONNREFUSED`));
    other.destroy();
    await connecting;
    assert.match((await failure(new LockClient(other).lock('a').acquire())).message, /the client is closed/);
});

test('a wrong password is an error at once, and is not shown', async () => {
    const own = await Server.start();
    await own.call('ACL', 'SETUSER', 'app', 'on', '>right', '~*', '&*', '+@all');
    const redis = new Redis({ host: '127.0.0.1', port: own.port, username: 'app', password: 'wrong' });
    const error = await failure(new LockClient(redis).lock('a').acquire());
    assert.equal(error.code, 'WRONGPASS');
    assert.doesNotMatch(error.message, /"wrong"|'wrong'/);
    redis.disconnect();
});

test('a server without the module is named, with what to do', async () => {
    const bare = await Server.startWith([]);
    for (const library of BOTH) {
        await using one = await side(LIBRARIES[library]!, bare.port);
        const error = await failure(one.locks.lock('a').acquire());
        assert.ok(error instanceof NotLoadedError && error.code === 'NOT_LOADED');
        assert.match(error.message, /does not know LOCK\.ACQUIRE.*loadmodule/);
        assert.doesNotMatch(error.message, /SEQ|PX/);
    }
});

test('an object that is no client is refused', () => {
    assert.throws(() => new LockClient({} as never), ConfigError);
    assert.throws(() => new LockClient(createClientPool() as never), ConfigError);
    const sentinel = createSentinel({ name: 'main', sentinelRootNodes: [{ host: '127.0.0.1', port: 1 }] });
    assert.throws(() => new LockClient(sentinel as never), ConfigError);
});
