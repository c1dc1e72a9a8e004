import { randomUUID } from 'node:crypto';
import { onAbort } from './abort.js';
import { Acquisition, jittered } from './acquire.js';
import { Election } from './election.js';
import {
    ClosedError,
    ConfigError,
    LockConnectionError,
    type LockError,
    NoAnswerError,
    RefusedError,
    translated,
} from './errors.js';
import { type Hold, Moment } from './hold.js';
import { IoRedis, type IoRedisLike, isIoRedis } from './ioredis.js';
import { type AcquireOptions, Lock, Semaphore } from './lock.js';
import { isNodeRedis, NodeRedis, type NodeRedisLike } from './node_redis.js';
import { slotOf, textOfSlot } from './slot.js';
import { Claim, checkOptions, LONGEST_TIMER, type LockOptions, type SemaphoreOptions, type Terms } from './terms.js';
import type { Answer, Command, Subscription, Transport } from './transport.js';

/** The longest time between two ticks of the timer, and the time after which an unused subscription is closed. */
const LONGEST_TICK = 3_000;
const IDLE = 30_000;

/** A client of node-redis 5 or 6 (`createClient`, `createCluster`), of ioredis 5 or 6, or of iovalkey. */
export type RedisClient = NodeRedisLike | IoRedisLike;

export interface LockClientOptions {
    /** How long the reply to a request is waited for, in milliseconds: 5,000. */
    readonly responseTimeout?: number;
    /**
     * Takes the warnings: a loss that nothing listens to, a wait without a server. By default `process.emitWarning`.
     */
    readonly onWarning?: (message: string) => void;
}

/** A subscribed connection to a node. */
interface Link {
    readonly opened: Promise<Subscription>;
    subscription: Subscription | undefined;
    /** By channel, the subscriptions that have been sent; and those that are confirmed. */
    readonly channels: Map<string, Promise<unknown>>;
    readonly confirmed: Set<string>;
    /** What gives its waits up, when the program's client is closed. */
    readonly lastWords: Command[];
    probedAt: number;
}

/**
 * Makes locks on the server of a client of the program. Its locks share one timer, and one subscription for all waits
 * (in a cluster one for each node). Make one for each client of the program, and share it.
 */
export class LockClient implements AsyncDisposable {
    /** @internal */
    readonly patience: number;
    private readonly id = randomUUID();
    private readonly transport: Transport;
    private readonly onWarning: (message: string) => void;
    private lastNumber = 0;
    private closing: Promise<void> | undefined;
    /** After `close()`: nothing is repeated any more. */
    private isGone = false;
    /** What waits, and can be told to stop. */
    private readonly waits = new Set<{ stop(reason: unknown): void }>();
    private readonly holds = new Set<Hold>();
    private readonly endings = new Set<Promise<unknown>>();
    /** The waits by their tags, in the order in which they began. */
    private readonly tickets = new Map<number, Acquisition>();
    private readonly links = new Map<string, Link>();
    private unwatch: (() => void) | undefined;
    private timer: NodeJS.Timeout | undefined;
    private plannedAt = Infinity;
    private usedAt = 0;

    constructor(redis: RedisClient, options: LockClientOptions = {}) {
        checkOptions(options, ['responseTimeout', 'onWarning']);
        const { responseTimeout = 5_000, onWarning = (text) => process.emitWarning(text, 'RedisLockWarning') } =
            options;
        if (!(responseTimeout > 0 && responseTimeout < 2 ** 31))
            throw new ConfigError('responseTimeout is a number of milliseconds');
        this.patience = responseTimeout;
        this.onWarning = onWarning;
        if (isIoRedis(redis)) this.transport = new IoRedis(redis as never, responseTimeout);
        else if (isNodeRedis(redis)) this.transport = new NodeRedis(redis as never, responseTimeout);
        else
            throw new ConfigError(
                'a client of node-redis (createClient or createCluster, not createClientPool or createSentinel), ' +
                    'ioredis (also with Sentinel) or iovalkey is needed',
            );
    }

    /** The lock of this name, or one of several names, which are granted together. */
    lock(name: string | readonly string[], options: LockOptions = {}): Lock {
        return new Lock(this, name, options);
    }

    /** The semaphore of this name. */
    semaphore(name: string, options: SemaphoreOptions = {}): Semaphore {
        return new Semaphore(this, name, options);
    }

    /** The election on this name. */
    election(name: string, options: Omit<LockOptions, 'mode' | 'note'> = {}): Election {
        return new Election(this, name, options);
    }

