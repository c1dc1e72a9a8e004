/** Records what a client does with OpenTelemetry's API (`@opentelemetry/api`), which the program has. */
import type { Observer, Subject } from './observe.js';

type Attributes = Record<string, string | number | boolean>;

/** What this needs of a `Meter`. */
export interface MeterLike {
    createHistogram(name: string, options: { unit: string }): { record(value: number, attributes: Attributes): void };
    createCounter(name: string): { add(value: number, attributes: Attributes): void };
}

/** What this needs of a `Tracer`. */
export interface TracerLike {
    startSpan(
        name: string,
        options: { kind: number; startTime: number; attributes: Attributes },
    ): { setStatus(status: { code: number; message: string }): unknown; end(time: number): void };
}

export interface OpenTelemetryOptions {
    readonly meter?: MeterLike;
    readonly tracer?: TracerLike;
    /** More attributes, for example one by the name of the lock, of which there may be many: it is not recorded. */
    readonly attributes?: (lock: Subject) => Attributes;
}

/** `SpanKind.CLIENT` and `SpanStatusCode.ERROR` of the API. */
const CLIENT = 2;
const ERROR = 2;

/**
 * An observer for the option of `LockClient`: the histograms `redis_lock.wait` (with the attribute
 * `redis_lock.granted`) and `redis_lock.hold` in seconds, the counters `redis_lock.losses` (with `redis_lock.reason`)
 * and `redis_lock.late_renewals`, and a span for each acquisition, all with the attribute `redis_lock.kind`.
 */
export function openTelemetry({ meter, tracer, attributes }: OpenTelemetryOptions): Observer {
    const wait = meter?.createHistogram('redis_lock.wait', { unit: 's' });
    const hold = meter?.createHistogram('redis_lock.hold', { unit: 's' });
    const losses = meter?.createCounter('redis_lock.losses');
    const late = meter?.createCounter('redis_lock.late_renewals');
    const of = (lock: Subject): Attributes => ({ 'redis_lock.kind': lock.kind, ...attributes?.(lock) });
    return {
        answered(lock, granted, waited, error) {
            const all = { 'redis_lock.granted': granted, ...of(lock) };
            wait?.record(waited / 1_000, all);
            const end = Date.now();
            const options = { kind: CLIENT, startTime: end - waited, attributes: all };
            const span = tracer?.startSpan(`lock ${lock.kind}`, options);
            if (error !== undefined) span?.setStatus({ code: ERROR, message: String(error) });
            span?.end(end);
        },
        released: (lock, held) => hold?.record(held / 1_000, of(lock)),
        lost: (lock, { reason }) => losses?.add(1, { 'redis_lock.reason': reason, ...of(lock) }),
        late: (lock) => late?.add(1, of(lock)),
    };
}
