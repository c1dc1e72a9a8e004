package redislock.internal.lock;

import redislock.Mode;
import redislock.internal.Clock;
import redislock.internal.net.Cmd;

/**
 * The key, owner and kind of a hold, which every command names, and these commands.
 *
 * @param key   the key
 * @param owner the owner
 * @param kind  the kind of the hold
 */
record Claim(byte[] key, byte[] owner, Kind kind) {
    /**
     * The kind of a hold: of a lock in a mode, or a permit of a semaphore.
     *
     * @param mode  the mode; null for a permit
     * @param limit of a permit: an acquisition creates a missing semaphore with that many, or null
     */
    record Kind(Mode mode, Integer limit) {
        /** Distinguishes the holds that one owner may have on one key. */
        String word() {
            return isPermit() ? "PERMIT" : mode.name();
        }

        boolean isPermit() {
            return mode == null;
        }
    }

    /**
     * {@code LOCK.RENEW} or {@code SEM.RENEW}: 1, or 0 when that grant is over. Without a lease (0) the server sets
     * that of a session, to which the hold stays bound.
     */
    Cmd renew(long lease, long token) {
        Cmd command = start("LOCK.RENEW", "SEM.RENEW");
        return withToken(lease == 0 ? command : command.with("PX", millis(lease)), token);
    }

    /** {@code LOCK.RELEASE ... ALL} or {@code SEM.RELEASE}: nil when the owner holds nothing, or holds it under another
     * token. Without a token (null) it also withdraws a wait. */
    Cmd release(Long token) {
        Cmd command = start("LOCK.RELEASE", "SEM.RELEASE");
        if (!kind.isPermit()) {
            command = command.with("ALL");
        }
        return token == null ? command : withToken(command, token);
    }

    /** {@code FINAL}: the only acquisition of a fresh owner is given up. Every hold and wait of it ends, and a request
     * for it that is served later grants nothing. */
    Cmd giveUp() {
        return Cmd.of(kind.isPermit() ? "SEM.RELEASE" : "LOCK.RELEASE", key, owner).with("FINAL", 1);
    }

    /** The start of a command: its name, key, owner and mode. */
    Cmd start(String ofLock, String ofPermit) {
        Cmd command = Cmd.of(kind.isPermit() ? ofPermit : ofLock, key, owner);
        return withMode(command);
    }

    Cmd withMode(Cmd command) {
        return kind.isPermit() || kind.mode() == Mode.EXCLUSIVE ? command : command.with(kind.mode().name());
    }

    /** Restricts a command to the grant with this token. A permit needs none: its owner holds at most one. */
    private Cmd withToken(Cmd command, long token) {
        return kind.isPermit() ? command : command.with("TOKEN", token);
    }

    /** Whole milliseconds, at least one: zero has another meaning. */
    static long millis(long span) {
        return Math.max(1, span / Clock.MILLI);
    }
}
