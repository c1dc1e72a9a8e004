import type { LockClient } from './client.js';
import {
    ClosedError,
    LockConnectionError,
    type LockError,
    LockLostError,
    NoAnswerError,
    NoSemaphoreError,
    NotReplicatedError,
    RefusedError,
    refusal,
} from './errors.js';
import { Hold, Moment } from './hold.js';
import { Observed } from './observe.js';
import type { Claim, Terms } from './terms.js';
import type { Answer } from './transport.js';
import { Wait } from './wait.js';

/** Between two attempts to reach a server each pause is twice the last one. In milliseconds, as all times. */
const FIRST_PAUSE = 20;
const LONGEST_PAUSE = 500;
/** When a wait that cannot reach its server warns, and how often from then on. */
const WARNS_AFTER = 3_000;
const WARNS_EVERY = 30_000;

/** A pause of about this length, and the next one. */
export function jittered(pause = FIRST_PAUSE): { pause: number; next: number } {
    return { pause: (pause * (1 + Math.random())) / 2, next: Math.min(pause * 2, LONGEST_PAUSE) };
}

/**
 * An acquisition, from the first request to the hold. It asks once. If the lock is not free it subscribes to the
 * channel of its client and asks as a ticket (`NOTIFY`); a message is only a reason to ask once more. When a connection
 * breaks it subscribes and asks again with the same owner, which keeps its place. Given up, its requests are made
 * final.
 */
export class Acquisition extends Wait {
    /** The name of the node at which it is subscribed. */
    node: string | undefined;
    private claim: Claim;
    private tag: number | undefined;
    /** Whether a request had no answer: the server may have granted it, or may do it yet. */
    private isUnanswered = false;
    private readonly subject: Observed;
    private hasWaited = false;
    /** Whether it has a place in the server's queue. */
    private hasPlace = false;
    /** Whether the server has answered, so that the wait goes on in spite of a broken connection. */
    private hasAnswer = false;
    private isSilent = false;
    /** Whether the connection broke under the last request. */
    private isBroken = false;
    private isOver = false;
    /** What the server has granted, before it is the program's. */
    private granted: Hold | undefined;
    private message: readonly string[] | undefined;
    private isRung = false;
    private begun = 0;
    private warnsAt = 0;
    /** When the wait is over. */
    private end: number;

    constructor(
        private readonly client: LockClient,
        private readonly terms: Terms,
        private readonly wait: number,
    ) {
        super();
        this.end = performance.now() + wait;
        this.claim = client.claim(terms);
        this.subject = new Observed(client.events, terms);
        client.waits.add(this);
    }

    /** The hold; undefined if the request was not granted when the wait is over. */
    async run(): Promise<Hold | undefined> {
        const { client } = this;
        try {
            for (let isAgain = false; ; isAgain = true) {
                const hold = await this.askOn();
                this.check();
                if (hold === undefined) {
                    this.giveUp();
                    this.subject.answer('refused');
                } else if (this.terms.replicas > 0 && !(await this.replicate(hold))) {
                    if (isAgain && this.left() <= 0)
                        throw new LockLostError(this.claim.key, 'taken', 'its lease was over before replicas had it');
                    // Others may have waited for replicas before it.
                    await this.beginAnew(hold);
                    continue;
                } else {
                    this.isOver = true;
                    client.add(hold);
                }
                return hold;
            }
        } catch (error) {
            this.giveUp();
            this.subject.answer('failed', error);
            throw error;
        } finally {
            if (this.hasWaited) client.events.gauges.waiting -= 1;
            client.leave(this);
            if (this.tag !== undefined) client.unfile(this.tag);
        }
    }

