import {
    ClosedError,
    ConfigError,
    type LockError,
    LockLostError,
    type LostReason,
    NotLoadedError,
    RefusedError,
    UnheardError,
} from './errors.js';
import type { LockClient } from './client.js';
import type { Routine } from './lock.js';
import type { Observed } from './observe.js';
import { type Claim, check, wordOf } from './terms.js';
import type { Answer, Command } from './transport.js';

/**
 * A moment by both clocks. The steady clock may stop while the machine is suspended, the wall clock may be set back;
 * the server's lease does neither. The larger of the two elapsed times is safe in both cases.
 */
export class Moment {
    readonly steady: number;
    private readonly wall: number;

    /** So many milliseconds ago. */
    constructor(ago = 0) {
        this.steady = performance.now() - ago;
        this.wall = Date.now() - ago;
    }

    /** Milliseconds since then. */
    elapsed(): number {
        return Math.max(performance.now() - this.steady, Date.now() - this.wall);
    }
}

/**
 * A lock that is held, several that are held together, or a permit. It is renewed until it is released, lost, or held
 * for `maxHold`. When one of several keys is lost the hold is.
 */
export class Hold implements AsyncDisposable {
    /** Whether it is released, here or in the background. */
    private isOver = false;
    /** Why it ended before its release. */
    private lost: LockLostError | ClosedError | undefined;
    /** Settled when the routine of `using` has ended, and the hold with it. */
    private use: Promise<void> | undefined;
    private controller: AbortController | undefined;
    private released: Promise<void> | undefined;
    private begun: Moment;
    private lease = 0;
    private sent!: Moment;

    /** Among the holds of its client. @internal */
    place = 0;
    /** When the next renewal is due, and the loss is reported, by the steady clock. @internal */
    renewedAt = 0;
    /** @internal */
    lostAt = 0;
    /** The time at which the server's lease is over at the latest. @internal */
    ends = 0;
    /** Whether the present lack of renewals was told. */
    private isLate = false;
    /** The shortest lease of a renewal that had no answer, and may be served yet. */
    private unheardLease = Infinity;
    /** Whether a request of the acquisition had no answer. @internal */
    isUnanswered = false;

    /** @internal */
    constructor(
        private readonly client: LockClient,
        /** @internal */
        readonly claim: Claim,
        /** The fencing token of each key, in their order. */
        readonly tokens: readonly number[],
        sent: Moment,
        /** @internal */
        readonly subject: Observed,
    ) {
        this.begun = sent;
        this.setLease(claim.terms.lease, sent);
    }

    /** The first key, as the server stores it: with the client's `keyPrefix`. */
    get key(): string {
        return this.claim.key;
    }

    /** The owner: that of the options, or a fresh one. A credential, for `resume()` elsewhere. */
    get owner(): string {
        return this.claim.owner;
    }

    /** How many permits it has; 1 of a lock. */
    get count(): number {
        return this.claim.terms.count;
    }

    /**
     * The fencing token of the first key. It is higher than that of each former holder, so a resource that refuses a
     * lower one than its highest so far is safe from a holder that was suspended. (Of a permit it is only the grant's
     * name.)
     */
    get token(): number {
        return this.tokens[0]!;
    }

    /**
     * Whether the lock is still held, for longer than the margin. It reads the clocks first, so it is correct directly
     * after a pause of the process, before any timer has run.
     */
    valid(): boolean {
        this.check();
        return !this.isOver && this.lost === undefined;
    }

    /** For how many milliseconds the lock is certainly still held. It reads the clocks. */
    validFor(): number {
        if (this.isOver || (this.lost instanceof LockLostError && this.lost.reason !== 'unconfirmed')) return 0;
        return Math.max(0, this.remaining());
    }

    /**
     * Aborted when the lock is lost before its release, with a {@link LockLostError} as its reason; or by `close()` of
     * the lock client, with a {@link ClosedError}.
     */
    get signal(): AbortSignal {
        this.check();
        if (this.controller === undefined) {
            this.controller = new AbortController();
            if (this.lost) this.controller.abort(this.lost);
        }
        return this.controller.signal;
    }

    /**
     * Releases the lock. Called again, it has the same outcome.
     *
     * @throws {LockLostError} if it was not held any more: the work was not protected to its end.
     * @throws {ClosedError} if the lock client was closed before.
     * @throws {NoAnswerError} without an answer within the response timeout. The release goes on in the background
     * until the lease is over.
     */
    release(): Promise<void> {
        return this.endBy(undefined);
    }

    /**
     * Leaves the lock held for so many milliseconds from now on, instead of releasing it, and renews it no more: for
     * work that is not to be done again too soon, or for another process that goes on with it (`resume()`). It resolves
     * and rejects as {@link release} does, which has the same outcome from then on.
     */
    async leave(rest: number): Promise<void> {
        check('rest', rest);
        return this.endBy(rest);
    }

    private endBy(rest: number | undefined): Promise<void> {
        this.check();
        this.released ??= this.endOnce(rest);
        return this.released;
    }

