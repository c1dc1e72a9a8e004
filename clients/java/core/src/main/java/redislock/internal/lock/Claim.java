package redislock.internal.lock;

import java.nio.charset.StandardCharsets;
import java.util.List;
import redislock.Mode;
import redislock.internal.Clock;
import redislock.internal.net.Cmd;

/**
 * The key, owner and kind of a hold, which every command names, and these commands.
 *
 * @param key    the key
 * @param owner  the owner
 * @param number that of the acquisition, which rises with each one of its owner; zero for an owner that the program has
 *               named: its acquisitions have no numbers
 * @param kind   the kind of the hold
 * @param shares whether the owner has a hold of another mode at the key, which a release without a mode would end
 */
record Claim(byte[] key, byte[] owner, long number, Kind kind, boolean shares) {
    /**
     * The kind of a hold: of a lock in a mode, or a permit of a semaphore.
     *
     * @param mode  the mode; null for a permit
     * @param limit of a permit: an acquisition creates a missing semaphore with that many, or null
     * @param count of a permit: how many it is for
     * @param note  a text beside an exclusive hold, or null
     */
    record Kind(Mode mode, Integer limit, int count, byte[] note) {
        boolean isPermit() {
            return mode == null;
        }
    }

    /** The key as text. */
    String name() {
        return new String(key, StandardCharsets.UTF_8);
    }

    /**
     * {@code LOCK.RENEW} or {@code SEM.RENEW}: 1, or 0 when that grant is over. Without a lease (0) the server sets
     * that of a session, to which the hold stays bound.
     */
    Cmd renew(long lease, long token) {
        Cmd command = start("LOCK.RENEW", "SEM.RENEW");
        return withToken(lease == 0 ? command : command.with("PX", millis(lease)), token);
    }

    /** Ends the hold with this token: nil when the owner holds nothing, or holds it under another token. */
    Cmd release(long token) {
        return withToken(releaseAll(), token);
    }

    /**
     * Gives the acquisition up: its hold and its wait end, and a request of it that is served later grants nothing. Of
     * an owner without numbers, or with a hold of another mode, such a request may be served: it lasts for its lease.
     */
    Cmd giveUp() {
        return number == 0 || shares ? releaseAll()
                : Cmd.of(kind.isPermit() ? "SEM.RELEASE" : "LOCK.RELEASE", new Cmd.Key(key), owner)
                        .with("FINAL", number);
    }

    private Cmd releaseAll() {
        Cmd command = start("LOCK.RELEASE", "SEM.RELEASE");
        return kind.isPermit() ? command : command.with("ALL");
    }

    /** The start of a command: its name, key, owner and mode. */
    Cmd start(String ofLock, String ofPermit) {
        return withMode(Cmd.of(kind.isPermit() ? ofPermit : ofLock, new Cmd.Key(key), owner));
    }

    private Cmd withMode(Cmd command) {
        return kind.isPermit() || kind.mode() == Mode.EXCLUSIVE ? command : command.with(kind.mode().name());
    }

    /** Restricts a command to the grant with this token. A permit needs none: its owner holds at most one. */
    private Cmd withToken(Cmd command, long token) {
        return kind.isPermit() ? command : command.with("TOKEN", token);
    }

    /** One request for all of these, without {@code BLOCK}; {@code lease} is zero for a session. */
    static Cmd acquire(List<Claim> claims, long lease) {
        Claim first = claims.get(0);
        Cmd command = first.start("LOCK.ACQUIRE", "SEM.ACQUIRE");
        if (claims.size() > 1) {
            Object[] keys = claims.stream().map(claim -> new Cmd.Key(claim.key())).toArray();
            command = first.withMode(Cmd.of("LOCK.MACQUIRE", claims.size()).with(keys).with(first.owner()));
        }
        command = lease == 0 ? command.with("SESSION") : command.with("PX", millis(lease));
        if (first.number() != 0) {
            command = command.with("SEQ", first.number());
        }
        if (first.kind().note() != null) {
            command = command.with("NOTE", first.kind().note());
        }
        if (!first.kind().isPermit()) {
            return command.with("ONCE");
        }
        if (first.kind().count() > 1) {
            command = command.with("COUNT", first.kind().count());
        }
        // A repeated request of one owner for a permit always gets the reply of the first.
        return first.kind().limit() == null ? command : command.with("LIMIT", first.kind().limit());
    }

    /** Whole milliseconds, at least one: zero has another meaning. */
    static long millis(long span) {
        return Math.max(1, span / Clock.MILLI);
    }
}