    /** Asks until the request is granted; undefined if it was not when the wait is over. */
    private async askOn(): Promise<Hold | undefined> {
        const { client } = this;
        this.begun = this.warnsAt = performance.now();
        // With a subscription the first request may wait.
        const { isPermit, permits } = this.terms;
        let isUnknown = isPermit && permits === undefined;
        let hasTicket = !isUnknown && this.wait > 0 && client.isSubscribed(this.claim.key);
        let failure: LockError | undefined;
        let next: number | undefined;
        for (;;) {
            try {
                const hold = await this.ask(hasTicket);
                if (hold) return hold;
                this.check();
                if (isUnknown) await this.findSemaphore();
                isUnknown = false;
                this.check();
                if (this.left() <= 0) return undefined;
                failure = undefined;
                if (hasTicket) next = undefined;
                hasTicket = true;
            } catch (caught) {
                this.check();
                const error = caught as LockError;
                if (!this.passes(error, failure === undefined) || (failure !== undefined && this.left() <= 0))
                    throw error;
                failure = error;
                this.warn(error);
                // A request that does not wait follows, by which the library learns of another node.
                hasTicket = false;
                const now = jittered(next);
                next = now.next;
                this.isRung = false;
                await this.sleep(Math.min(now.pause, Math.max(this.left(), FIRST_PAUSE)));
                this.check();
            }
        }
    }

    /**
     * Waits until enough replicas have this hold; false: its lease was over before. A renewal has `WAIT` cover the
     * grant, by whichever connection.
     */
    private async replicate(hold: Hold): Promise<boolean> {
        const { client, claim, terms } = this;
        const { replicas, replicasWithin } = terms;
        // What is given up from now on is final.
        hold.isUnanswered = true;
        client.watch();
        const commands = claim.renew(terms.lease, hold.tokens);
        const ask = () => this.until(client.replicas.ask(claim.key, commands, replicas, replicasWithin));
        let { answers, sent } = await ask();
        const isElsewhere = ({ error }: Answer) => /^(MOVED|ASK)$/.test((error as LockError | undefined)?.code ?? '');
        const begun = new Moment();
        for (let next: number | undefined; answers.some(isElsewhere) && begun.elapsed() < terms.lease;) {
            // The client of the program learns of the key's node: that of ioredis by chance, when it asks another one.
            await this.until(Promise.all(commands.map((command) => client.send(command))));
            const now = jittered(next);
            next = now.next;
            this.isRung = false;
            await this.sleep(now.pause);
            this.check();
            ({ answers, sent } = await ask());
        }
        const isLost = ({ reply, error }: Answer) =>
            error === undefined ? Number(reply) !== 1 : error instanceof RefusedError && error.isLoss;
        if (answers.slice(0, commands.length).some(isLost)) return false;
        const failed = answers.find(({ error }) => error !== undefined);
        // A fail-over: the new primary may have the grant.
        if ((failed?.error as LockError | undefined)?.code === 'UNBLOCKED')
            throw new NoAnswerError(client.name, 'the server has stopped to wait for replicas');
        if (failed) throw failed.error;
        const had = Number(answers.at(-1)!.reply);
        if (had < replicas) {
            this.isOver = true;
            await client.release(hold).catch(() => {});
            throw new NotReplicatedError(claim.key, had, replicas, replicasWithin);
        }
        if (sent.elapsed() >= terms.lease - terms.margin) return false;
        hold.isUnanswered = this.isUnanswered;
        hold.setLease(terms.lease, sent);
        return true;
    }

    /** What follows has another owner, or the same one after the end of this hold. */
    private async beginAnew(hold: Hold): Promise<void> {
        this.granted = undefined;
        this.isUnanswered = this.hasPlace = false;
        await this.client.release(hold).catch(() => {});
        this.check();
        this.claim = this.client.claim(this.terms);
    }

    override stop(reason: unknown): void {
        this.giveUp();
        this.subject.answer(reason instanceof ClosedError ? 'failed' : 'cancelled', reason);
        super.stop(reason);
    }

    /** The server ends the wait, if it is over by then. */
    override pass(ms: number): void {
        this.end -= ms;
    }

    /** A message of its ticket. */
    hear(words: readonly string[]): void {
        this.message = words;
        this.ring();
    }

    /** Has it ask again: messages may have been lost. */
    override ring(): void {
        this.isRung = true;
        super.ring();
    }

