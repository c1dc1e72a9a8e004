import { randomUUID } from 'node:crypto';
import { onAbort } from './abort.js';
import { Acquisition, jittered } from './acquire.js';
import { Bag } from './bag.js';
import { Election } from './election.js';
import {
    ClosedError,
    ConfigError,
    LockConnectionError,
    type LockError,
    LockLostError,
    NoAnswerError,
    RefusedError,
    translated,
} from './errors.js';
import { Hold, Moment } from './hold.js';
import { IoRedis, type IoRedisLike, isIoRedis } from './ioredis.js';
import { type AcquireOptions, Lock, type Routine, Semaphore } from './lock.js';
import { isNodeRedis, NodeRedis, type NodeRedisLike } from './node_redis.js';
import { Events, Observed, type Observer, type Statistics } from './observe.js';
import { Replicas } from './replicas.js';
import { slotOf, textOfSlot } from './slot.js';
import { Claim, checkOptions, LONGEST_TIMER, type LockOptions, type SemaphoreOptions, type Terms } from './terms.js';
import type { TestServer } from './testing.js';
import type { Answer, Command, Request, Subscription, Transport, Words } from './transport.js';
import type { Wait } from './wait.js';

/** The longest time between two ticks of the timer, and the time after which an unused subscription is closed. */
const LONGEST_TICK = 3_000;
const IDLE = 30_000;

/** A client of node-redis 5 or 6 (`createClient`, `createCluster`), of ioredis 5 or 6, or of iovalkey. */
export type RedisClient = NodeRedisLike | IoRedisLike | TestServer;

export interface LockClientOptions {
    /** How long the reply to a request is waited for, in milliseconds: 5,000. */
    readonly responseTimeout?: number;
    /**
     * Takes the warnings: a loss that nothing listens to, a wait without a server. By default `process.emitWarning`.
     */
    readonly onWarning?: (message: string) => void;
    /** Learns of acquisitions, releases, losses and late renewals. */
    readonly observer?: Observer;
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
    /** @internal */
    readonly events: Events;
    private lastNumber = 0;
    private closing: Promise<void> | undefined;
    /** After `close()`: nothing is repeated any more. */
    private isGone = false;
    /** @internal */
    readonly waits = new Bag<Wait>();
    /** @internal */
    readonly requests = new Bag<TimedRequest>();
    /** @internal */
    readonly replicas = new Replicas(this);
    private readonly holds = new Bag<Hold>();
    /** How many releases are under way, and what is called when there are none. */
    private endings = 0;
    private ended: (() => void) | undefined;
    /** The waits by their tags, in the order in which they began. */
    private readonly tickets = new Map<number, Acquisition>();
    private readonly links = new Map<string, Link>();
    private unwatch: (() => void) | undefined;
    private timer: NodeJS.Timeout | undefined;
    private plannedAt = Infinity;
    private usedAt = 0;

    constructor(redis: RedisClient, options: LockClientOptions = {}) {
        checkOptions(options, ['responseTimeout', 'onWarning', 'observer']);
        const { responseTimeout = 5_000, onWarning = (text) => process.emitWarning(text, 'RedisLockWarning') } =
            options;
        this.events = new Events(options.observer ?? {}, (text) => this.warn(text));
        this.patience = responseTimeout;
        this.onWarning = onWarning;
        if (isTransport(redis)) this.transport = redis;
        else if (isIoRedis(redis)) this.transport = new IoRedis(redis as never, responseTimeout);
        else if (isNodeRedis(redis)) this.transport = new NodeRedis(redis as never, responseTimeout);
        else
            throw new ConfigError(
                'a client of node-redis (createClient or createCluster, not createClientPool or createSentinel), ' +
                    'ioredis (also with Sentinel) or iovalkey is needed',
            );
        this.transport.attach?.(this);
    }

    /** An owner's hold of this key may have ended. @internal */
    async recheck(key: string, owner: string): Promise<void> {
        const holds = this.holds.items.filter(({ claim }) => claim.owner === owner && claim.terms.keys.includes(key));
        await Promise.all(holds.map((hold) => hold.probe()));
    }

