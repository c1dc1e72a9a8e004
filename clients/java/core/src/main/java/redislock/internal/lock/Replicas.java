package redislock.internal.lock;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import redislock.LockException;
import redislock.LockOptions;
import redislock.NotReplicatedException;
import redislock.RefusedException;
import redislock.internal.Clock;
import redislock.internal.Loop;
import redislock.internal.Moment;
import redislock.internal.net.Cmd;
import redislock.internal.net.Link;
import redislock.internal.net.Network;
import redislock.internal.net.Reply;

/**
 * Waits until replicas have grants. Each lease is set again, and {@code WAIT} follows on the same connection: so it
 * waits for these writes, whichever connection the grants came by. The server serves nothing else on that connection
 * meanwhile, so each node has one for this alone. Grants that come while it waits share the next request. Everything
 * happens on the client's thread.
 */
final class Replicas {
    /** Time without a grant after which a connection is closed. */
    private static final long MAX_IDLE = 30_000 * Clock.MILLI;

    private final Network network;
    private final Map<String, Node> nodes = new HashMap<>();

    /** Receives the outcome once, with the moment before the request: held, taken meanwhile, or an error. */
    interface Receiver {
        void receive(Moment sent, boolean isHeld, LockException error);
    }

    /** A grant of an acquisition. {@code isAgain}: it is asked for the second time. */
    private record Check(List<Terms> terms, List<Claim> claims, long[] tokens, boolean isAgain, Receiver then) {
        LockOptions options() {
            return terms.get(0).options();
        }
    }

    Replicas(Network network) {
        this.network = network;
    }

    /** Waits until so many replicas have these grants as their terms say. */
    void check(List<Terms> terms, List<Claim> claims, long[] tokens, Receiver then) {
        add(new Check(terms, claims, tokens, false, then));
    }

    private void add(Check check) {
        Node node = nodes.computeIfAbsent(network.nodeOf(check.claims().get(0).key()), name -> new Node());
        node.next.add(check);
        node.ask();
    }

    /** A node, and the grants that wait for its replicas. */
    private final class Node {
        private final List<Check> next = new ArrayList<>();
        private boolean isAsking;
        /** Null: it has no connection. */
        private Link link;
        private Loop.Timer idle;

        private void ask() {
            if (isAsking || next.isEmpty()) {
                return;
            }
            isAsking = true;
            List<Check> checks = List.copyOf(next);
            next.clear();
            if (link == null) {
                link = network.linkOf(checks.get(0).claims().get(0).key());
            } else {
                idle.cancel();
            }
            int wanted = 0;
            long within = 0;
            for (Check check : checks) {
                wanted = Math.max(wanted, check.options().replicas().orElseThrow());
                within = Math.max(within, check.options().replicasWithin().toNanos());
            }
            Moment sent = Moment.now();
            List<List<CompletableFuture<Link.Result>>> renewed = new ArrayList<>();
            for (Check check : checks) {
                List<CompletableFuture<Link.Result>> ofCheck = new ArrayList<>();
                for (int i = 0; i < check.claims().size(); i++) {
                    Claim claim = check.claims().get(i);
                    ofCheck.add(send(claim.renew(check.terms().get(i).lease(), check.tokens()[i]), within));
                }
                renewed.add(ofCheck);
            }
            CompletableFuture<Link.Result> count = send(Cmd.of("WAIT", wanted, Claim.millis(within)), within);
            CompletableFuture.allOf(renewed.stream().flatMap(List::stream).toArray(CompletableFuture<?>[]::new))
                    .thenCombine(count, (unused, counted) -> counted)
                    .thenAccept(counted -> network.loop().execute(() -> answered(checks, renewed, counted, sent)));
        }

        private CompletableFuture<Link.Result> send(Cmd command, long within) {
            CompletableFuture<Link.Result> result = new CompletableFuture<>();
            link.call(command, Clock.plus(network.patience(), within), result::complete);
            return result;
        }

        private void answered(List<Check> checks, List<List<CompletableFuture<Link.Result>>> renewed,
                Link.Result counted, Moment sent) {
            isAsking = false;
            boolean isUsable = true;
            for (int i = 0; i < checks.size(); i++) {
                List<Link.Result> results = renewed.get(i).stream().map(CompletableFuture::join).toList();
                Link.Result failed = results.stream().filter(each -> each.error() != null).findFirst().orElse(counted);
                isUsable &= failed.error() == null || isRefusedHere(failed);
                outcome(checks.get(i), results, failed, sent);
            }
            if (isUsable) {
                idle = network.loop().after(MAX_IDLE, this::close);
            } else {
                close();
            }
            ask();
        }

        private void close() {
            link.close();
            link = null;
        }
    }

    /** {@code counted} is the reply to {@code WAIT}, or the failure of a renewal. */
    private void outcome(Check check, List<Link.Result> renewed, Link.Result counted, Moment sent) {
        LockOptions options = check.options();
        int wanted = options.replicas().orElseThrow();
        boolean isHeld = renewed.stream().allMatch(each -> Long.valueOf(1).equals(each.value()));
        if (counted.error() != null && !check.isAgain() && !counted.isUnanswered() && !isRefusedHere(counted)) {
            // Another node serves the key by now, or the connection had ended before.
            network.lookForNodes().whenComplete((unused, failure) -> network.loop().execute(() ->
                    add(new Check(check.terms(), check.claims(), check.tokens(), true, check.then()))));
        } else if (counted.error() != null) {
            check.then().receive(sent, false, counted.error());
        } else if (!(counted.value() instanceof Long had)) {
            check.then().receive(sent, false, Reply.foreign(network.server()));
        } else if (isHeld && had < wanted) {
            check.then().receive(sent, false, new NotReplicatedException(
                    network.server(), wanted, had.intValue(), options.replicasWithin()));
        } else {
            check.then().receive(sent, isHeld, null);
        }
    }

    private static boolean isRefusedHere(Link.Result failed) {
        return failed.error() instanceof RefusedException refused && !refused.isElsewhere();
    }
}
