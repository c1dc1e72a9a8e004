import { setTimeout as sleep } from 'node:timers/promises';
import type { LockClient } from './client.js';
import type { LockError } from './errors.js';
import type { Hold } from './hold.js';
import { type AcquireOptions, Lock } from './lock.js';
import { LONGEST_TIMER, type LockOptions } from './terms.js';

/** The leader of an {@link Election}. */
export interface Leader {
    /** What it said of itself: its address, for example. */
    readonly note: string;
    /** The fencing token of its leadership. */
    readonly token: number;
}

/**
 * One of the candidates is the leader, until it resigns, ends, or loses its lease; then the one that waited longest.
 */
export class Election {
    private readonly lock: Lock;

    /** @internal */
    constructor(
        private readonly client: LockClient,
        private readonly name: string,
        private readonly options: Omit<LockOptions, 'mode' | 'note'>,
    ) {
        this.lock = new Lock(client, name, options);
    }

    /**
     * Becomes the leader, with a note for those who ask (at most 256 bytes). The leadership is a {@link Hold}: its
     * signal aborts at its loss, `setNote()` says something else, `release()` resigns.
     */
    campaign(note: string, options: AcquireOptions = {}): Promise<Hold> {
        return new Lock(this.client, this.name, { ...this.options, note }).acquire(options);
    }

    /** The present leader; null if there is none. */
    async leader(): Promise<Leader | null> {
        const key = this.lock.terms.keys[0]!;
        const info = await this.client.call({ key, words: ['LOCK.INFO', key] });
        const holders = field(info, 'holders');
        if (!Array.isArray(holders) || holders.length === 0) return null;
        return { note: String(field(holders[0], 'note') ?? ''), token: Number(field(holders[0], 'token')) };
    }

    /**
     * The leaders, beginning with the present one; null while there is none. The server is asked every `interval`
     * milliseconds (a third of the lease), so a shorter leadership may be left out. While it cannot be reached nothing
     * is said; what does not pass (`NOPERM`, ...) is thrown.
     */
    async *observe(
        options: { interval?: number; signal?: AbortSignal } = {},
    ): AsyncGenerator<Leader | null, void, void> {
        const { interval = this.lock.terms.lease / 3, signal } = options;
        let last: Leader | null | undefined;
        for (;;) {
            signal?.throwIfAborted();
            const leader = await this.leader().catch((error: LockError) => {
                if (!error.isPassing) throw error;
                return last;
            });
            const isFirst = leader !== undefined && last === undefined;
            if (isFirst || leader?.token !== last?.token || leader?.note !== last?.note) yield (last = leader!);
            // An aborted pause is an error of its own, with the reason as its cause.
            const pause = Math.min(interval, LONGEST_TIMER);
            await sleep(pause, undefined, { signal: signal as AbortSignal }).catch(() => {});
        }
    }
}

/** A field of a map, as RESP2, RESP3 and the libraries have it. */
function field(reply: unknown, name: string): unknown {
    if (Array.isArray(reply)) {
        const place = reply.findIndex((word, index) => index % 2 === 0 && String(word) === name);
        return place < 0 ? undefined : reply[place + 1];
    }
    if (reply instanceof Map) return reply.get(name);
    return reply === null ? undefined : (reply as Record<string, unknown> | undefined)?.[name];
}