    [Symbol.asyncDispose](): Promise<void> {
        return this.release();
    }

    private async endOnce(rest: number | undefined): Promise<void> {
        const released = this.client.release(this, rest);
        if (this.lost instanceof LockLostError) {
            released.catch(() => {});
            throw this.lost;
        }
        const failure = (await released) ?? this.lost;
        if (failure) throw failure;
    }

    /**
     * Runs a function under this hold, and releases it, unless the function has left it. It is what `using` does, for a
     * hold of `tryAcquire()`, `campaign()` or `resume()`.
     *
     * @returns what the function returns.
     * @throws what the function throws, and else what {@link release} does.
     */
    run<T>(routine: Routine<T>): Promise<T> {
        let ended!: () => void;
        this.use = new Promise((resolve) => (ended = resolve));
        return this.runOnce(routine).finally(ended);
    }

    private async runOnce<T>(routine: Routine<T>): Promise<T> {
        let result: T;
        try {
            this.throwIfOver();
            result = await routine(this);
        } catch (error) {
            await this.release().catch(() => {});
            throw error;
        }
        await this.release();
        return result;
    }

    /** The lock client is closed: resolved when the hold is released. @internal */
    close(): Promise<void> {
        this.check();
        this.end(new ClosedError());
        return this.use ?? this.release().catch(() => {});
    }

    /**
     * Sets the lease anew, from now on, by default to the same one. Not needed, except with `renew: false`.
     *
     * @throws {LockLostError} if it is not held any more.
     */
    async renew(lease = this.claim.terms.lease): Promise<void> {
        check('lease', lease);
        await this.renewNow(Math.floor(lease));
    }

    /** Replaces the text beside the hold of an exclusive lock, and renews it. */
    async setNote(note: string): Promise<void> {
        check('note', note);
        return this.renewNow(this.claim.terms.lease, 'NOTE', note);
    }

    private async renewNow(span: number, ...words: string[]): Promise<void> {
        this.throwIfOver();
        const lease = this.nextLease(span);
        const commands = this.renewal(lease, ...words);
        const sent = new Moment();
        const answers = await Promise.all(commands.map((command) => this.client.send(command)));
        this.renewed(answers, lease, sent);
        this.throwIfOver();
        const failed = answers.find(({ error }) => error !== undefined);
        if (failed) throw failed.error;
    }

    /**
     * Runs a command of the server if the lock is still held, in one step (`LOCK.IF`), and returns its reply: a holder
     * that is late changes nothing. It is a command with a key (in a cluster in the slot of the lock; the keys as they
     * are stored, without `keyPrefix`), or `PUBLISH`. Not for permits.
     *
     * @throws {LockLostError} if the lock is not held any more: nothing has run.
     * @throws {UnheardError} if the reply was lost: it may have run.
     */
    async execute(command: string, ...args: (string | number | bigint | Uint8Array)[]): Promise<unknown> {
        if (this.claim.terms.isPermit) throw new ConfigError('a command runs under a lock, not under a permit');
        this.throwIfOver();
        const { key } = this;
        const words = ['LOCK.IF', key, String(this.token), ...[command, ...args].map(wordOf)];
        const { reply, error, sends } = await this.client.send({ key, words });
        if (error instanceof RefusedError) {
            let loss: unknown;
            if (error.code === 'FENCED') loss = this.lose('taken', 'it is not held under its token any more');
            // It may be a key of the command that has another type.
            else if (error.isLoss) loss = await this.probe();
            // Sent twice, it may have run the first time.
            if (sends < 2) throw loss || error;
        }
        if (error instanceof NotLoadedError && sends < 2) throw error;
        if (sends > 1 || (sends > 0 && error !== undefined)) throw new UnheardError(this.client.name, { cause: error });
        if (error !== undefined) throw error;
        return reply;
    }

    /** Renews it, and returns the loss, if it is lost. @internal */
    async probe(): Promise<unknown> {
        const { lease, renew } = this.claim.terms;
        await this.renewNow(renew ? lease : Math.max(1, this.remaining())).catch(() => {});
        return this.lost;
    }

    /** So much time passes at once: whether it is held on, because it is renewed meanwhile. @internal */
    pass(ms: number): boolean {
        const { renew } = this.claim.terms;
        this.begun = new Moment(this.begun.elapsed() + ms);
        this.setLease(this.lease, renew ? this.sent : new Moment(this.sent.elapsed() + ms));
        this.client.plan(this.due);
        return this.valid() && renew;
    }

    // The lease

    /** The time for which the hold is certain. The server counts in whole milliseconds. */
    private remaining(): number {
        return Math.min(this.lease - 1 - this.sent.elapsed(), this.claim.terms.maxHold - this.begun.elapsed());
    }

    /** @internal */
    setLease(lease: number, sent: Moment): void {
        const { margin, maxHold } = this.claim.terms;
        this.lease = lease;
        this.sent = sent;
        this.isLate = false;
        this.lostAt = Math.min(sent.steady + lease - 1 - Math.min(margin, lease / 2), this.begun.steady + maxHold);
        this.renewedAt = sent.steady + lease / 3;
        this.ends = Math.max(this.ends, performance.now() + lease);
    }