    /** So much time passes at once: what is held on, by its keys. @internal */
    pass(ms: number): { key: string; owner: string; kind: string }[] {
        for (const wait of [...this.waits.items]) wait.pass(ms);
        const held = [...this.holds.items].filter((hold) => hold.pass(ms));
        return held.flatMap(({ claim: { owner, terms } }) =>
            terms.keys.map((key) => ({ key, owner, kind: terms.kind })),
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

    /** What this client has done, and what it holds and waits for now. */
    statistics(): Statistics {
        return { counters: { ...this.events.counters }, gauges: { ...this.events.gauges } };
    }

    /** The election on this name. */
    election(name: string, options: Omit<LockOptions, 'mode' | 'note'> = {}): Election {
        return new Election(this, name, options);
    }

    /** Runs a function while the lock is held; see {@link Lock.using}. */
    using<T>(name: string | readonly string[], routine: Routine<T>): Promise<T>;
    using<T>(name: string | readonly string[], options: LockOptions & AcquireOptions, routine: Routine<T>): Promise<T>;
    using<T>(
        name: string | readonly string[],
        options: (LockOptions & AcquireOptions) | Routine<T>,
        routine?: Routine<T>,
    ): Promise<T> {
        if (typeof options === 'function') return this.lock(name).using(options);
        const { wait, signal, ...terms } = options;
        return this.lock(name, terms).using({ wait, signal }, routine!);
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
        const ends = [...this.holds.items].map((hold) => hold.close());
        const ended = this.endings > 0 ? new Promise<void>((resolve) => (this.ended = resolve)) : undefined;
        await this.inTime(Promise.all([...ends, ended])).catch(() => {});
        this.isGone = true;
        for (const node of this.links.keys()) this.endLink(node);
        this.replicas.close();
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

    /** Sends commands together. Each has an answer within the response timeout, with an error of this package. */
    private request(commands: readonly Command[], take: (answer: Answer, place: number) => void): void {
        const requests = commands.map((command, place) => new TimedRequest(this, command, place, take));
        const connecting = this.transport.connecting();
        if (connecting === undefined) return this.transport.send(requests);
        void connecting.then((error) => {
            if (error === undefined) this.transport.send(requests);
            else for (const request of requests) request.answer({ error, sends: 0 });
        });
    }

    /** Sends a command; never rejects. @internal */
    send(command: Command): Promise<Answer> {
        return new Promise((resolve) => this.request([command], resolve));
    }

    /** The reply to a command; throws its error. @internal */
    async call(command: Command): Promise<unknown> {
        if (this.closing) throw new ClosedError();
        const { reply, error } = await this.send(command);
        if (error !== undefined) throw error;
        return reply;
    }

    /** @internal */
    translated(error: unknown): LockError {
        const one = translated(this.name, error);
        const { closed } = this.transport;
        if (closed === undefined || !(one instanceof LockConnectionError)) return one;
        this.checkTransport();
        return new ClosedError(closed, { cause: error });
    }

    /** An answer with an error of this package. @internal */
    ofPackage(answer: Answer): Answer {
        return answer.error === undefined ? answer : { ...answer, error: this.translated(answer.error) };
    }

    /** The result of this promise; an error after the response timeout and this time. @internal */
    inTime<T>(promise: Promise<T>, more = 0): Promise<T> {
        return new Promise((resolve, reject) => {
            const ms = Math.min(this.patience + more, LONGEST_TIMER);
            const timer = setTimeout(() => reject(new NoAnswerError(this.name)), ms);
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
        if (this.closing) throw new ClosedError();
        signal?.throwIfAborted();
        const acquisition = new Acquisition(this, terms, wait);
        const acquiring = acquisition.run();
        if (signal === undefined) return acquiring;
        return new Promise((resolve, reject) => {
            const abort = () => {
                acquisition.stop(signal.reason);
                reject(signal.reason);
            };
            const granted = (hold: Hold | undefined) => {
                // Granted at the very moment of the abort.
                if (signal.aborted && hold) this.release(hold).catch(() => {});
                resolve(hold);
            };
            acquiring.then(granted, reject).finally(onAbort(signal, abort));
        });
    }

    /** What waits learns of the end of the program's client. @internal */
    watch(): void {
        this.unwatch ??= this.transport.watch(() => this.checkTransport());
    }

    /** @internal */
    leave(wait: Wait): void {
        this.waits.delete(wait);
        if (this.waits.items.length > 0) return;
        this.unwatch?.();
        this.unwatch = undefined;
    }

    private stopWaits(reason: ClosedError): void {
        for (const wait of [...this.waits.items]) wait.stop(reason);
    }

    /** A client that its program has closed is closed for good: nothing waits for its connection. */
    private checkTransport(): void {
        const { closed } = this.transport;
        if (closed === undefined) return;
        this.stopWaits(new ClosedError(closed));
        for (const link of this.links.values()) void this.leaveLink(link);
        this.links.clear();
    }

    /** The subscribed connection is the last one to the server: over it the waits are given up. */
    private async leaveLink({ subscription, channels, lastWords }: Link): Promise<void> {
        subscription?.keep(true);
        const leaving = subscription?.leave([...channels.keys()]).then(() => subscription.call(lastWords));
        await this.inTime(Promise.resolve(leaving)).catch(() => {});
        subscription?.close();
    }

    // Holds and their ends

    /** Something is held. @internal */
    add(hold: Hold): void {
        hold.subject.answer('granted');
        this.holds.add(hold);
        this.plan(hold.due);
    }

    /** It is renewed no more. @internal */
    remove(hold: Hold): void {
        this.holds.delete(hold);
    }

    /** Takes over a hold of the owner of these terms. @internal */
    async resume(terms: Terms, token: number): Promise<Hold> {
        const claim = this.claim(terms);
        const subject = new Observed(this.events, terms);
        const sent = new Moment();
        try {
            const reply = await this.call(claim.renew(terms.lease, [token])[0]!).catch((error: LockError) => {
                if (!(error instanceof RefusedError && error.isLoss)) throw error;
            });
            if (Number(reply) !== 1) throw new LockLostError(claim.key, 'taken', 'it is not held under this token');
            const hold = new Hold(this, claim, [token], sent, subject);
            if (this.closing) {
                this.release(hold).catch(() => {});
                throw new ClosedError();
            }
            this.add(hold);
            return hold;
        } catch (error) {
            subject.answer('failed', error);
            throw error;
        }
    }

    /**
     * Releases a hold, or leaves it for this rest, in the background if need be: the loss that this has found, if any.
     *
     * @internal
     */
    async release(hold: Hold, rest?: number): Promise<LockLostError | undefined> {
        const { subject, wasLost } = hold;
        const held = hold.finish();
        this.remove(hold);
        const isOfProgram = subject.grantedAt !== undefined;
        if (isOfProgram) this.events.gauges.holds -= 1;
        let loss: LockLostError | undefined;
        try {
            const isHeld = await this.end(hold.claim, hold.tokens, hold.isUnanswered, hold.ends, rest);
            if (!isHeld) loss = hold.loss('taken', 'it was not held any more at its release');
            return loss;
        } finally {
            if (isOfProgram && !wasLost) {
                if (loss) hold.report(loss);
                else this.events.tell('released', subject, held);
            }
        }
    }

    /** Releases a grant that the program does not get, in the background. @internal */
    withdraw(hold: Hold): void {
        const { claim, tokens } = hold;
        if (this.transport.closed === undefined) this.release(hold).catch(() => {});
        else this.replicas.leave(claim.key, claim.giveUp(tokens));
    }

    /** Ends what an acquisition has at the server, or may get there yet, in the background. @internal */
    giveUp(claim: Claim, node: string | undefined): void {
        if (this.transport.closed !== undefined && node !== undefined) {
            this.links.get(node)?.lastWords.push(...claim.giveUp([]));
            return;
        }
        const until = performance.now() + Math.max(claim.terms.lease, this.patience);
        this.end(claim, [], true, until).catch(() => {});
    }

    /**
     * Sends the end of a hold until it is answered, or the lease is over: whether it was still held. After the response
     * timeout it goes on in the background.
     */
    private end(
        claim: Claim,
        tokens: readonly number[],
        isFinal: boolean,
        until: number,
        rest?: number,
    ): Promise<boolean> {
        return new Promise((resolve, reject) => {
            const failsAt = performance.now() + this.patience;
            let isHeld = true;
            const ask = (commands: Command[], isFirst: boolean, pause?: number) => {
                let open = commands.length;
                let again: LockError | undefined;
                let failed: LockError | undefined;
                let isUnheard = false;
                this.request(commands, ({ reply, error, sends }) => {
                    const refusal = error instanceof RefusedError ? error : undefined;
                    // When it was sent twice, the first sending may have ended the hold.
                    const isNone = error === undefined && Number(reply) !== 1;
                    if (refusal?.isLoss || (isNone && (rest !== undefined || (isFirst && sends < 2)))) isHeld = false;
                    else if ((error as LockError | undefined)?.isPassing) again = error as LockError;
                    else failed ??= error as LockError | undefined;
                    isUnheard ||= error !== undefined && refusal === undefined && sends > 0;
                    open -= 1;
                    if (open > 0) return;
                    if (again === undefined || performance.now() >= until || this.isGone) {
                        this.endings -= 1;
                        if (this.endings === 0) this.ended?.();
                        const failure = again ?? failed;
                        if (failure) this.events.counters.releases_failed += 1;
                        else if (tokens.length > 0) this.events.counters.releases += 1;
                        return failure ? reject(failure) : resolve(isHeld);
                    }
                    if (isFirst) setTimeout(late, failsAt - performance.now()).unref();
                    const now = jittered(pause);
                    isFinal ||= isUnheard;
                    setTimeout(ask, now.pause, claim.end(tokens, rest, isFinal), false, now.next).unref();
                });
            };
            const late = () => reject(new NoAnswerError(this.name));
            this.endings += 1;
            ask(claim.end(tokens, rest, isFinal), true);
        });
    }

    // Waits

    /** Files a wait under a new tag. @internal */
    file(acquisition: Acquisition): number {
        const tag = this.number();
        this.tickets.set(tag, acquisition);
        if (this.tickets.size === 1) {
            for (const { subscription } of this.links.values()) subscription?.keep(true);
            this.plan(performance.now() + this.patience / 2);
            this.timer?.ref();
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

    /** @internal */
    placeOf(key: string): { slot: number; node: string; channel: string } {
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

    /** Opens a connection to the node of a slot for requests alone. @internal */
    open(slot: number, ended: () => void): Promise<Subscription> {
        this.events.counters.connections += 1;
        return this.transport.open(slot, () => {}, ended);
    }

    private openLink(node: string, slot: number): Link {
        this.events.counters.connections += 1;
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

    /** @internal */
    plan(at: number): void {
        if (at >= this.plannedAt) return;
        clearTimeout(this.timer);
        this.plannedAt = at;
        const ms = Math.min(Math.max(1, Math.ceil(at - performance.now())), LONGEST_TIMER);
        this.timer = setTimeout(() => this.tick(), ms);
        // It keeps the process alive only while something waits.
        if (this.tickets.size === 0) this.timer.unref();
    }

    private tick(): void {
        const moment = performance.now();
        this.timer = undefined;
        this.plannedAt = Infinity;
        this.checkTransport();
        for (const request of this.requests.items.filter(({ due }) => due <= moment))
            request.answer({ error: new NoAnswerError(this.name), sends: 1 });
        for (const hold of [...this.holds.items]) hold.checkInTime();
        if (this.holds.items.some(({ due }) => due <= moment)) this.renew();
        for (const [node, link] of this.links) {
            if (this.tickets.size === 0) {
                if (moment - this.usedAt >= IDLE) this.endLink(node, link);
            } else if (moment - link.probedAt >= this.patience / 2) void this.probe(node, link);
        }
        for (const { due } of [...this.holds.items, ...this.requests.items]) this.plan(due);
        if (this.tickets.size > 0) this.plan(moment + Math.min(LONGEST_TICK, this.patience / 2));
        else if (this.links.size > 0) this.plan(moment + LONGEST_TICK);
    }

    /** Renews all holds that are due, and those that are due soon, together. */
    private renew(): void {
        const commands: Command[] = [];
        const jobs: { hold: Hold; lease: number; answers: Answer[] }[] = [];
        for (const hold of this.holds.items) {
            const renewal = hold.dueRenewal();
            if (renewal === undefined) continue;
            const job = { hold, lease: renewal.lease, answers: [] };
            for (const command of renewal.commands) jobs[commands.push(command) - 1] = job;
        }
        const sent = new Moment();
        this.request(commands, (answer, place) => {
            const { hold, lease, answers } = jobs[place]!;
            if (answers.push(answer) < hold.tokens.length) return;
            hold.renewed(answers, lease, sent);
            this.plan(hold.due);
        });
    }
}

function isTransport(redis: RedisClient): redis is TestServer {
    return typeof (redis as Partial<Transport>)?.attach === 'function';
}

/** A request that has an answer within the response timeout, by the timer of its client. */
class TimedRequest implements Request {
    place = 0;
    readonly key: string;
    readonly words: Words;
    readonly due: number;

    constructor(
        private readonly client: LockClient,
        command: Command,
        private readonly index: number,
        private readonly take: (answer: Answer, index: number) => void,
    ) {
        this.key = command.key;
        this.words = command.words;
        this.due = performance.now() + client.patience;
        client.requests.add(this);
        client.plan(this.due);
    }

    answer(answer: Answer): void {
        const { client, index, take } = this;
        if (!client.requests.delete(this)) return;
        take(client.ofPackage(answer), index);
    }
}
