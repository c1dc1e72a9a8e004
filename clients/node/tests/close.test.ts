/** What the ends of the lock client, and of the program's client below it, mean for holds and for waits. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { after, test } from 'node:test';
import { Redis } from 'ioredis';
import { createClient } from 'redis';
import { ClosedError, type Hold, LockClient } from 'redis-lock-client';
import { BOTH, failure, fresh, LIBRARIES, Server, side, until } from './harness.js';

const server = await Server.start();

for (const [library, connect] of Object.entries(LIBRARIES)) {
    test(`${library}: close() ends a hold: its signal is aborted, and its release says so`, async () => {
        await using one = await side(connect, server.port);
        const hold = await one.locks.lock(fresh('held')).acquire();
        const { signal } = hold;
        await one.locks.close();
        assert.ok(signal.aborted && signal.reason instanceof ClosedError && !hold.valid() && hold.validFor() === 0);
        assert.ok(await server.isFree(hold.key));
        const later = [hold.release(), hold.release(), hold.execute('SET', 'x', 1), hold.renew(), hold.setNote('x')];
        for (const call of later) assert.equal((await failure(call)).code, 'CLOSED');
        assert.deepEqual(one.warnings, []);
    });

    test(`${library}: under close() a routine of using() keeps its lock until it has ended`, async () => {
        await using one = await side(connect, server.port);
        await using two = await side(connect, server.port);
        const key = fresh('routine');
        let held: Hold | undefined;
        let end: (() => void) | undefined;
        let hasEnded = false;
        const work = failure(
            one.locks.using(key, async (hold) => {
                held = hold;
                await new Promise<void>((resolve) => (end = resolve));
                hasEnded = true;
            }),
        );
        const hold = await until(() => held);
        const { signal } = hold;
        const next = two.locks.using(key, () => hasEnded);
        await until(async () => (await server.waiters(key)) === 1);
        const closing = one.locks.close();
        await until(() => signal.aborted);
        assert.ok(!hold.valid() && hold.validFor() > 0);
        // A release of the same client would have been served before this.
        await one.locks
            .lock(key)
            .tryAcquire()
            .catch(() => {});
        assert.equal(await server.waiters(key), 1);
        end!();
        assert.equal((await work).code, 'CLOSED');
        assert.ok(await next);
        await closing;
    });
}

for (const library of BOTH) {
    const connect = LIBRARIES[library]!;

    test(`${library}: a hold that was lost before close() is lost`, async () => {
        await using one = await side(connect, server.port);
        const known = await one.locks.lock(fresh('known')).acquire();
        const unknown = await one.locks.lock(fresh('unknown')).acquire();
        await server.call('DEL', known.key, unknown.key);
        assert.equal((await failure(known.renew())).code, 'LOST');
        await one.locks.close();
        assert.equal((await failure(known.release())).code, 'LOST');
        assert.equal((await failure(unknown.release())).code, 'LOST');
    });

    test(`${library}: close() may be called twice, and by what it ends`, async () => {
        await using one = await side(connect, server.port, { responseTimeout: 1_000 });
        const hold = await one.locks.lock(fresh('twice')).acquire();
        let calls = 0;
        hold.signal.addEventListener('abort', () => void one.locks.close().then(() => (calls += 1)));
        await Promise.all([one.locks.close(), one.locks.close()]);
        await until(() => calls === 1);
        // A routine that waits for it has it wait for the response timeout.
        await using two = await side(connect, server.port, { responseTimeout: 200 });
        const key = fresh('within');
        assert.equal((await failure(two.locks.using(key, () => two.locks.close()))).code, 'CLOSED');
        await until(() => server.isFree(key));
    });

    test(`${library}: no routine begins after close()`, async () => {
        await using one = await side(connect, server.port);
        // At each step of an acquisition.
        for (let turns = 0; turns < 40; turns += 1) {
            await using two = await side(connect, server.port);
            const key = fresh('begins');
            let isClosed = false;
            let isLate = false;
            const work = two.locks.using(key, () => {
                isLate ||= isClosed;
            });
            const ended = work.catch((error) => assert.equal(error.code, 'CLOSED'));
            for (let turn = 0; turn < turns; turn += 1) await new Promise(setImmediate);
            isClosed = true;
            await two.locks.close();
            await ended;
            assert.ok(!isLate);
            assert.ok((await one.locks.lock(key).tryAcquire()) !== null);
        }
    });
}

for (const [library, connect] of Object.entries(LIBRARIES)) {
    for (const way of library.startsWith('node') ? ['close', 'quit', 'destroy'] : ['quit', 'disconnect']) {
        test(`${library}: a wait ends with the ${way}() of the program's client, and leaves no place`, async () => {
            await using one = await side(connect, server.port);
            await using two = await side(connect, server.port);
            const key = fresh('quit');
            const hold = await two.locks.lock(key).acquire();
            const ends = [failure(one.locks.lock(key).acquire()), failure(one.locks.using(key, () => {}))];
            const bounded = failure(one.locks.lock(key).acquire({ wait: 600_000 }));
            await until(async () => (await server.waiters(key)) === 3);
            const next = two.locks.lock(key, { lease: 600_000 }).acquire();
            await until(async () => (await server.waiters(key)) === 4);
            const mine = await one.locks.lock(fresh('mine')).acquire();
            await (one.redis as any)[way]();
            for (const error of await Promise.all([...ends, bounded])) {
                assert.equal(error.code, 'CLOSED');
                assert.match(error.message, /^127\.0\.0\.1:\d+: the client is closed/);
            }
            await hold.release();
            await (await next).release();
            // Nothing is repeated on a closed client.
            assert.equal((await failure(mine.release())).code, 'CLOSED');
            assert.equal((await failure(one.locks.lock(key).acquire())).code, 'CLOSED');
            assert.equal((await failure(one.locks.semaphore(key).setPermits(2))).code, 'CLOSED');
        });
    }
}

test('a wait ends with a client that gives up its connection', async () => {
    const own = await Server.start();
    const socket = { host: '127.0.0.1', port: own.port };
    const clients = [
        await createClient({ socket: { ...socket, reconnectStrategy: false } })
            .on('error', () => {})
            .connect(),
        new Redis({ ...socket, retryStrategy: () => null }).on('error', () => {}),
    ];
    await own.call('LOCK.ACQUIRE', 'given', 'other', 'PX', 600_000);
    const waits = clients.map((redis) => failure(new LockClient(redis).lock('given').acquire()));
    await until(async () => (await own.waiters('given')) === 2);
    await own.kill();
    for (const wait of waits) assert.equal((await wait).code, 'CLOSED');
});

for (const [library, make, close] of [
    ['node-redis', "await (await import('redis')).createClient(options).on('error', () => {}).connect()", 'close'],
    ['ioredis', "new (await import('ioredis')).Redis(options.socket)", 'quit'],
] as const) {
    test(`${library}: a wait does not outlive its client, and the process ends`, async () => {
        const key = fresh('alive');
        await server.call('LOCK.ACQUIRE', key, 'other', 'PX', 600_000);
        const program = `
            import { LockClient } from 'redis-lock-client';
            const options = { socket: { host: '127.0.0.1', port: ${server.port} } };
            const redis = ${make};
            const locks = new LockClient(redis);
            locks.lock(${JSON.stringify(key)}).acquire().catch((error) => console.log(error.code));
            const watching = locks.election(${JSON.stringify(key)}).observe({ interval: 100 });
            await watching.next();
            watching.next().catch((error) => console.log(error.code));
            while (!(await redis.get(${JSON.stringify(`${key}:waits`)}))) await new Promise((go) => setTimeout(go, 10));
            await redis.${close}();
        `;
        const child = spawn(process.execPath, ['--input-type=module', '-e', program], {
            stdio: ['ignore', 'pipe', 'inherit'],
        });
        after(() => child.kill('SIGKILL'));
        let text = '';
        child.stdout.on('data', (chunk) => (text += chunk));
        await until(async () => (await server.waiters(key)) === 1);
        await server.call('SET', `${key}:waits`, 1);
        assert.equal(await new Promise((resolve) => child.once('exit', resolve)), 0);
        assert.equal(text, 'CLOSED\nCLOSED\n');
    });
}

for (const [way, start] of [
    ['process.exit()', 'await eval(work); process.stdin.once("data", () => process.exit(5));'],
    [
        'a thread that is terminated',
        `const worker = new (await import('node:worker_threads')).Worker(work, { eval: true });
        process.stdin.once('data', async () => {
            await worker.terminate();
            process.exitCode = 5;
            process.stdin.destroy();
        });`,
    ],
] as const) {
    test(`${way} leaves a lock to its lease, and no wait`, async () => {
        const [key, other] = [fresh('left'), fresh('awaited')];
        await server.call('LOCK.ACQUIRE', other, 'other', 'PX', 600_000);
        const work = `(async () => {
            const { createClient } = await import('redis');
            const { LockClient } = await import('redis-lock-client');
            const redis = await createClient({ socket: { host: '127.0.0.1', port: ${server.port} } }).connect();
            const locks = new LockClient(redis);
            await locks.lock('${key}', { lease: 1500 }).acquire();
            void locks.lock('${other}').acquire();
        })()`;
        const program = `const work = ${JSON.stringify(work)}; ${start}`;
        const child = spawn(process.execPath, ['--input-type=module', '-e', program], {
            stdio: ['pipe', 'ignore', 'inherit'],
        });
        after(() => child.kill('SIGKILL'));
        await until(async () => child.exitCode !== null || (await server.waiters(other)) === 1);
        assert.equal(await server.call('EXISTS', key), 1);
        child.stdin.write('end\n');
        assert.equal(await new Promise((resolve) => child.once('exit', resolve)), 5);
        await until(async () => (await server.waiters(other)) === 0);
        await until(async () => (await server.call('EXISTS', key)) === 0);
    });
}
