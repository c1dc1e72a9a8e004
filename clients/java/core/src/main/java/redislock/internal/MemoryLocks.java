package redislock.internal;

import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/** The locks of a {@link redislock.MemoryServer}: what the module's commands do, on a clock that is moved. */
public final class MemoryLocks {
    private static final long SESSION = 10_000;

    private final Map<String, Key> keys = new HashMap<>();
    private final Map<String, String> values = new HashMap<>();
    private final Set<String> channels = new HashSet<>();
    /** In their order. */
    private final List<Ask> waiting = new ArrayList<>();
    private long now;
    private long lastToken = 1_000;

    /** A message about a wait. */
    public record Message(String channel, String text) {}

    /** A lock or a semaphore; {@code permits} is zero for a lock. */
    private static final class Key {
        int permits;
        final Map<String, Held> holds = new LinkedHashMap<>();

        int held() {
            return holds.values().stream().mapToInt(hold -> hold.ask.count).sum();
        }
    }

    private static final class Held {
        final Ask ask;
        final long token;
        final long since;
        @Nullable String note;
        long end;

        Held(Ask ask, long token, long since) {
            this.ask = ask;
            this.token = token;
            this.since = since;
            this.note = ask.option("NOTE");
        }
    }

    /** A request, and its place in the queue. */
    private static final class Ask {
        final boolean isPermit;
        final List<String> names;
        final String owner;
        final String mode;
        final int count;
        final List<String> options;
        long since;
        long end;

        Ask(List<String> words) {
            isPermit = words.get(0).startsWith("SEM");
            int number = words.get(0).equals("LOCK.MACQUIRE") ? Integer.parseInt(words.get(1)) : 1;
            int first = words.get(0).equals("LOCK.MACQUIRE") ? 2 : 1;
            names = words.subList(first, first + number);
            owner = words.get(first + number);
            options = words.subList(first + number + 1, words.size());
            mode = options.contains("READ") ? "read" : options.contains("WRITE") ? "write" : "exclusive";
            count = (int) number("COUNT", 1);
        }

        @Nullable String option(String name) {
            int at = options.indexOf(name);
            return at < 0 ? null : options.get(at + 1);
        }

        long number(String name, long absent) {
            String text = option(name);
            return text == null ? absent : Long.parseLong(text);
        }

        String id() {
            return mode + " " + owner;
        }
    }

    /** An error reply. */
    public static final class Refusal extends RuntimeException {
        private static final long serialVersionUID = 1;

        private Refusal(String text) {
            super(text);
        }
    }

    /** Somebody listens to this channel from now on. */
    public void subscribe(String channel) {
        channels.add(channel);
    }

    /** Moves the clock to the end of the next lease, and at most by this span. Returns by how much. */
    public long advance(long most) {
        long step = most;
        for (Key key : keys.values()) {
            for (Held hold : key.holds.values()) {
                step = Math.min(step, Math.max(0, hold.end - now));
            }
        }
        now += step;
        return step;
    }

    /** Ends the holds of this key. */
    public boolean lose(String name) {
        Map<String, Held> holds = keys.getOrDefault(name, new Key()).holds;
        boolean wasHeld = !holds.isEmpty();
        holds.clear();
        return wasHeld;
    }

    /** The reply to a command, {@code QUEUED} for a wait. */
    public @Nullable Object reply(List<String> words) {
        String name = words.get(1);
        Key key = keys.getOrDefault(name, new Key());
        return switch (words.get(0)) {
            case "LOCK.ACQUIRE", "LOCK.MACQUIRE", "SEM.ACQUIRE" -> acquire(new Ask(words));
            case "LOCK.RENEW", "SEM.RENEW" -> renew(new Ask(words), key);
            case "LOCK.RELEASE", "SEM.RELEASE" -> release(new Ask(words), key, name);
            case "LOCK.BREAK" -> lose(name) ? 1L : null;
            case "LOCK.INFO" -> key.holds.isEmpty() && queue(name).isEmpty() ? null : info(key, name);
            case "LOCK.IF" -> execute(key, Long.parseLong(words.get(2)), words.subList(3, words.size()));
            case "SEM.SET" -> {
                checkType(key, true);
                keys.computeIfAbsent(name, absent -> new Key()).permits = Integer.parseInt(words.get(2));
                yield 1L;
            }
            case "SEM.INFO" -> key.permits == 0 ? null : List.of("permits", (long) key.permits, "free",
                    (long) key.permits - key.held(), "held", (long) key.held(), "waiters", (long) queue(name).size(),
                    "longest-wait-ms", longest(name));
            case "EXISTS" -> keys.containsKey(name) ? 1L : 0L;
            case "WAIT" -> Long.valueOf(name);
            default -> throw new Refusal("ERR unknown command '" + words.get(0) + "'");
        };
    }

