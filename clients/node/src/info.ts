/** What the server knows of a lock. */
export interface LockInfo {
    /** `string`: another library holds the key as a string. Undefined when the lock is free. */
    readonly mode: 'exclusive' | 'read' | 'write' | 'string' | undefined;
    /** The holder, or the readers. */
    readonly holders: readonly Holder[];
    /** How many requests wait. */
    readonly waiters: number;
    /** How long the first of them has waited, in milliseconds. */
    readonly longestWait: number;
}

export interface Holder {
    /** A credential: who has it can release the lock. */
    readonly owner: string;
    readonly note: string | undefined;
    /** The fencing token; undefined of a hold that Redisson took. */
    readonly token: number | undefined;
    /** How often the owner has acquired it: 1 for this package. */
    readonly holds: number;
    /** The rest of the lease in milliseconds; undefined if it has no end. */
    readonly remaining: number | undefined;
    /** How long it is held so far, in milliseconds; undefined if the server does not know. */
    readonly held: number | undefined;
}

/** What the server knows of a semaphore. Of one that there is not all numbers are 0. */
export interface SemaphoreInfo {
    readonly permits: number;
    readonly held: number;
    /** Below 0 after `setPermits()` to less than is held. */
    readonly free: number;
    /** The time until the next lease ends, in milliseconds; undefined if none does. */
    readonly nextEnd: number | undefined;
    readonly waiters: number;
    readonly longestWait: number;
}

/** By the reply to `LOCK.INFO`. */
export function lockInfo(reply: unknown): LockInfo {
    const holders = field(reply, 'holders');
    return {
        mode: text(reply, 'mode') as LockInfo['mode'],
        holders: Array.isArray(holders) ? holders.map(holder) : [],
        waiters: number(reply, 'waiters') ?? 0,
        longestWait: number(reply, 'longest-wait-ms') ?? 0,
    };
}

function holder(reply: unknown): Holder {
    const remaining = number(reply, 'pttl') ?? -1;
    return {
        owner: text(reply, 'owner') ?? '',
        note: text(reply, 'note'),
        token: number(reply, 'token'),
        holds: number(reply, 'holds') ?? 0,
        remaining: remaining < 0 ? undefined : remaining,
        held: number(reply, 'held-ms'),
    };
}

/** By the reply to `SEM.INFO`. */
export function semaphoreInfo(reply: unknown): SemaphoreInfo {
    return {
        permits: number(reply, 'permits') ?? 0,
        held: number(reply, 'held') ?? 0,
        free: number(reply, 'free') ?? 0,
        nextEnd: number(reply, 'next-end-ms'),
        waiters: number(reply, 'waiters') ?? 0,
        longestWait: number(reply, 'longest-wait-ms') ?? 0,
    };
}

function text(reply: unknown, name: string): string | undefined {
    const value = field(reply, name);
    return value === undefined ? undefined : String(value);
}

function number(reply: unknown, name: string): number | undefined {
    const value = field(reply, name);
    return value === undefined ? undefined : Number(value);
}

/** A field of a map, as RESP2, RESP3 and the libraries have it; undefined if it is nil. */
function field(reply: unknown, name: string): unknown {
    if (Array.isArray(reply)) {
        const place = reply.findIndex((word, index) => index % 2 === 0 && String(word) === name);
        return place < 0 ? undefined : (reply[place + 1] ?? undefined);
    }
    if (reply instanceof Map) return reply.get(name) ?? undefined;
    return (reply as Record<string, unknown> | null | undefined)?.[name] ?? undefined;
}
