import type { LockClient } from './client.js';
import { ConfigError, NotAcquiredError } from './errors.js';
import type { Hold } from './hold.js';
import { type LockInfo, lockInfo, type SemaphoreInfo, semaphoreInfo } from './info.js';
import { check, checkOptions, type LockOptions, type SemaphoreOptions, type Terms, termsOf } from './terms.js';

export interface AcquireOptions {
    /** How long to wait in the server's queue, in milliseconds; `Infinity` has no limit. */
    readonly wait?: number | undefined;
    /** Ends the acquisition: it rejects with the signal's reason at once, and leaves nothing at the server. */
    readonly signal?: AbortSignal | undefined;
}

/** The work of `using`. */
export type Routine<T> = (hold: Hold) => Promise<T> | T;

/** What can be held. The object has no state: each acquisition makes a {@link Hold}. */
abstract class Holdable {
    /** @internal */
    readonly terms: Terms;

    /** @internal */
    constructor(
        /** @internal */
        readonly client: LockClient,
        name: string | readonly string[],
        options: LockOptions | SemaphoreOptions,
        isPermit: boolean,
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
        const hold = await this.within(Infinity, options);
        if (hold === undefined) throw new NotAcquiredError(this.terms.name, options.wait ?? Infinity);
        return hold;
    }

    /** The hold, or null if the lock is not granted within `wait`: by default at once. */
    async tryAcquire(options: AcquireOptions = {}): Promise<Hold | null> {
        return (await this.within(0, options)) ?? null;
    }

    /** The hold, or undefined if the lock is not granted within this time, or that of the options. */
    private within(most: number, options: AcquireOptions): Promise<Hold | undefined> {
        checkOptions(options, ['wait', 'signal']);
        const { wait = most, signal } = options;
        return this.client.acquire(this.terms, wait, signal);
    }

    /**
     * Takes over what another process has acquired, by its `hold.owner` and `hold.token`: the lease is set anew to that
     * of this object, and renewed from now on. (The server does not compare the token of a permit.) Not for several
     * keys.
     *
     * @throws {LockLostError} if it is not held any more: nothing is changed.
     * @throws {LockConnectionError} if the request had no answer: the lease may have been set.
     */
    async resume(owner: string, token: number): Promise<Hold> {
        check('owner', owner);
        check('token', token);
        this.needOneKey();
        return this.client.resume({ ...this.terms, owner }, token);
    }

    /** The reply of the server to this question about the key. @internal */
    protected async ask(verb: string): Promise<unknown> {
        const key = this.needOneKey();
        return this.client.call({ key, words: [verb, key] });
    }

    private needOneKey(): string {
        const [key, ...others] = this.terms.keys;
        if (others.length > 0) throw new ConfigError('this is for a lock of one key');
        return key!;
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
    using<T>(routine: Routine<T>): Promise<T>;
    using<T>(options: AcquireOptions, routine: Routine<T>): Promise<T>;
    async using<T>(options: AcquireOptions | Routine<T>, routine?: Routine<T>): Promise<T> {
        if (typeof options === 'function') return this.using({}, options);
        if (typeof routine !== 'function') throw new ConfigError('using() needs a function');
        return (await this.acquire(options)).run(routine);
    }
}

/** A lock, or several that are granted together. */
export class Lock extends Holdable {
    /** @internal */
    constructor(client: LockClient, name: string | readonly string[], options: LockOptions) {
        super(client, name, options, false);
    }

    /** Who holds a lock of one key, and how many wait for it. Of a lock that is free it has no holders. */
    async info(): Promise<LockInfo> {
        return lockInfo(await this.ask('LOCK.INFO'));
    }
}

/** A semaphore: each hold is one of its permits. */
export class Semaphore extends Holdable {
    /** @internal */
    constructor(client: LockClient, name: string, options: SemaphoreOptions) {
        super(client, name, options, true);
    }

    /** How many permits there are, and how many wait for one. */
    async info(): Promise<SemaphoreInfo> {
        return semaphoreInfo(await this.ask('SEM.INFO'));
    }

    /** Makes the semaphore with so many permits, or changes how many it has. Held permits stay held. */
    async setPermits(permits: number): Promise<void> {
        if (permits !== 0) check('permits', permits);
        const key = this.terms.keys[0]!;
        await this.client.call({ key, words: ['SEM.SET', key, String(permits)] });
    }
}
