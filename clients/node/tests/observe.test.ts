/** What an observer learns, what is counted, and what OpenTelemetry's API is given. */
import assert from 'node:assert/strict';
import { AsyncLocalStorage } from 'node:async_hooks';
import { test } from 'node:test';
import { metrics, trace } from '@opentelemetry/api';
import { LockClient, type Observer, type Subject } from 'redis-lock-client';
import { openTelemetry } from 'redis-lock-client/opentelemetry';
import { TestServer } from 'redis-lock-client/testing';
import { BOTH, failure, fresh, LIBRARIES, Server, side, until } from './harness.js';

const server = await Server.start();
const requests = new AsyncLocalStorage<string>();

/** An observer that keeps what it learns as text, without the names. */
function keep(lines: string[], subjects = new Set<Subject>()): Observer {
    const add = (subject: Subject, ...words: unknown[]) => {
        subjects.add(subject);
        lines.push([subject.kind, ...words].join(' '));
    };
    return {
        asked: (lock) => add(lock, 'asked', requests.getStore() ?? ''),
        answered(lock, granted, waited, error: any) {
            assert.ok(waited >= 0 && granted === (lock.grantedAt !== undefined));
            add(lock, granted ? 'granted' : 'not granted', error?.name ?? '');
        },
        released(lock, held) {
            assert.ok(held >= 0);
            add(lock, 'released');
        },
        lost: (lock, { reason }) => add(lock, 'lost', reason),
        late: (lock, by) => by > 0 && add(lock, 'late'),
    };
}

for (const library of BOTH) {
    const connect = LIBRARIES[library]!;

    test(`${library}: an observer learns what a client does, and it is counted`, async () => {
        const [lines, subjects] = [[] as string[], new Set<Subject>()];
        await using one = await side(connect, server.port, { observer: keep(lines, subjects) });
        const [x, rw, p, broken] = [fresh('x'), fresh('rw'), fresh('p'), fresh('broken')];
        const lock = one.locks.lock(x, { lease: 6_000 });
        const hold = await requests.run('request 7', () => lock.acquire());
        assert.equal(await lock.tryAcquire(), null);
        const stop = new AbortController();
        const wait = failure(lock.acquire({ signal: stop.signal }));
        await until(() => one.locks.statistics().gauges.waiting === 1);
        assert.equal(one.locks.statistics().counters.connections, 1);
        stop.abort();
        await wait;
        const end = await server.end(x);
        await until(async () => (await server.end(x)) > end);
        assert.equal((await failure(one.locks.lock(x, { queue: 0 }).acquire())).code, 'QUEUEFULL');
        await hold.release();
        const left = await one.locks.lock(rw, { mode: 'read' }).acquire();
        await left.leave(60_000);
        await (await one.locks.lock(rw, { mode: 'read' }).resume(left.owner, left.token)).release();
        const permit = await one.locks.semaphore(p, { permits: 1 }).acquire();
        await server.call('SEM.RELEASE', p, permit.owner);
        await failure(permit.release());
        const lost = await one.locks.lock([broken], { lease: 3_000 }).acquire();
        await server.call('LOCK.BREAK', broken);
        await until(() => lost.signal.aborted);
        await failure(lost.release());
        await new Promise(setImmediate);
        assert.deepEqual(lines, [
            'exclusive asked request 7',
            'exclusive granted ',
            'exclusive asked ',
            'exclusive not granted ',
            'exclusive asked ',
            'exclusive not granted AbortError',
            'exclusive asked ',
            'exclusive not granted QueueFullError',
            'exclusive released',
            'read asked ',
            'read granted ',
            'read released',
            'read asked ',
            'read granted ',
            'read released',
            'semaphore asked ',
            'semaphore granted ',
            'semaphore lost taken',
            'exclusive asked ',
            'exclusive granted ',
            'exclusive lost taken',
        ]);
        assert.equal(subjects.size, 8);
        assert.equal([...subjects][0]!.name, x);
        const { counters, gauges } = one.locks.statistics();
        const { renewals, releases, ...others } = counters;
        assert.deepEqual(others, {
            acquisitions: 5,
            acquisitions_refused: 1,
            acquisitions_failed: 1,
            waits: 1,
            renewals_failed: 1,
            losses: 2,
            releases_failed: 0,
            connections: 1,
        });
        assert.ok(renewals >= 1 && releases >= 4);
        assert.deepEqual(gauges, { holds: 0, waiting: 0 });
    });

    test(`${library}: a renewal that is not confirmed is late, and what an observer throws is a warning`, async () => {
        const hung = await Server.start();
        const lines: string[] = [];
        const observer = {
            ...keep(lines),
            asked() {
                throw new Error('of the observer');
            },
        };
        await using one = await side(connect, hung.port, { observer, responseTimeout: 1_000 });
        const hold = await one.locks.lock(fresh('late'), { lease: 6_000 }).acquire();
        await until(() => one.warnings.some((text) => text.includes('of the observer')));
        const reader = await one.locks.lock(fresh('late'), { mode: 'read' }).acquire();
        const { signal } = hold;
        hung.freeze();
        assert.equal((await failure(reader.release())).code, 'NO_ANSWER');
        await until(() => signal.aborted);
        hung.thaw();
        await until(() => lines.includes('exclusive lost unconfirmed'));
        const of = (kind: string) => lines.filter((line) => line.startsWith(kind));
        assert.deepEqual(of('exclusive'), ['exclusive granted ', 'exclusive late', 'exclusive lost unconfirmed']);
        assert.deepEqual(of('read'), ['read granted ', 'read released']);
        await hung.remove();
    });
}