    private List<Ask> queue(String name) {
        return waiting.stream().filter(ask -> ask.names.contains(name)).toList();
    }

    private long longest(String name) {
        return queue(name).stream().mapToLong(ask -> millis(now - ask.since)).findFirst().orElse(0);
    }

    private static long millis(long nanos) {
        return nanos / Clock.MILLI;
    }

    private List<Object> info(Key key, String name) {
        List<Object> holders = new ArrayList<>();
        for (Held hold : key.holds.values()) {
            List<Object> holder = new ArrayList<>(List.of("owner", hold.ask.owner, "holds", 1L, "token", hold.token,
                    "pttl", millis(hold.end - now), "held-ms", millis(now - hold.since), "note"));
            holder.add(hold.note);
            holders.add(holder);
        }
        String mode = holders.isEmpty() ? "exclusive" : key.holds.values().iterator().next().ask.mode;
        return List.of("mode", mode, "holders", holders, "waiters", (long) queue(name).size(),
                "longest-wait-ms", longest(name));
    }

    private static void checkType(Key key, boolean isPermit) {
        if (isPermit ? key.permits == 0 && !key.holds.isEmpty() : key.permits > 0) {
            throw new Refusal("WRONGTYPE Operation against a key holding the wrong kind of value");
        }
    }

    /** A lock is held exclusively, or by readers and writers. */
    private static void checkKind(Key key, Ask ask) {
        checkType(key, ask.isPermit);
        boolean isExclusive = ask.mode.equals("exclusive");
        if (key.holds.values().stream().anyMatch(hold -> hold.ask.mode.equals("exclusive") != isExclusive)) {
            throw new Refusal("LOCKTYPE the key holds " + (isExclusive ? "a read-write lock" : "an exclusive lock"));
        }
    }

    private @Nullable Object acquire(Ask ask) {
        ask.names.forEach(name -> checkKind(keys.getOrDefault(name, new Key()), ask));
        if (ask.isPermit && ask.option("LIMIT") != null) {
            keys.computeIfAbsent(ask.names.get(0), absent -> new Key()).permits = (int) ask.number("LIMIT", 0);
        }
        Ask former = waiting.stream().filter(each -> each.id().equals(ask.id()) && each.names.equals(ask.names))
                .findFirst().orElse(null);
        List<Ask> ahead = former == null ? waiting : waiting.subList(0, waiting.indexOf(former));
        boolean isHeld = ask.names.stream().allMatch(
                name -> keys.containsKey(name) && keys.get(name).holds.containsKey(ask.id()));
        boolean isNext = ahead.stream().noneMatch(each -> each.names.stream().anyMatch(ask.names::contains));
        if (isHeld || isNext && isFree(ask)) {
            waiting.remove(former);
            List<Long> tokens = grant(ask);
            return tokens.size() == 1 ? tokens.get(0) : tokens;
        }
        String channel = ask.option("NOTIFY");
        if (channel == null) {
            return null;
        }
        if (!channels.contains(channel)) {
            throw new Refusal("NOSUBSCRIBER nobody has subscribed to the channel");
        }
        long others = ask.names.stream().mapToLong(name -> queue(name).size()).max().orElse(0);
        if (former == null && others >= ask.number("QUEUE", Long.MAX_VALUE)) {
            throw new Refusal("QUEUEFULL as many requests as QUEUE allows wait for the key already");
        }
        ask.since = former == null ? now : former.since;
        ask.end = Clock.plus(now, ask.number("BLOCK", 0) * Clock.MILLI);
        if (former == null) {
            waiting.add(ask);
        } else {
            waiting.set(waiting.indexOf(former), ask);
        }
        return "QUEUED";
    }