    /** Runs a function while the lock is held; see {@link Lock.using}. */
    using<T>(name: string | readonly string[], routine: (hold: Hold) => Promise<T> | T): Promise<T>;
    using<T>(
        name: string | readonly string[],
        options: LockOptions & AcquireOptions,
        routine: (hold: Hold) => Promise<T> | T,
    ): Promise<T>;
    using<T>(
        name: string | readonly string[],
        options: (LockOptions & AcquireOptions) | ((hold: Hold) => Promise<T> | T),
        routine?: (hold: Hold) => Promise<T> | T,
    ): Promise<T> {
        if (typeof options === 'function') return this.lock(name).using(options);
        const { wait, signal, ...terms } = options;
        const asked: AcquireOptions = { ...(wait === undefined ? {} : { wait }), signal };
        return this.lock(name, terms).using(asked, routine!);
    }

    /**
     * Ends all waits and all holds with a {@link ClosedError}: the `signal` of each hold is aborted, and nothing is
     * renewed any more. What is held is released at once, except under a routine of `using`: it keeps its lock until it
     * has ended, or the lease has. `close()` waits for these routines and the releases, at most for the response
     * timeout, and closes the subscriptions. The program's client stays open: close it afterwards.
     */
    close(): Promise<void> {
        this.closing ??= this.closeOnce();
        return this.closing;
    }

    private async closeOnce(): Promise<void> {
        // First `closing` is set: what is told of it may call `close()` again.
        await undefined;
        this.stopWaits(new ClosedError());
        const ends = [...this.holds].map((hold) => hold.close());
        await this.inTime(Promise.allSettled([...ends, ...this.endings])).catch(() => {});
        this.isGone = true;
        for (const node of this.links.keys()) this.endLink(node);
        clearTimeout(this.timer);
        this.timer = undefined;
    }

    [Symbol.asyncDispose](): Promise<void> {
        return this.close();
    }

    // Requests

    /** The server's name, for messages. @internal */
    get name(): string {
        return this.transport.name;
    }

    /** The keys of a lock, as they are stored. @internal */
    keysOf(name: string | readonly string[]): string[] {
        const names = Array.isArray(name) ? name : [name];
        if (names.some((one) => typeof one !== 'string')) throw new ConfigError('the name of a lock is a string');
        const keys = names.map((one) => this.transport.prefix + one);
        if (this.transport.isCluster && new Set(keys.map(slotOf)).size > 1) {
            throw new ConfigError('in a cluster the keys of a lock have one hash tag: {tag}');
        }
        return keys;
    }

    /** Sends a command; never rejects. Its error is one of this package. @internal */
    send(command: Command): Promise<Answer> {
        return this.answer(this.transport.send(command));
    }

    /** The reply to a command; throws its error. @internal */
    async call(command: Command): Promise<unknown> {
        if (this.closing) throw new ClosedError();
        const { reply, error } = await this.send(command);
        if (error !== undefined) throw error;
        return reply;
    }

    /** The answer of the transport, within the response timeout. */
    private answer(coming: Promise<Answer>): Promise<Answer> {
        return new Promise((resolve) => {
            const late = () => resolve({ error: new NoAnswerError(this.name), sends: 1 });
            const timer = setTimeout(late, this.patience).unref();
            void coming.then((answer) => {
                clearTimeout(timer);
                resolve(answer.error === undefined ? answer : { ...answer, error: this.translated(answer.error) });
            });
        });
    }

    private translated(error: unknown): LockError {
        const one = translated(this.name, error);
        const { closed } = this.transport;
        if (closed === undefined || !(one instanceof LockConnectionError)) return one;
        this.checkTransport();
        return new ClosedError(closed, { cause: error });
    }

    /** The result of this promise; an error after the response timeout. @internal */
    inTime<T>(promise: Promise<T>): Promise<T> {
        return new Promise((resolve, reject) => {
            const timer = setTimeout(() => reject(new NoAnswerError(this.name)), this.patience);
            promise.then(resolve, reject).finally(() => clearTimeout(timer));
        });
    }

    /** @internal */
    warn(message: string): void {
        // What it throws, or how long it takes, concerns no renewal that is written now.
        setImmediate(() => this.onWarning(message));
    }

    // Acquisitions

    /** A claim with an owner that no other acquisition has, unless the program has named one. @internal */
    claim(terms: Terms): Claim {
        return new Claim(terms, terms.owner ?? `${this.id}:${this.number()}`);
    }

    private number(): number {
        this.lastNumber += 1;
        return this.lastNumber;
    }

    /** @internal */
    acquire(terms: Terms, wait: number, signal: AbortSignal | undefined): Promise<Hold | undefined> {
        return new Promise((resolve, reject) => {
            if (this.closing) throw new ClosedError();
            signal?.throwIfAborted();
            const acquisition = new Acquisition(this, terms, wait);
            let isLeft = false;
            const abort = () => {
                isLeft = true;
                acquisition.stop(signal?.reason);
                reject(signal?.reason);
            };
            const granted = (hold: Hold | undefined) => {
                // Granted at the very moment of the abort.
                if (isLeft && hold) void this.release(hold);
                resolve(hold);
            };
            const leave = this.enter(acquisition);
            const deafen = signal && onAbort(signal, abort);
            acquisition
                .run()
                .then(granted, reject)
                .finally(() => {
                    leave();
                    deafen?.();
                });
        });
    }

