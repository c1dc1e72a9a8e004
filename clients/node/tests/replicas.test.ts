/** Grants that count only when replicas have them. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Redis } from 'ioredis';
import { type HoldOptions, NotReplicatedError } from 'redis-lock-client';
import { BOTH, CLUSTERS, failure, fresh, LIBRARIES, moveSlot, Server, side, until } from './harness.js';

const [server, replica] = await Server.pair();
const PATIENT = { replicas: 1, replicasWithin: 60_000 };

for (const [library, connect] of Object.entries(LIBRARIES)) {
    test(`${library}: a grant is one that replicas have`, async () => {
        await using one = await side(connect, server.port);
        const [x, m, n, w, p] = [fresh('x'), fresh('m'), fresh('n'), fresh('w'), fresh('p')];
        for (const [key, kind] of [
            [x, (options: HoldOptions) => one.locks.lock(x, options)],
            [m, (options: HoldOptions) => one.locks.lock([m, n], options)],
            [w, (options: HoldOptions) => one.locks.lock(w, { ...options, mode: 'write' })],
            [p, (options: HoldOptions) => one.locks.semaphore(p, { ...options, permits: 1 })],
        ] as const) {
            const hold = await kind(PATIENT).acquire();
            assert.equal(await replica.call('EXISTS', key), 1);
            const wait = kind(PATIENT).acquire();
            if (key !== p) await until(async () => (await server.waiters(key)) > 0);
            await hold.release();
            const next = await wait;
            assert.ok(next.valid() && next.validFor() > 25_000);
            await next.release();
            const error = await failure(kind({ replicas: 2, replicasWithin: 20 }).acquire());
            assert.ok(error instanceof NotReplicatedError && error.code === 'NOT_REPLICATED');
            assert.match(error.message, /1 of 2 replicas have the grant within 20 ms/);
            assert.equal([error.had, error.wanted].join(), '1,2');
            // It is free at once.
            const free = await kind({}).tryAcquire();
            await free!.release();
        }
        for (const replicas of [0, 101, 1.5]) assert.throws(() => one.locks.lock(x, { replicas }), { code: 'CONFIG' });
    });
}

for (const [library, connect] of Object.entries(LIBRARIES)) {
    test(`${library}: a replica that stands still delays no other lock`, async () => {
        const [primary, copy] = await Server.pair();
        await using one = await side(connect, primary.port);
        copy.freeze();
        const before = await asked(primary);
        const brief = one.locks.lock(fresh('brief'), { replicas: 1, replicasWithin: 50 });
        assert.equal((await failure(brief.acquire())).code, 'NOT_REPLICATED');
        const long = { replicas: 1, replicasWithin: 3_600_000 };
        let isGranted = false;
        const first = one.locks.lock(fresh('long'), long).acquire();
        void first.then(() => (isGranted = true));
        await until(async () => String(await primary.call('INFO', 'clients')).includes('blocked_clients:1\r\n'));
        // These have the next pipeline, and the one connection.
        const more = Array.from({ length: 10 }, () => one.locks.lock(fresh('more'), long).acquire());
        const stop = new AbortController();
        const stopped = fresh('stopped');
        const given = failure(one.locks.lock(stopped, long).acquire({ signal: stop.signal }));
        await (await one.locks.lock(fresh('other')).acquire()).release();
        await until(async () => !(await primary.isFree(stopped)));
        stop.abort();
        assert.equal((await given).name, 'AbortError');
        await until(() => primary.isFree(stopped));
        assert.ok(!isGranted);
        copy.thaw();
        for (const hold of await Promise.all([first, ...more])) await hold.release();
        // The brief one, the first long one, and all others together.
        assert.equal((await asked(primary)) - before, 3);
        await primary.remove();
        await copy.remove();
    });
}

/** The identity of the connection of a request that waits for replicas. */
async function asking(primary: Server): Promise<string> {
    return until(async () => /^id=(\d+) .* flags=\w*b/m.exec(await primary.call('CLIENT', 'LIST'))?.[1]);
}

