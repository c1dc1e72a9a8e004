import type { LockClient } from './client.js';
import { ConfigError, NotAcquiredError } from './errors.js';
import type { Hold } from './hold.js';
import {
    checkedWait,
    checkOptions,
    checkPermits,
    type LockOptions,
    type SemaphoreOptions,
    type Terms,
    termsOf,
} from './terms.js';

export interface AcquireOptions {
    /** How long to wait in the server's queue, in milliseconds; `Infinity` has no limit. */
    readonly wait?: number | undefined;
    /** Ends the acquisition: it rejects with the signal's reason at once, and leaves nothing at the server. */
    readonly signal?: AbortSignal | undefined;
}

function checked(options: AcquireOptions): AcquireOptions {
    checkOptions(options, ['wait', 'signal']);
    const { signal } = options;
    if (signal !== undefined && !(signal instanceof AbortSignal)) throw new ConfigError('signal is an AbortSignal');
    return options;
}

/** A lock, or several that are granted together. The object has no state: each acquisition makes a {@link Hold}. */
export class Lock {
    /** @internal */
    readonly terms: Terms;

    /** @internal */
    constructor(
        /** @internal */
        readonly client: LockClient,
        name: string | readonly string[],
        options: LockOptions | SemaphoreOptions,
        isPermit = false,
    ) {
        this.terms = termsOf(client.keysOf(name), options, isPermit);
    }

    /**
     * Waits until the lock is granted, by default without a limit.
     *
     * @throws {NotAcquiredError} if it is not granted within `wait`.
     * @throws {NoSemaphoreError} if it is one of a semaphore that nobody has created, and has no `permits`.
     * @throws {LockError} when the server refuses the request, or the first request cannot be sent. Once the server has
     * answered, the wait goes on when connections break.
     */
    async acquire(options: AcquireOptions = {}): Promise<Hold> {
        const { wait = Infinity, signal } = checked(options);
        const hold = await this.client.acquire(this.terms, checkedWait(wait), signal);
        if (hold === undefined) throw new NotAcquiredError(this.terms.keys.join(', '), wait);
        return hold;
    }

    /** The hold, or null if the lock is not granted within `wait`: by default at once. */
    async tryAcquire(options: AcquireOptions = {}): Promise<Hold | null> {
        const { wait = 0, signal } = checked(options);
        return (await this.client.acquire(this.terms, checkedWait(wait), signal)) ?? null;
    }

    /**
     * Acquires the lock, runs the function, and releases the lock. Work in it passes `hold.signal` on, or asks
     * `hold.valid()`.
     *
     * @returns what the function returns.
     * @throws what {@link acquire} throws, what the function throws, and else {@link LockLostError} if the lock was
     * lost meanwhile, {@link ClosedError} if the lock client was closed, {@link NoAnswerError} if the release had no
     * answer.
     */
    using<T>(routine: (hold: Hold) => Promise<T> | T): Promise<T>;
    using<T>(options: AcquireOptions, routine: (hold: Hold) => Promise<T> | T): Promise<T>;
    async using<T>(
        options: AcquireOptions | ((hold: Hold) => Promise<T> | T),
        routine?: (hold: Hold) => Promise<T> | T,
    ): Promise<T> {
        const run = typeof options === 'function' ? options : routine;
        if (typeof run !== 'function') throw new ConfigError('using() needs a function');
        const hold = await this.acquire(typeof options === 'function' ? {} : options);
        return hold.run(run);
    }
}

/** A semaphore: each hold is one of its permits. */
export class Semaphore extends Lock {
    /** @internal */
    constructor(client: LockClient, name: string, options: SemaphoreOptions) {
        super(client, name, options, true);
    }

    /** Makes the semaphore with so many permits, or changes how many it has. Held permits stay held. */
    async setPermits(permits: number): Promise<void> {
        checkPermits(permits, 0);
        const key = this.terms.keys[0]!;
        await this.client.call({ key, words: ['SEM.SET', key, String(permits)] });
    }
}