    /** Something waits, until the returned function is called. @internal */
    enter(wait: { stop(reason: unknown): void }): () => void {
        this.waits.add(wait);
        this.unwatch ??= this.transport.watch(() => this.checkTransport());
        return () => {
            this.waits.delete(wait);
            if (this.waits.size > 0) return;
            this.unwatch?.();
            this.unwatch = undefined;
        };
    }

    private stopWaits(reason: ClosedError): void {
        for (const wait of this.waits) wait.stop(reason);
    }

    /** A client that its program has closed is closed for good: nothing waits for its connection. */
    private checkTransport(): void {
        const { closed } = this.transport;
        if (closed === undefined) return;
        this.stopWaits(new ClosedError(closed));
        for (const link of this.links.values()) void this.leave(link);
        this.links.clear();
    }

    /** The subscribed connection is the last one to the server: over it the waits are given up. */
    private async leave({ subscription, channels, lastWords }: Link): Promise<void> {
        subscription?.keep(true);
        const leaving = subscription?.leave([...channels.keys()], lastWords);
        await this.inTime(Promise.resolve(leaving)).catch(() => {});
        subscription?.close();
    }

    // Holds and their ends

    /** Something is held. @internal */
    add(hold: Hold): void {
        this.holds.add(hold);
        this.plan(hold.due);
    }

    /** It is renewed no more. @internal */
    remove(hold: Hold): void {
        this.holds.delete(hold);
    }

    /** Releases a hold, in the background if need be: whether it was still held. @internal */
    release(hold: Hold): Promise<boolean> {
        hold.finish();
        this.remove(hold);
        return this.end(hold.claim, hold.tokens, hold.isUnanswered, hold.ends);
    }

    /** Ends what an acquisition has at the server, or may get there yet, in the background. @internal */
    giveUp(claim: Claim, node: string | undefined): void {
        if (this.transport.closed !== undefined && node !== undefined) {
            this.links.get(node)?.lastWords.push(...claim.giveUp([]));
            return;
        }
        void this.end(claim, [], true, performance.now() + Math.max(claim.terms.lease, this.patience));
    }

    private end(claim: Claim, tokens: readonly number[], isFinal: boolean, until: number): Promise<boolean> {
        const ending = this.endRepeatedly(claim, tokens, isFinal, until);
        this.endings.add(ending);
        // The caller may have left.
        ending.catch(() => {}).finally(() => this.endings.delete(ending));
        return ending;
    }

    /** Sends a release until it is answered, or the lease is over. */
    private async endRepeatedly(
        claim: Claim,
        tokens: readonly number[],
        isFinal: boolean,
        until: number,
    ): Promise<boolean> {
        let commands = isFinal ? claim.giveUp(tokens) : claim.release(tokens);
        let isHeld = true;
        let next: number | undefined;
        for (let isFirst = true; ; isFirst = false) {
            const answers = await Promise.all(commands.map((command) => this.send(command)));
            let again: LockError | undefined;
            let failed: LockError | undefined;
            for (const { reply, error, sends } of answers) {
                if (error === undefined) {
                    // When it was sent twice, the first sending may have ended the hold.
                    if (reply === null && isFirst && sends < 2) isHeld = false;
                } else if (error instanceof RefusedError && error.isLoss) {
                    isHeld = false;
                } else if ((error as LockError).isPassing) {
                    again = error as LockError;
                    if (sends > 0 && !(error instanceof RefusedError)) commands = claim.giveUp(tokens);
                } else {
                    failed = error as LockError;
                }
            }
            if (again === undefined && failed === undefined) return isHeld;
            if (again === undefined || performance.now() >= until || this.isGone) throw again ?? failed;
            const now = jittered(next);
            next = now.next;
            await new Promise((resolve) => setTimeout(resolve, now.pause).unref());
        }
    }

    // Waits

    /** Files a wait under a new tag. @internal */
    file(acquisition: Acquisition): number {
        const tag = this.number();
        this.tickets.set(tag, acquisition);
        if (this.tickets.size === 1) {
            for (const { subscription } of this.links.values()) subscription?.keep(true);
            this.plan(performance.now() + this.patience / 2);
        }
        return tag;
    }

    /** @internal */
    unfile(tag: number): void {
        this.tickets.delete(tag);
        this.usedAt = performance.now();
        if (this.tickets.size > 0) return;
        for (const { subscription } of this.links.values()) subscription?.keep(false);
        this.timer?.unref();
    }

