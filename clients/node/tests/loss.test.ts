/** How a holder learns that its lock is lost, also when its process stood still. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { test } from 'node:test';
import { type Hold, LockLostError } from 'redis-lock-client';
import { BOTH, failure, fresh, LIBRARIES, Server, side, until } from './harness.js';

const server = await Server.start();

for (const library of BOTH) {
    const connect = LIBRARIES[library]!;

    test(`${library}: a hold is renewed for as long as it is held`, async () => {
        await using one = await side(connect, server.port);
        await using hold = await one.locks.lock(fresh('renewed'), { lease: 6_000 }).acquire();
        const first = await server.end(hold.key);
        await until(async () => (await server.end(hold.key)) > first);
        assert.ok(hold.valid() && !hold.signal.aborted);
    });

    for (const [what, command] of [
        ['LOCK.BREAK', 'LOCK.BREAK'],
        ['DEL', 'DEL'],
    ] as const) {
        test(`${library}: ${what} aborts the signal with the loss, and the next hold is left alone`, async () => {
            await using one = await side(connect, server.port);
            const key = fresh('broken');
            const hold = await one.locks.lock(key, { lease: 6_000 }).acquire();
            const { signal } = hold;
            await server.call(command, key);
            await until(() => signal.aborted);
            assert.ok(signal.reason instanceof LockLostError && signal.reason.reason === 'taken' && !hold.valid());
            await using next = await one.locks.lock(key).acquire();
            assert.equal((await failure(hold.release())).code, 'LOST');
            assert.ok(next.valid() && !(await server.isFree(key)));
        });
    }

    test(`${library}: without a server the loss is reported before the lease ends`, async () => {
        const own = await Server.start();
        await using one = await side(connect, own.port);
        const hold = await one.locks.lock('stopped', { lease: 900 }).acquire();
        const { signal } = hold;
        let rest = 0;
        signal.addEventListener('abort', () => {
            rest = hold.validFor();
        });
        own.freeze();
        await until(() => signal.aborted);
        own.thaw();
        assert.equal(signal.reason.reason, 'unconfirmed');
        // A busy machine may be late by all of the margin.
        assert.ok(rest >= 0 && rest <= 150);
        assert.equal((await failure(hold.release())).code, 'LOST');
        await until(() => own.isFree('stopped'));
    });

    for (const [what, overwrite] of [
        ['a string', ['SET', 'x']],
        ['a hash', ['HSET', 'field', 'x']],
        ['nothing', ['DEL']],
    ] as const) {
        test(`${library}: each reply about a key that holds ${what} proves the loss`, async () => {
            await using one = await side(connect, server.port);
            const other = fresh('other');
            await server.call('SET', other, 'x');
            for (const [request, call] of Object.entries<(hold: Hold) => Promise<unknown>>({
                execute: (hold) => hold.execute('GET', other),
                renew: (hold) => hold.renew(),
                setNote: (hold) => hold.setNote('x'),
            })) {
                const hold = await one.locks.lock(fresh('over'), { renew: request !== 'execute' }).acquire();
                const { signal } = hold;
                // A command's own error proves nothing.
                assert.equal((await failure(hold.execute('LPUSH', other, 1))).code, 'WRONGTYPE');
                assert.ok(!signal.aborted && hold.valid());
                await server.call('DEL', hold.key);
                const [command, ...words] = overwrite;
                await server.call(command, hold.key, ...words);
                assert.equal((await failure(call(hold))).code, 'LOST', request);
                assert.ok(signal.aborted && signal.reason.reason === 'taken' && !hold.valid());
                assert.equal((await failure(hold.release())).code, 'LOST');
            }
        });
    }

    test(`${library}: a loss that nothing listens to is a warning`, async () => {
        await using one = await side(connect, server.port);
        const key = fresh('unheard');
        await one.locks.lock(key, { lease: 6_000 }).acquire();
        await server.call('LOCK.BREAK', key);
        assert.match(await until(() => one.warnings[0]), new RegExp(`${key} is lost: the server has ended the hold`));
    });

    test(`${library}: a release that finds nothing is a loss`, async () => {
        await using one = await side(connect, server.port);
        const hold = await one.locks.lock(fresh('found')).acquire();
        await server.call('DEL', hold.key);
        const error = await failure(hold.release());
        assert.equal(error.code, 'LOST');
        assert.equal(await failure(hold.release()), error);
    });
}

test('what onWarning throws stops no renewal', async () => {
    const connect = LIBRARIES['node-redis 6']!;
    let calls = 0;
    const caught: unknown[] = [];
    const uncaught = (error: unknown) => caught.push(error);
    process.setUncaughtExceptionCaptureCallback(uncaught);
    try {
        const onWarning = () => {
            calls += 1;
            throw new Error('of the program');
        };
        await using one = await side(connect, server.port, { onWarning });
        const lost = await one.locks.lock(fresh('thrown'), { lease: 6_000 }).acquire();
        await using hold = await one.locks.lock(fresh('thrown'), { lease: 6_000 }).acquire();
        await server.call('DEL', lost.key);
        await until(() => calls === 1);
        const end = await server.end(hold.key);
        await until(async () => (await server.end(hold.key)) > end);
        assert.ok(hold.valid());
        assert.equal(caught.length, 1);
    } finally {
        process.setUncaughtExceptionCaptureCallback(null);
    }
});

test('maxHold ends a hold in spite of its renewals', async () => {
    await using one = await side(LIBRARIES['ioredis 6']!, server.port);
    const key = fresh('longest');
    const hold = await one.locks.lock(key, { lease: 3_000, maxHold: 4_000 }).acquire();
    const { signal } = hold;
    await until(() => signal.aborted);
    assert.match(signal.reason.message, /maxHold/);
    await until(() => server.isFree(key));
});

test('a shorter lease counts from its request on, also when a longer one is confirmed after it', async () => {
    await using one = await side(LIBRARIES['node-redis 6']!, server.port, { responseTimeout: 300 });
    const hold = await one.locks.lock(fresh('shorter'), { lease: 600_000, renew: false }).acquire();
    server.freeze();
    const renewed = failure(hold.renew(60_000));
    assert.ok(hold.validFor() <= 60_000);
    await renewed;
    server.thaw();
    await until(async () => (await hold.renew(600_000), true));
    assert.ok(hold.validFor() <= 60_000);
});

test('a hold that is not renewed ends with its lease, and renew() sets it anew', async () => {
    await using one = await side(LIBRARIES['node-redis 6']!, server.port);
    const key = fresh('fixed');
    const hold = await one.locks.lock(key, { lease: 60_000, renew: false }).acquire();
    assert.ok(hold.validFor() <= 60_000);
    await hold.renew(120_000);
    assert.ok(hold.validFor() > 60_000);
    await server.call('LOCK.BREAK', key);
    assert.equal((await failure(hold.renew())).code, 'LOST');
    const short = await one.locks.lock(key, { lease: 200, renew: false }).acquire();
    const { signal } = short;
    await until(() => signal.aborted);
    assert.equal(signal.reason.reason, 'unconfirmed');
});

test('after a stall of the event loop valid() is false at once, before any timer has run', async () => {
    await using one = await side(LIBRARIES['node-redis 6']!, server.port);
    const hold = await one.locks.lock(fresh('stall'), { lease: 2_000 }).acquire();
    const { signal } = await one.locks.lock(fresh('stall'), { lease: 2_000 }).acquire();
    assert.ok(hold.valid() && !signal.aborted);
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2_100);
    assert.equal(hold.valid(), false);
    assert.equal(hold.validFor(), 0);
    assert.equal(hold.signal.reason.reason, 'unconfirmed');
});

test('a process that was stopped, and goes on, does not believe in its lease', async () => {
    const key = fresh('frozen');
    const folder = mkdtempSync(join(tmpdir(), 'redis-lock-frozen-'));
    const flag = join(folder, 'go-on');
    const program = `
    import { existsSync } from 'node:fs';
    import { Redis } from 'ioredis';
    import { LockClient } from 'redis-lock-client';
    const redis = new Redis({ host: '127.0.0.1', port: ${server.port} });
    const locks = new LockClient(redis, { onWarning: () => {} });
    const hold = await locks.lock(${JSON.stringify(key)}, { lease: 1500 }).acquire();
    console.log('held', hold.token);
    // It is between two steps until the file is there: no timer runs, as in a function that was frozen.
    while (!existsSync(${JSON.stringify(flag)})) Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 10);
    console.log('valid', hold.valid());
    const failed = await hold.execute('SET', ${JSON.stringify(`${key}:data`)}, 'late').catch((error) => error.code);
    console.log('wrote', failed);
    process.exit();
  `;
    const child = spawn(process.execPath, ['--input-type=module', '-e', program], {
        stdio: ['ignore', 'pipe', 'inherit'],
    });
    try {
        const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
        assert.match((await lines.next()).value, /^held \d+$/);
        child.kill('SIGSTOP');
        await using one = await side(LIBRARIES['ioredis 6']!, server.port);
        await using next = await one.locks.lock(key).acquire(); // after the lease
        writeFileSync(flag, '');
        child.kill('SIGCONT');
        assert.equal((await lines.next()).value, 'valid false');
        assert.equal((await lines.next()).value, 'wrote LOST');
        assert.ok(next.valid());
        assert.equal(await server.call('EXISTS', `${key}:data`), 0);
    } finally {
        child.kill('SIGKILL');
        rmSync(folder, { recursive: true });
    }
});

for (const [library, make, close] of [
    ['node-redis', "await (await import('redis')).createClient(options).on('error', () => {}).connect()", 'destroy'],
    ['ioredis', "new (await import('ioredis')).Redis(options.socket)", 'disconnect'],
] as const) {
    test(`${library}: neither an idle lock client nor a hold keeps the process alive`, async () => {
        const program = `
            import { LockClient } from 'redis-lock-client';
            const options = { socket: { host: '127.0.0.1', port: ${server.port} } };
            const redis = ${make};
            const locks = new LockClient(redis);
            const lock = locks.lock(${JSON.stringify(fresh('alive'))});
            const hold = await lock.acquire();
            console.log(await lock.tryAcquire({ wait: 300 }));
            redis.${close}();
        `;
        const child = spawn(process.execPath, ['--input-type=module', '-e', program], {
            stdio: ['ignore', 'pipe', 'inherit'],
        });
        let text = '';
        child.stdout.on('data', (chunk) => (text += chunk));
        assert.equal(await new Promise((resolve) => child.once('exit', resolve)), 0);
        assert.equal(text, 'null\n');
    });
}