    private boolean isFree(Ask ask) {
        for (String name : ask.names) {
            Key key = keys.getOrDefault(name, new Key());
            boolean isBlocked = key.holds.values().stream().anyMatch(hold -> !hold.ask.owner.equals(ask.owner)
                    && !(hold.ask.mode.equals("read") && ask.mode.equals("read")));
            if (ask.isPermit ? key.held() + ask.count > key.permits : isBlocked) {
                return false;
            }
        }
        return true;
    }

    private List<Long> grant(Ask ask) {
        List<Long> tokens = new ArrayList<>();
        for (String name : ask.names) {
            Map<String, Held> holds = keys.computeIfAbsent(name, absent -> new Key()).holds;
            // Readers that hold a lock together share a token.
            long token = holds.values().stream().filter(hold -> ask.mode.equals("read") && hold.ask.mode.equals("read"))
                    .mapToLong(hold -> hold.token).findFirst().orElseGet(() -> ++lastToken);
            Held hold = holds.computeIfAbsent(ask.id(), absent -> new Held(ask, token, now));
            hold.end = now + ask.number("PX", SESSION) * Clock.MILLI;
            tokens.add(hold.token);
        }
        return tokens;
    }

    private long renew(Ask ask, Key key) {
        Held hold = key.holds.get(ask.id());
        if (hold == null || ask.number("TOKEN", hold.token) != hold.token) {
            return 0;
        }
        hold.end = now + ask.number("PX", SESSION) * Clock.MILLI;
        hold.note = ask.option("NOTE") == null ? hold.note : ask.option("NOTE");
        return 1;
    }

    private @Nullable Long release(Ask ask, Key key, String name) {
        boolean isFinal = ask.option("FINAL") != null;
        boolean hasWaited = waiting.removeIf(each -> each.owner.equals(ask.owner) && each.names.contains(name)
                && (isFinal || each.mode.equals(ask.mode)));
        Collection<Held> holds = key.holds.values();
        boolean hasHeld = holds.removeIf(hold -> hold.ask.owner.equals(ask.owner) && (isFinal
                || hold.ask.mode.equals(ask.mode) && ask.number("TOKEN", hold.token) == hold.token));
        return hasHeld || hasWaited ? 1L : null;
    }

    private @Nullable Object execute(Key key, long token, List<String> words) {
        if (key.holds.values().stream().noneMatch(hold -> hold.token == token)) {
            throw new Refusal("FENCED the lock is not held under this token");
        }
        String name = words.get(1);
        return switch (words.get(0).toUpperCase(Locale.ROOT)) {
            case "GET" -> values.get(name);
            case "SET" -> {
                List<String> options = words.subList(3, words.size());
                boolean isThere = values.containsKey(name);
                if (options.stream().anyMatch(isThere ? "NX"::equalsIgnoreCase : "XX"::equalsIgnoreCase)) {
                    yield null;
                }
                values.put(name, words.get(2));
                yield "OK";
            }
            case "INCR" -> increment(name);
            case "DEL" -> words.stream().skip(1).filter(each -> values.remove(each) != null).count();
            default -> throw new Refusal("ERR unknown command '" + words.get(0) + "'");
        };
    }

    private long increment(String name) {
        try {
            long next = Math.addExact(Long.parseLong(values.getOrDefault(name, "0")), 1);
            values.put(name, "" + next);
            return next;
        } catch (ArithmeticException | NumberFormatException no) {
            throw new Refusal("ERR value is not an integer or out of range");
        }
    }

    /** Ends leases and waits whose time is over, and grants. Returns what is to be published. */
    public List<Message> settle() {
        keys.values().forEach(key -> key.holds.values().removeIf(hold -> hold.end <= now));
        keys.values().removeIf(key -> key.permits == 0 && key.holds.isEmpty());
        List<Message> messages = new ArrayList<>();
        Set<String> taken = new HashSet<>();
        for (Iterator<Ask> each = waiting.iterator(); each.hasNext();) {
            Ask ask = each.next();
            boolean isGranted = ask.names.stream().noneMatch(taken::contains) && isFree(ask);
            if (!isGranted && ask.end > now) {
                taken.addAll(ask.names);
                continue;
            }
            each.remove();
            String outcome = isGranted ? "granted " + grant(ask).get(0) : "timeout";
            int notify = ask.options.indexOf("NOTIFY");
            messages.add(new Message(ask.options.get(notify + 1), outcome + " " + ask.options.get(notify + 2)));
        }
        return messages;
    }
}