    /** @internal */
    isSubscribed(key: string): boolean {
        if (this.links.size === 0) return false;
        const { node, channel } = this.placeOf(key);
        return this.links.get(node)?.confirmed.has(channel) ?? false;
    }

    private placeOf(key: string): { slot: number; node: string; channel: string } {
        const channel = `lock:tickets:${this.id}`;
        if (!this.transport.isCluster) return { slot: 0, node: '', channel };
        const slot = slotOf(key);
        return { slot, node: this.transport.node(slot), channel: `${channel}:{${textOfSlot(slot)}}` };
    }

    /** Subscribes to the channel of a key, and returns it. @internal */
    async subscribe(acquisition: Acquisition, key: string): Promise<string> {
        const { slot, node, channel } = this.placeOf(key);
        acquisition.node = node;
        const link = this.links.get(node) ?? this.openLink(node, slot);
        let subscribing = link.channels.get(channel);
        if (subscribing === undefined) {
            subscribing = this.inTime(link.opened.then((subscription) => subscription.subscribe(channel)));
            link.channels.set(channel, subscribing);
            subscribing.then(
                () => link.confirmed.add(channel),
                () => this.endLink(node, link),
            );
        }
        try {
            await subscribing;
        } catch (error) {
            throw this.translated(error);
        }
        return channel;
    }

    private openLink(node: string, slot: number): Link {
        const opened = this.transport.open(
            slot,
            (text) => this.heard(text),
            () => this.endLink(node, link),
        );
        const link: Link = {
            opened,
            subscription: undefined,
            channels: new Map(),
            confirmed: new Set(),
            lastWords: [],
            probedAt: performance.now(),
        };
        this.links.set(node, link);
        opened.then(
            (subscription) => {
                link.subscription = subscription;
                if (this.links.get(node) !== link) subscription.close();
                else subscription.keep(this.tickets.size > 0);
            },
            () => this.endLink(node, link),
        );
        return link;
    }

    /** Closes a subscribed connection. Its waits ask again. */
    private endLink(node: string, link = this.links.get(node)): void {
        if (link === undefined || this.links.get(node) !== link) return;
        this.links.delete(node);
        link.subscription?.close();
        for (const acquisition of this.tickets.values()) {
            if (acquisition.node === node) acquisition.ring();
        }
    }

    private heard(text: string): void {
        // Two words and a tag; one word and a tag.
        const words = text.split(' ');
        this.tickets.get(Number(words.at(-1)))?.hear(words);
    }

    private async probe(node: string, link: Link): Promise<void> {
        link.probedAt = performance.now();
        const silent = setTimeout(() => this.endLink(node, link), this.patience / 2).unref();
        await link.subscription?.ping().catch(() => {});
        clearTimeout(silent);
    }

    // The timer

    private plan(at: number): void {
        if (at < this.plannedAt) {
            clearTimeout(this.timer);
            this.plannedAt = at;
            const ms = Math.min(Math.max(1, Math.ceil(at - performance.now())), LONGEST_TIMER);
            this.timer = setTimeout(() => this.tick(), ms);
        }
        // It keeps the process alive only while something waits.
        if (this.tickets.size > 0) this.timer?.ref();
        else this.timer?.unref();
    }

    private tick(): void {
        const moment = performance.now();
        this.timer = undefined;
        this.plannedAt = Infinity;
        if (this.waits.size > 0) this.checkTransport();
        for (const hold of this.holds) hold.check();
        if ([...this.holds].some(({ due }) => due <= moment)) this.renew();
        for (const [node, link] of this.links) {
            if (this.tickets.size === 0) {
                if (moment - this.usedAt >= IDLE) this.endLink(node, link);
            } else if (moment - link.probedAt >= this.patience / 2) void this.probe(node, link);
        }
        if (this.isGone) return;
        for (const { due } of this.holds) this.plan(due);
        if (this.tickets.size > 0) this.plan(moment + Math.min(LONGEST_TICK, this.patience / 2));
        else if (this.links.size > 0) this.plan(moment + LONGEST_TICK);
    }

    /** Renews all holds that are due, and those that are due soon, together. */
    private renew(): void {
        const commands: Command[] = [];
        const jobs: { hold: Hold; lease: number; from: number }[] = [];
        for (const hold of this.holds) {
            const renewal = hold.dueRenewal();
            if (renewal === undefined) continue;
            jobs.push({ hold, lease: renewal.lease, from: commands.length });
            commands.push(...renewal.commands);
        }
        const sent = new Moment();
        const answers = this.transport.sendAll(commands).map((coming) => this.answer(coming));
        for (const { hold, lease, from } of jobs) {
            void Promise.all(answers.slice(from, from + hold.tokens.length)).then((own) => {
                hold.renewed(own, lease, sent);
                if (this.holds.has(hold)) this.plan(hold.due);
            });
        }
    }
}
