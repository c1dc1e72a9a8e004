import type { LockClient } from './client.js';
import { Moment } from './hold.js';
import type { Answer, Command, Subscription } from './transport.js';

/** The time after which an unused connection is closed. */
const IDLE = 30_000;

/**
 * What replicas are to have: the commands, and the answers to them and to `WAIT`, with a moment before; or those that
 * show that it is not held.
 */
interface Check {
    readonly commands: readonly Command[];
    readonly replicas: number;
    readonly within: number;
    answer(answers: readonly Answer[], sent: Moment): void;
}

interface Line {
    readonly checks: Check[];
    isBusy: boolean;
    connection: Promise<Subscription> | undefined;
    idle: NodeJS.Timeout | undefined;
}

/**
 * Asks how many replicas have a grant, over a connection to each node, because what follows `WAIT` on its connection
 * waits, too. Grants that come meanwhile are asked for together, after it.
 */
export class Replicas {
    private readonly lines = new Map<string, Line>();

    constructor(private readonly client: LockClient) {}

    /** Sends these commands, and `WAIT` for so many replicas. */
    ask(key: string, commands: readonly Command[], replicas: number, within: number) {
        return new Promise<{ answers: readonly Answer[]; sent: Moment }>((resolve) => {
            const { node, slot } = this.client.placeOf(key);
            const line = this.lines.get(node) ?? { checks: [], isBusy: false, connection: undefined, idle: undefined };
            this.lines.set(node, line);
            const answer = (answers: readonly Answer[], sent: Moment) => resolve({ answers, sent });
            line.checks.push({ commands, replicas, within, answer });
            if (!line.isBusy) void this.run(line, slot);
        });
    }

    /** The program's client is closed: what it has is given up over the connection to the node, which then ends. */
    leave(key: string, commands: readonly Command[]): void {
        const line = this.lines.get(this.client.placeOf(key).node);
        line?.connection
            ?.then((connection) => {
                connection.keep(true);
                return connection.call(commands);
            })
            .catch(() => {})
            .finally(() => this.end(line));
    }

    close(): void {
        for (const line of this.lines.values()) this.end(line);
    }

    private async run(line: Line, slot: number): Promise<void> {
        line.isBusy = true;
        clearTimeout(line.idle);
        while (line.checks.length > 0) {
            const checks = line.checks.splice(0);
            const replicas = Math.max(...checks.map((check) => check.replicas));
            const within = Math.max(...checks.map((check) => check.within));
            const wait = { key: '', words: ['WAIT', String(replicas), String(within)] };
            let sent = new Moment();
            const tell = (check: Check, answers: readonly Answer[]) =>
                check.answer(
                    answers.map((answer) => this.client.ofPackage(answer)),
                    sent,
                );
            try {
                line.connection ??= this.client.open(slot, () => (line.connection = undefined));
                const connection = await this.client.inTime(line.connection);
                connection.keep(true);
                sent = new Moment();
                let held = checks.length;
                const renewals = checks.map(async (check) => {
                    const answers = await connection.call(check.commands);
                    if (answers.every(({ reply, error }) => error === undefined && Number(reply) === 1)) return answers;
                    // What is not held here any more needs no replicas: its slot has moved, perhaps.
                    tell(check, answers);
                    held -= 1;
                    if (held === 0) this.end(line);
                    return answers;
                });
                const [counts, ...all] = await this.client.inTime(
                    Promise.all([connection.call([wait]), ...renewals]),
                    within,
                );
                for (const [place, check] of checks.entries()) tell(check, [...all[place]!, ...counts]);
                connection.keep(false);
            } catch (error) {
                this.end(line);
                for (const check of checks) tell(check, [{ error, sends: 1 }]);
            }
        }
        line.isBusy = false;
        line.idle = setTimeout(() => this.end(line), IDLE).unref();
    }

    private end(line: Line): void {
        clearTimeout(line.idle);
        line.connection?.then(
            (connection) => connection.close(),
            () => {},
        );
        line.connection = undefined;
    }
}