    private nextLease(lease: number): number {
        const { maxHold } = this.claim.terms;
        return Math.min(lease, maxHold - this.begun.elapsed());
    }

    /** When the timer has something to do with this hold. @internal */
    get due(): number {
        return this.claim.terms.renew ? Math.min(this.lostAt, this.renewedAt) : this.lostAt;
    }

    /** The commands of the renewal that is due by now, and its lease. @internal */
    dueRenewal(): { commands: Command[]; lease: number } | undefined {
        const lease = this.nextLease(this.claim.terms.lease);
        const isSoon = this.renewedAt <= performance.now() + this.lease / 10;
        if (!this.claim.terms.renew || !isSoon) return undefined;
        if (lease <= this.remaining()) {
            // A longer lease was set, or the longest time of the hold ends with this one.
            this.renewedAt = performance.now() + this.claim.terms.lease / 3;
            return undefined;
        }
        return { commands: this.renewal(lease), lease };
    }

    private renewal(lease: number, ...words: string[]): Command[] {
        // Until the reply comes the server may have either lease.
        if (lease < this.remaining()) this.setLease(lease, new Moment());
        this.renewedAt = performance.now() + lease / 3;
        this.ends = Math.max(this.ends, performance.now() + lease);
        return this.claim.renew(lease, this.tokens, ...words);
    }

    /** @internal */
    renewed(answers: readonly Answer[], lease: number, sent: Moment): void {
        if (this.isOver || this.lost) return;
        const isConfirmed = answers.every(({ reply, error }) => error === undefined && Number(reply) === 1);
        this.client.events.counters[isConfirmed ? 'renewals' : 'renewals_failed'] += 1;
        const errors = answers.flatMap(({ error }) => (error === undefined ? [] : [error]));
        const refusals = errors.filter((error) => error instanceof RefusedError);
        const [proof, lasting] = [refusals.find(({ isLoss }) => isLoss), refusals.find(({ isLasting }) => isLasting)];
        if (proof || answers.some(({ reply, error }) => error === undefined && Number(reply) !== 1)) {
            this.lose('taken', proof?.message ?? 'the server has ended the hold');
        } else if (lasting) {
            this.lose('refused', lasting.message);
        } else if (errors.length === 0) {
            // Replies may come late, or in another order.
            if (sent.steady >= this.sent.steady) this.setLease(Math.min(Math.floor(lease), this.unheardLease), sent);
            this.check();
        } else {
            if (refusals.length < errors.length) this.unheardLease = Math.min(this.unheardLease, lease);
            this.renewedAt = Math.min(this.renewedAt, performance.now() + this.lease / 20);
        }
    }

    /** Reports a loss, and a renewal that is late. @internal */
    checkInTime(): void {
        this.check();
        const since = this.sent.elapsed();
        if (this.lost || this.isLate || !this.claim.terms.renew || since < (this.lease * 2) / 3) return;
        this.isLate = true;
        this.client.events.tell('late', this.subject, since - this.lease / 3);
    }

    /** Reports the loss when its time has come. @internal */
    check(): void {
        if (this.isOver || this.lost) return;
        const { margin, maxHold } = this.claim.terms;
        const left = this.lease - 1 - this.sent.elapsed();
        const held = maxHold === Infinity ? 0 : this.begun.elapsed();
        if (held < maxHold && left > Math.min(margin, this.lease / 2)) return;
        // The last lease of a hold ends with it; it is cut to whole milliseconds.
        this.lose(
            'unconfirmed',
            held + left > maxHold - 3 ? 'it was held for maxHold' : 'its lease was not renewed in time',
        );
    }

    // The end

    private lose(reason: LostReason, text: string): LockError {
        const loss = this.loss(reason, text);
        if (!this.end(loss)) return this.lost ?? loss;
        this.report(loss);
        if (!this.controller) this.client.warn(loss.message);
        return loss;
    }

    /** Ends it before its release, if it has not ended yet. */
    private end(reason: LockLostError | ClosedError): boolean {
        if (this.isOver || this.lost) return false;
        this.lost = reason;
        this.client.remove(this);
        this.controller?.abort(reason);
        return true;
    }

    /** Counts a loss, and tells the observer. @internal */
    report(loss: LockLostError): void {
        this.client.events.counters.losses += 1;
        this.client.events.tell('lost', this.subject, loss);
    }

    /** @internal */
    loss(reason: LostReason, text: string): LockLostError {
        return new LockLostError(this.claim.terms.name, reason, text);
    }

    private throwIfOver(): void {
        this.check();
        if (this.lost) throw this.lost;
        if (this.isOver) throw this.loss('taken', 'it was released');
    }

    /** @internal */
    get wasLost(): boolean {
        return this.lost instanceof LockLostError;
    }

    /** Its release begins: from now on no request of it tells a loss. For how long it has been held. @internal */
    finish(): number {
        this.isOver = true;
        return this.begun.elapsed();
    }
}
