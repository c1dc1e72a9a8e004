package redislock.internal.net;

import java.util.List;
import java.util.concurrent.CompletableFuture;
import redislock.LockException;
import redislock.internal.Loop;

/** The look-up of the primary at the sentinels, one after another. */
final class Sentinels {
    private final Address address;
    private final Connector connector;
    private final Loop loop;

    Sentinels(Address address, Connector connector, Loop loop) {
        this.address = address;
        this.connector = connector;
        this.loop = loop;
    }

    /** The primary, from the first sentinel that knows one. The look-up starts with sentinel number {@code first}. */
    CompletableFuture<Node> primary(int first) {
        CompletableFuture<Node> found = new CompletableFuture<>();
        ask(first, 0, null, found);
        return found;
    }

    private void ask(int first, int asked, Throwable failure, CompletableFuture<Node> found) {
        List<Node> sentinels = address.seeds();
        if (asked == sentinels.size()) {
            found.completeExceptionally(failure != null ? failure : unknown());
            return;
        }
        Node sentinel = sentinels.get(Math.floorMod(first + asked, sentinels.size()));
        // A sentinel that does not respond leaves time for the others.
        long patience = connector.patience() / (sentinels.size() + 1);
        CompletableFuture<Node> answer = ask(sentinel);
        Loop.Timer timer = loop.after(patience, () -> answer.completeExceptionally(Errors.noAnswer(sentinel.name())));
        answer.whenComplete((node, error) -> {
            timer.cancel();
            if (node != null) {
                found.complete(node);
            } else if (error != null) {
                ask(first, asked + 1, Errors.ofTransport(sentinel.name(), error), found);
            } else {
                // It may have just started; a connection error of another one is reported instead.
                ask(first, asked + 1, failure, found);
            }
        });
    }

    private CompletableFuture<Node> ask(Node sentinel) {
        CompletableFuture<Node> answer = new CompletableFuture<>();
        connector.open(sentinel, address.sentinel()).whenComplete((connection, failure) -> {
            if (failure != null) {
                answer.completeExceptionally(failure);
                return;
            }
            Cmd command = Cmd.of("SENTINEL", "GET-MASTER-ADDR-BY-NAME", address.primary());
            connection.send(command, false, raw -> {
                try {
                    answer.complete(read(sentinel, raw));
                } catch (RuntimeException error) {
                    answer.completeExceptionally(error);
                }
            });
            answer.whenComplete((node, error) -> connection.close());
        });
        return answer;
    }

    private static Node read(Node sentinel, Connection.Raw raw) {
        if (raw.broken() != null) {
            throw Errors.ofTransport(sentinel.name(), raw.broken());
        }
        if (raw.error() != null && raw.error().startsWith("ERR unknown command")) {
            throw new LockException(sentinel.name(), "is no sentinel", null);
        }
        if (raw.error() != null) {
            throw Errors.ofServer(sentinel.name(), raw.error());
        }
        if (raw.value() instanceof List<?> list && list.size() == 2) {
            String host = Reply.text(list.get(0));
            return new Node(host, Integer.parseInt(Reply.text(list.get(1))));
        }
        return null;
    }

    private LockException unknown() {
        String what = "no sentinel knows a primary of the name '" + address.primary() + "'";
        return new LockException(address.name(), what, null);
    }
}