for (const library of BOTH) {
    test(`${library}: a grant that replicas have after its lease counts for nothing`, async () => {
        const [primary, copy] = await Server.pair();
        await using one = await side(LIBRARIES[library]!, primary.port);
        const long = { replicas: 1, replicasWithin: 3_600_000 };
        copy.freeze();
        const wait = one.locks.lock('x', { ...long, lease: 1_000 }).acquire();
        await asking(primary);
        // These have the one connection after it, and leases that are over by then.
        const more = ['y', 'z'].map((name) => one.locks.lock(name, { ...long, lease: 1_000 }).acquire());
        for (const name of ['y', 'z']) await until(async () => !(await primary.isFree(name)));
        for (const name of ['y', 'z']) await until(() => primary.isFree(name));
        const other = await one.locks.lock('x').acquire();
        copy.thaw();
        await until(async () => (await primary.waiters('x')) > 0);
        await other.release();
        for (const hold of await Promise.all([wait, ...more])) {
            assert.ok(hold.validFor() > 0);
            await hold.release();
        }
        copy.freeze();
        const failed = failure(one.locks.lock('x', long).acquire());
        // As the server does when it becomes a replica.
        await primary.call('CLIENT', 'UNBLOCK', await asking(primary), 'ERROR');
        assert.equal((await failed).code, 'NO_ANSWER');
        await until(() => primary.isFree('x'));
        copy.thaw();
        await until(async () => (await primary.call('WAIT', 1, 100)) === 1);
        copy.freeze();
        const closed = failure(one.locks.lock('x', { ...long, lease: 3_600_000 }).acquire());
        await asking(primary);
        (one.redis as any)[library === 'ioredis 6' ? 'disconnect' : 'destroy']();
        assert.equal((await closed).code, 'CLOSED');
        copy.thaw();
        await until(() => primary.isFree('x'));
        await primary.remove();
        await copy.remove();
    });
}

/** How often replicas were asked for. */
async function asked(primary: Server): Promise<number> {
    return Number(/cmdstat_wait:calls=(\d+),/.exec(await primary.call('INFO', 'commandstats'))![1]);
}

const CLUSTER = ['--cluster-enabled', 'yes', '--cluster-node-timeout', '5000', '--repl-diskless-sync-delay', '0'];

test('in a cluster the node of the key is asked, also when its slot has moved', async () => {
    const nodes = [await Server.start(...CLUSTER), await Server.start(...CLUSTER), await Server.start(...CLUSTER)];
    const [first, second, copy] = nodes as [Server, Server, Server];
    await first.call('CLUSTER', 'ADDSLOTSRANGE', 0, 8_191);
    await second.call('CLUSTER', 'ADDSLOTSRANGE', 8_192, 16_383);
    await second.call('CLUSTER', 'SET-CONFIG-EPOCH', 2);
    await copy.call('CLUSTER', 'SET-CONFIG-EPOCH', 3);
    for (const node of [second, copy]) await first.call('CLUSTER', 'MEET', '127.0.0.1', node.port);
    const id = await second.call('CLUSTER', 'MYID');
    await until(() =>
        copy.call('CLUSTER', 'REPLICATE', id).then(
            () => true,
            () => false,
        ),
    );
    await until(async () => (await second.call('WAIT', 1, 100)) === 1);
    for (const node of nodes)
        await until(async () => /cluster_state:ok[^]*cluster_known_nodes:3/.test(await node.call('CLUSTER', 'INFO')));
    for (const [library, connect] of Object.entries(CLUSTERS)) {
        await using one = await side(connect, first.port);
        // `foo` is in the half of the second node, and `bar` and `baz` in that of the first.
        await (await one.locks.lock('foo', PATIENT).acquire()).release();
        const error = await failure(one.locks.lock('bar', { replicas: 1, replicasWithin: 20 }).acquire());
        assert.match(String(error.message), /0 of 1 replicas/, library);
    }
    for (const library of BOTH) {
        await using one = await side(CLUSTERS[library]!, first.port);
        // While the first node waits for the replicas of another lock, the slot of this one leaves.
        const other = failure(one.locks.lock('baz', PATIENT).acquire());
        const busy = await asking(first);
        const wait = one.locks.lock('bar', PATIENT).acquire();
        await until(async () => !(await first.isFree('bar')));
        await moveSlot('bar', first, second);
        await first.call('CLIENT', 'UNBLOCK', busy);
        assert.equal((await other).code, 'NOT_REPLICATED', library);
        const hold = await wait;
        assert.ok(hold.valid());
        await copy.call('READONLY');
        assert.equal(await copy.call('EXISTS', 'bar'), 1, library);
        await hold.release();
        await moveSlot('bar', second, first);
    }
});

test('with Sentinel the primary that it names is asked', async () => {
    const [former, next] = await Server.pair();
    const sentinel = await Server.sentinel(former);
    const redis = new Redis({ sentinels: [{ host: '127.0.0.1', port: sentinel.port }], name: 'main' });
    redis.on('error', () => {});
    await using one = await side(async () => ({ redis, close: () => redis.disconnect() }), sentinel.port);
    await (await one.locks.lock('x', PATIENT).acquire()).release();
    // It has to know the replica first.
    await until(() => sentinel.call('SENTINEL', 'FAILOVER', 'main').catch(() => false));
    await until(async () => (await next.call('ROLE'))[0] === 'master' && (await next.call('WAIT', 1, 100)) === 1);
    await until(() => redis.status === 'ready' && redis.stream.remotePort === next.port);
    const before = await asked(next);
    await (await one.locks.lock('x', PATIENT).acquire()).release();
    assert.equal((await asked(next)) - before, 1);
});