    private async ask(hasTicket: boolean): Promise<Hold | undefined> {
        const { client, claim } = this;
        let command = claim.acquire();
        if (hasTicket) {
            this.tag ??= client.file(this);
            const channel = await client.subscribe(this, claim.key);
            this.check();
            this.message = undefined;
            this.isRung = false;
            const block = this.end === Infinity ? 0 : Math.max(1, Math.ceil(this.left()));
            const words = ['BLOCK', String(block), 'NOTIFY', channel, String(this.tag), ...this.terms.waiting];
            command = { key: command.key, words: [...command.words, ...words] };
        }
        const sent = new Moment();
        const wasUnanswered = this.isUnanswered;
        this.isUnanswered = true;
        const { reply, error, sends } = await client.send(command);
        // What was sent twice, and answered once, may be served a second time.
        if (sends === 0 || (sends === 1 && (error === undefined || error instanceof RefusedError)))
            this.isUnanswered = wasUnanswered;
        this.isBroken = sends > 0 && error instanceof LockConnectionError && !(error instanceof NoAnswerError);
        this.hasAnswer ||= error === undefined || error instanceof RefusedError;
        if (error !== undefined) throw error;
        this.check();
        if (reply !== 'QUEUED') return this.answered(reply, sent, hasTicket);
        this.hasPlace = true;
        if (!this.hasWaited) {
            this.hasWaited = true;
            client.events.counters.waits += 1;
            client.events.gauges.waiting += 1;
        }
        this.begun = this.warnsAt = performance.now();
        // The server ends the wait at its limit, and says so.
        await this.sleep(this.left() + client.patience);
        this.check();
        const [word, code] = this.message ?? [];
        if (word === undefined) {
            this.isSilent = !this.isRung;
            if (this.isSilent || this.left() <= 0) throw new NoAnswerError(client.name);
        } else if (word === 'granted') {
            const hold = await this.ask(false);
            // One of several keys was lost, and a wait holds none.
            if (hold === undefined && this.terms.keys.length > 1) this.renewClaim();
            return hold;
        } else if (word === 'failed') {
            this.hasPlace = false;
            throw refusal(client.name, code ?? 'ERR', 'the wait was ended');
        } else {
            // The clock decides whether the wait is over.
            this.hasPlace = false;
        }
        return undefined;
    }

    /** No permit is free, also where nobody has created the semaphore. A user that may not ask waits for it. */
    private async findSemaphore(): Promise<void> {
        const { key } = this.claim;
        const { reply, error } = await this.client.send({ key, words: ['EXISTS', key] });
        if (error === undefined && Number(reply) === 0) throw new NoSemaphoreError(key);
    }

    private answered(reply: unknown, sent: Moment, hasTicket: boolean): Hold | undefined {
        const { client, claim } = this;
        if (reply === null && !hasTicket) return undefined;
        const tokens = (Array.isArray(reply) ? reply : [reply]).map(Number);
        if (reply === null || tokens.length !== this.terms.keys.length || !tokens.every(Number.isSafeInteger)) {
            throw new LockConnectionError(client.name, "a reply that is none of the module's");
        }
        const hold = new Hold(client, claim, tokens, sent, this.subject);
        hold.isUnanswered = this.isUnanswered;
        this.granted = hold;
        return hold;
    }

    private passes(error: LockError, isFirst: boolean): boolean {
        if (this.wait === 0 || this.isSilent || !error.isPassing) return false;
        // The first request that cannot be sent fails at once, in the words of the client library. One whose connection
        // broke is sent once more.
        if (error instanceof RefusedError) return error.code !== 'READONLY' || this.hasPlace;
        return this.hasAnswer || (isFirst && this.isBroken);
    }

    private warn(error: LockError): void {
        const now = performance.now();
        const seconds = (now - this.begun) / 1_000;
        if (now - this.begun < WARNS_AFTER || now < this.warnsAt) return;
        this.warnsAt = now + WARNS_EVERY;
        this.client.warn(
            `the wait for ${this.claim.key} has had no server for ${seconds.toFixed(0)} s: ${error.message}`,
        );
    }

    private left(): number {
        return Math.max(0, this.end - performance.now());
    }

    override sleep(ms: number): Promise<void> {
        if (this.isRung) return Promise.resolve();
        this.client.watch();
        return super.sleep(ms);
    }

    private giveUp(): void {
        if (this.isOver) return;
        this.isOver = true;
        if (this.granted) this.client.withdraw(this.granted);
        else if (this.isUnanswered || this.hasPlace) this.client.giveUp(this.claim, this.node);
    }

    private renewClaim(): void {
        this.client.giveUp(this.claim, this.node);
        this.isUnanswered = this.hasPlace = false;
        this.claim = this.client.claim(this.terms);
    }
}
