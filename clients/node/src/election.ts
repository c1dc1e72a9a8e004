import { onAbort } from './abort.js';
import type { LockClient } from './client.js';
import type { LockError } from './errors.js';
import type { Hold } from './hold.js';
import { type AcquireOptions, Lock } from './lock.js';
import { checkOptions, HOLD_OPTIONS, LONGEST_TIMER, type LockOptions } from './terms.js';
import { Wait } from './wait.js';

/** Ends an observation whose reader has left. */
const LEFT = Symbol('left');

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
        checkOptions(options, [...HOLD_OPTIONS, 'owner']);
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
        const [holder] = (await this.lock.info()).holders;
        return holder === undefined ? null : { note: holder.note ?? '', token: holder.token ?? 0 };
    }

    /**
     * The leaders, beginning with the present one; null while there is none. The server is asked every `interval`
     * milliseconds (a third of the lease), so a shorter leadership may be left out. While it cannot be reached nothing
     * is said; what does not pass (`NOPERM`, ...) is thrown, and `CLOSED` at the end of the client.
     */
    observe(options: { interval?: number; signal?: AbortSignal } = {}): AsyncGenerator<Leader | null, void, void> {
        checkOptions(options, ['interval', 'signal']);
        const { interval = this.lock.terms.lease / 3, signal } = options;
        const watch = new Wait();
        const leaders = this.leaders(Math.min(interval, LONGEST_TIMER), signal, watch);
        // That of a generator waits for the next leader, and there may be none.
        const end = leaders.return.bind(leaders);
        leaders.return = (value) => {
            watch.stop(LEFT);
            return end(value);
        };
        return leaders;
    }

    private async *leaders(
        interval: number,
        signal: AbortSignal | undefined,
        watch: Wait,
    ): AsyncGenerator<Leader | null, void, void> {
        let last: Leader | null | undefined;
        for (;;) {
            signal?.throwIfAborted();
            this.client.waits.add(watch);
            this.client.watch();
            const deafen = signal && onAbort(signal, () => watch.stop(signal.reason));
            try {
                last = await this.change(last, interval, watch);
            } catch (error) {
                if (error === LEFT) return;
                throw error;
            } finally {
                this.client.leave(watch);
                deafen?.();
            }
            yield last;
        }
    }

    /** The first leader that is another one than the last. */
    private async change(last: Leader | null | undefined, interval: number, watch: Wait): Promise<Leader | null> {
        for (let pause = last === undefined ? 0 : interval; ; pause = interval) {
            if (pause > 0) await watch.sleep(pause);
            const asked = this.leader().catch((error: LockError) => {
                if (!error.isPassing) throw error;
                return last;
            });
            const leader = await watch.until(asked);
            if (leader === undefined) continue;
            if (last === undefined || leader?.token !== last?.token || leader?.note !== last?.note) return leader;
        }
    }
}
