/** A cluster of two nodes, and a slot that moves while its locks are held and waited for. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Cluster } from 'ioredis';
import { LockClient } from 'redis-lock-client';
import { CLUSTERS, failure, fresh, moveSlot, Server, side, until } from './harness.js';

const SLOTS = 16_384;
const nodes = [await startNode(), await startNode()];
const ids = await Promise.all(nodes.map((node) => node.call('CLUSTER', 'MYID')));
await nodes[0]!.call('CLUSTER', 'MEET', '127.0.0.1', nodes[1]!.port);
await nodes[0]!.call('CLUSTER', 'ADDSLOTSRANGE', 0, SLOTS / 2 - 1);
await nodes[1]!.call('CLUSTER', 'ADDSLOTSRANGE', SLOTS / 2, SLOTS - 1);
for (const node of nodes) {
    await until(async () =>
        /cluster_state:ok[^]*cluster_known_nodes:2/.test(String(await node.call('CLUSTER', 'INFO'))),
    );
}

for (const [library, connect] of Object.entries(CLUSTERS)) {
    test(`${library}: waits at several nodes use one connection more at each`, async () => {
        await using one = await side(connect, nodes[0]!.port);
        const keys = Array.from({ length: 8 }, () => fresh('spread'));
        const holds = await Promise.all(keys.map((key) => one.locks.lock(key).acquire()));
        assert.ok(new Set(await Promise.all(keys.map(nodeOf))).size === 2);
        const waits = keys.map((key) => one.locks.lock(key).acquire());
        for (const key of keys) await until(async () => (await (await nodeOf(key)).waiters(key)) === 1);
        for (const node of nodes) {
            assert.equal(
                String(await node.call('CLIENT', 'LIST', 'TYPE', 'pubsub'))
                    .trim()
                    .split('\n').length,
                1,
            );
        }
        await Promise.all(holds.map((hold) => hold.release()));
        for (const wait of waits) await (await wait).release();
    });

    test(`${library}: a request is sent to the node of its key, and not redirected`, async () => {
        await using one = await side(connect, nodes[0]!.port);
        const before = await redirections();
        for (let turn = 0; turn < 8; turn += 1) {
            const hold = await one.locks.lock(fresh('node')).acquire();
            assert.ok(hold.valid());
            await hold.release();
        }
        assert.deepEqual(await redirections(), before);
    });

    test(`${library}: locks follow a slot that moves, with their waits`, async () => {
        await using one = await side(connect, nodes[0]!.port);
        const tag = `{${fresh('moved')}}`;
        const [key, other] = [`${tag}:1`, `${tag}:2`];
        const hold = await one.locks.lock(key, { lease: 60_000 }).acquire();
        const order: number[] = [];
        const waits: Promise<void>[] = [];
        const from = await nodeOf(key);
        for (let number = 0; number < 5; number += 1) {
            waits.push(one.locks.using(key, () => void order.push(number)));
            await until(async () => (await from.waiters(key)) === number + 1);
        }
        const to = nodes.find((node) => node !== from)!;
        await moveSlot(key, from, to);
        await until(async () => (await to.waiters(key)) === 5);
        await hold.renew();
        assert.ok(hold.valid());
        await hold.release();
        await Promise.all(waits);
        assert.deepEqual([...order].sort(), [0, 1, 2, 3, 4]);
        await using both = await one.locks.lock([key, other]).acquire();
        assert.equal(both.tokens.length, 2);
    });

    test(`${library}: a node that hangs takes no lock of another node away`, async () => {
        await using one = await side(connect, nodes[0]!.port);
        const keys = Array.from({ length: 6 }, () => fresh('hung'));
        const holds = await Promise.all(keys.map((key) => one.locks.lock(key, { lease: 6_000 }).acquire()));
        const places = await Promise.all(keys.map(nodeOf));
        const hung = holds.filter((_, index) => places[index] === nodes[1]);
        const healthy = holds.filter((_, index) => places[index] === nodes[0]);
        assert.ok(hung.length > 0 && healthy.length > 0);
        for (const hold of holds) assert.ok(!hold.signal.aborted);
        nodes[1]!.freeze();
        try {
            await until(() => hung.every(({ signal }) => signal.aborted));
            // Two more renewals: by then all of them would be lost.
            for (let turn = 0; turn < 2; turn += 1) {
                const ends = await Promise.all(healthy.map(({ key }) => nodes[0]!.end(key)));
                await until(async () => {
                    assert.ok(healthy.every((hold) => hold.valid()));
                    const now = await Promise.all(healthy.map(({ key }) => nodes[0]!.end(key)));
                    return now.every((end, index) => end > ends[index]!);
                });
            }
        } finally {
            nodes[1]!.thaw();
        }
        await Promise.allSettled(holds.map((hold) => hold.release()));
    });

    test(`${library}: a wait ends with the program's client`, async () => {
        await using one = await side(connect, nodes[0]!.port);
        await using two = await side(connect, nodes[0]!.port);
        const keys = Array.from({ length: 6 }, () => fresh('quit'));
        const holds = await Promise.all(keys.map((key) => two.locks.lock(key).acquire()));
        const waits = keys.map((key) => failure(one.locks.lock(key).acquire()));
        for (const [index, key] of keys.entries())
            await until(async () => (await (await nodeOf(keys[index]!)).waiters(key)) === 1);
        await ((one.redis as any).quit ?? (one.redis as any).close).call(one.redis);
        for (const wait of waits) assert.equal((await wait).code, 'CLOSED');
        for (const [index, hold] of holds.entries())
            await until(async () => (await (await nodeOf(keys[index]!)).waiters(hold.key)) === 0);
        await Promise.all(holds.map((hold) => hold.release()));
    });

    test(`${library}: keys of several slots are refused before anything is sent`, async () => {
        await using one = await side(connect, nodes[0]!.port);
        assert.throws(() => one.locks.lock(['a', 'b']), { code: 'CONFIG' });
        assert.equal((await failure(one.locks.semaphore('s{}').acquire())).code, 'ERR');
    });
}

test('ioredis with enableAutoPipelining: a slot that moved is found beside other commands', async () => {
    const cluster = new Cluster([{ host: '127.0.0.1', port: nodes[0]!.port }], { enableAutoPipelining: true });
    const locks = new LockClient(cluster);
    const key = fresh('beside');
    await (await locks.lock(key).acquire()).release();
    const counts = Array.from({ length: 50 }, () => fresh('count'));
    const timer = setInterval(() => counts.forEach((count) => cluster.incr(count).catch(() => {})), 1);
    const from = await nodeOf(key);
    await moveSlot(
        key,
        from,
        nodes.find((node) => node !== from)!,
    );
    for (let turn = 0; turn < 5; turn += 1) await (await locks.lock(key).tryAcquire())!.release();
    clearInterval(timer);
    await locks.close();
    cluster.disconnect();
});

async function startNode(): Promise<Server> {
    return Server.start('--cluster-enabled', 'yes', '--cluster-node-timeout', '15000');
}

async function redirections(): Promise<unknown[]> {
    return Promise.all(
        nodes.map(async (node) => /errorstat_MOVED:count=\d+/.exec(await node.call('INFO', 'errorstats'))?.[0]),
    );
}

async function nodeOf(key: string): Promise<Server> {
    const slot = Number(await nodes[0]!.call('CLUSTER', 'KEYSLOT', key));
    const owned = String(await nodes[0]!.call('CLUSTER', 'NODES'));
    for (const [index, node] of nodes.entries()) {
        const line = owned.split('\n').find((text) => text.startsWith(ids[index]!))!;
        const ranges = line
            .split(' ')
            .slice(8)
            .filter((text) => !text.startsWith('['));
        if (ranges.some((text) => Number(text.split('-')[0]) <= slot && slot <= Number(text.split('-').at(-1))))
            return node;
    }
    throw new Error(`no node has the slot of ${key}`);
}