test('a hold that is released or left has the time since its grant', async () => {
    const server = new TestServer();
    const hours: number[] = [];
    const observer: Observer = { released: (_, held) => hours.push(Math.floor(held / 3_600_000)) };
    await using locks = new LockClient(server, { observer });
    const [first, second] = [await locks.lock('a').acquire(), await locks.lock('b').acquire()];
    await server.advance(3_600_000);
    await first.release();
    await server.advance(3_600_000);
    await second.leave(1_000);
    await new Promise(setImmediate);
    assert.deepEqual(hours, [1, 2]);
});

test('OpenTelemetry has times, losses and spans', async () => {
    const lines = new Set<string>();
    const add = (name: string) => (value: number, attributes: object) => {
        assert.ok(value >= 0 && value < 3_600);
        lines.add(`${name} ${JSON.stringify(attributes)}`);
    };
    const observer = openTelemetry({
        meter: {
            createHistogram: (name, { unit }) => ({ record: add(`${name} ${unit}`) }),
            createCounter: (name) => ({ add: add(name) }),
        },
        tracer: {
            startSpan(name, { startTime }) {
                let text = name;
                return {
                    setStatus: ({ code }) => (text += ` status ${code}`),
                    end: (time) => lines.add(time >= startTime ? text : 'no time'),
                };
            },
        },
        attributes: ({ name }) => ({ name: name.split(':')[0]! }),
    });
    const connect = LIBRARIES[BOTH[0]!]!;
    await using one = await side(connect, server.port, { observer });
    await one.locks.using(fresh('otel'), () => {});
    const lost = await one.locks.lock(fresh('otel'), { mode: 'write', lease: 3_000 }).acquire();
    await server.call('LOCK.BREAK', lost.key);
    await until(() => lost.signal.aborted);
    const text = fresh('otel');
    await server.call('SET', text, 'x');
    await failure(one.locks.lock(text).acquire());
    for (const line of [
        'redis_lock.wait s {"redis_lock.granted":true,"redis_lock.kind":"exclusive","name":"otel"}',
        'redis_lock.hold s {"redis_lock.kind":"exclusive","name":"otel"}',
        'redis_lock.losses {"redis_lock.reason":"taken","redis_lock.kind":"write","name":"otel"}',
        'redis_lock.wait s {"redis_lock.granted":false,"redis_lock.kind":"exclusive","name":"otel"}',
        'lock exclusive',
        'lock write',
        'lock exclusive status 2',
    ])
        await until(() => lines.has(line), line);

    // The API itself, without an SDK.
    const real = openTelemetry({ meter: metrics.getMeter('locks'), tracer: trace.getTracer('locks') });
    await using other = await side(connect, server.port, { observer: real });
    await other.locks.using(fresh('otel'), () => {});
});
