/** Why a hold was lost before its release. */
export type LostReason =
    /** The server says that the hold is over: its lease ended, it was broken, or its key was deleted. */
    | 'taken'
    /** No renewal was confirmed until the margin before the end of the lease, or `maxHold` is over. */
    | 'unconfirmed'
    /** The server refuses to renew it. */
    | 'refused';

/** Codes of refusals that may pass when the same request is repeated. */
const PASSING = new Set([
    ...['TRYAGAIN', 'BUSY', 'LOCKDELAY', 'LOCKBUSY', 'NOREPLICAS', 'OOM', 'MISCONF', 'LOADING', 'CLUSTERDOWN'],
    ...['MASTERDOWN', 'UNBLOCKED', 'MOVED', 'ASK', 'READONLY', 'NOSUBSCRIBER'],
]);
/** Codes of refusals that do not change before the lease of a hold ends. */
const LASTING = new Set(['NOPERM', 'NOAUTH', 'WRONGPASS']);
/** Codes that prove the loss of a hold: its key holds something else now. */
const LOSSES = new Set(['WRONGTYPE', 'LOCKTYPE', 'FENCED']);

/**
 * The base class of the errors of this package. `code` tells them apart, also between the ESM and the CommonJS build.
 * No message has a password or an owner.
 */
export class LockError extends Error {
    /** Whether the same request may be served when it is repeated later. */
    readonly isPassing: boolean = false;

    constructor(
        /** The kind of error: of a refusal the server's own word (`NOPERM`, `DEADLOCK`, `WRONGTYPE`, ...). */
        readonly code: string,
        message: string,
        options?: ErrorOptions,
    ) {
        super(message, options);
        this.name = new.target.name;
    }
}

/** `NOT_ACQUIRED`: the lock was not granted within `wait`. */
export class NotAcquiredError extends LockError {
    constructor(key: string, wait: number) {
        super('NOT_ACQUIRED', `${key} was not granted within ${wait} ms`);
    }
}

/** `NOT_REPLICATED`: too few replicas have the grant, which is given up. */
export class NotReplicatedError extends LockError {
    constructor(
        key: string,
        readonly had: number,
        readonly wanted: number,
        within: number,
    ) {
        super('NOT_REPLICATED', `${key}: ${had} of ${wanted} replicas have the grant within ${within} ms`);
    }
}

/** `LOST`: the lock is not held any more. */
export class LockLostError extends LockError {
    constructor(
        readonly key: string,
        readonly reason: LostReason,
        text: string,
    ) {
        super('LOST', `${key} is lost: ${text}`);
    }
}

/** `CONNECTION`: the server cannot be reached, in the words of the client library. */
export class LockConnectionError extends LockError {
    override readonly isPassing: boolean = true;

    constructor(server: string, what: string, options?: ErrorOptions, code = 'CONNECTION') {
        super(code, `${server}: ${what}`, options);
    }
}

/** `NO_ANSWER`: the server did not answer within the response timeout. */
export class NoAnswerError extends LockConnectionError {
    constructor(server: string, what = 'no answer in time') {
        super(server, what, undefined, 'NO_ANSWER');
    }
}

/** `UNHEARD`: a command under a lock was sent and its reply was lost: it may have run. It is not repeated. */
export class UnheardError extends LockError {
    constructor(server: string, options?: ErrorOptions) {
        super('UNHEARD', `${server}: the reply was lost; the command may have run`, options);
    }
}

/** The server refused the request. `code` is the first word of its reply. */
export class RefusedError extends LockError {
    override readonly isPassing: boolean;

    constructor(server: string, code: string, text: string) {
        super(code, `${server}: ${code} ${text}`);
        this.isPassing = PASSING.has(code);
    }

    /** Whether the reply proves that the lock is not held any more. */
    get isLoss(): boolean {
        return LOSSES.has(this.code);
    }

    /** Whether a renewal that is refused with this code will not be accepted before the lease ends. */
    get isLasting(): boolean {
        return LASTING.has(this.code);
    }
}

/** `QUEUEFULL`: as many requests wait as may (the option `queue`). */
export class QueueFullError extends RefusedError {}

/** `NOT_LOADED`: the server does not know the module's commands. */
export class NotLoadedError extends LockError {
    constructor(server: string, command: string) {
        super(
            'NOT_LOADED',
            `${server} does not know ${command}: it has no redis-lock module, or an older one. Load it with ` +
                '`loadmodule /usr/lib/redis/modules/libredis_lock.so` in the configuration of the server, or with ' +
                'MODULE LOAD. A hosted service that loads no modules cannot serve these locks',
        );
    }
}

/** `NO_SEMAPHORE`: nobody has created the semaphore, and the request has no `permits` to create it with. */
export class NoSemaphoreError extends LockError {
    constructor(key: string) {
        super('NO_SEMAPHORE', `there is no semaphore ${key}: create it with setPermits(), or with the option permits`);
    }
}

/** `CLOSED`: the `LockClient`, or the program's client below it, was closed, before the call or during it. */
export class ClosedError extends LockError {
    constructor(what = 'the lock client is closed', options?: ErrorOptions) {
        super('CLOSED', what, options);
    }
}

/** `CONFIG`: an argument is invalid. Nothing was sent. */
export class ConfigError extends LockError {
    constructor(message: string) {
        super('CONFIG', message);
    }
}

/** The error of a word that the server replied, or sent as a message. */
export function refusal(server: string, code: string, text: string): LockError {
    const unknown = /^unknown command ['`]?((?:LOCK|SEM)\.\w+)/i.exec(text);
    if (code === 'ERR' && unknown) return new NotLoadedError(server, unknown[1]!.toUpperCase());
    // The server quotes the arguments of an unknown command, and names its user: neither belongs in a message.
    const words = text.replace(/,? with args beginning with.*$/s, '').replace(/^User \S+/, 'this user');
    return new (code === 'QUEUEFULL' ? QueueFullError : RefusedError)(server, code, words);
}

/** The error of this package for one of a client library. */
export function translated(server: string, error: unknown): LockError {
    if (error instanceof LockError) return error;
    const text = wordsOf(error);
    const reply = /^([A-Z][A-Z0-9]{2,})(?: (.*))?$/s.exec(text);
    if (reply) return refusal(server, reply[1]!, reply[2] ?? '');
    return new LockConnectionError(server, text, { cause: error });
}

function wordsOf(error: unknown): string {
    if (!(error instanceof Error)) return String(error);
    // Node tries all addresses of a host, and its error of them has no message.
    if (error instanceof AggregateError && !error.message) return error.errors.map(wordsOf).join(', ');
    return error.message || error.name;
}
