package redislock.internal.net;

import io.lettuce.core.RedisCommandExecutionException;
import java.security.cert.CertificateException;
import java.util.Locale;
import javax.net.ssl.SSLException;
import redislock.LockConnectionException;
import redislock.LockException;
import redislock.NotLoadedException;
import redislock.RefusedException;
import redislock.UnheardException;
import redislock.UntrustedException;

/** The exceptions of this package, made from errors of servers and of the transport. */
public final class Errors {
    private static final int DEEPEST = 20;

    private Errors() {
    }

    /** The exception for an error reply. */
    static LockException ofServer(String server, String error) {
        String[] words = error.split(" ", 2);
        String code = words[0];
        String text = words.length < 2 ? "" : words[1];
        if (code.equals("ERR") && text.toLowerCase(Locale.ROOT).startsWith("unknown command")) {
            String[] quoted = text.split("['`]", 3);
            String command = quoted.length < 3 ? "LOCK.ACQUIRE" : quoted[1];
            // The server quotes the arguments too, which may be a password or an owner.
            return isOfModule(command) ? new NotLoadedException(server, command)
                    : RefusedException.of(server, code, "unknown command '" + command + "'");
        }
        // By the text of the server. It passes: other clients may disconnect.
        if (text.contains("max number of clients reached")) {
            return new LockConnectionException(server, "no room for one more client (maxclients)", null);
        }
        return RefusedException.of(server, code, text.replaceFirst("^User \\S+ has", "this user has"));
    }

    private static boolean isOfModule(String command) {
        return command.toUpperCase(Locale.ROOT).matches("(LOCK|SEM|LATCH)\\..*");
    }

    /** The exception for a connection that could not be opened, or has ended. */
    static LockException ofTransport(String server, Throwable cause) {
        Throwable deeper = cause;
        for (int depth = 0; deeper != null && depth < DEEPEST; depth++, deeper = deeper.getCause()) {
            if (deeper instanceof LockException ours) {
                return ours;
            }
            if (deeper instanceof RedisCommandExecutionException refused && refused.getMessage() != null) {
                return ofServer(server, refused.getMessage());
            }
            if (isAboutCertificates(deeper)) {
                return new UntrustedException(server, cause);
            }
        }
        return new LockConnectionException(server, "the connection failed", cause);
    }

    /** Whether one side rejects the other's certificate. (Of the other side only the text of its alert is known.) */
    private static boolean isAboutCertificates(Throwable cause) {
        String text = String.valueOf(cause.getMessage()).toLowerCase(Locale.ROOT);
        return cause instanceof CertificateException
                || cause instanceof SSLException
                        && (text.contains("certificate") || text.contains("unknown_ca")
                                || text.contains("access_denied"));
    }

    /** The error of a server that has not answered. */
    public static LockException noAnswer(String server) {
        return new LockConnectionException(server, "no answer in time", null);
    }

    /** The same error for a request that may have been served and is not repeated. */
    static RuntimeException unheard(RuntimeException error) {
        if (error instanceof LockConnectionException || error instanceof UntrustedException) {
            LockException known = (LockException) error;
            String text = String.valueOf(known.getMessage());
            String what = text.startsWith(known.server() + ": ") ? text.substring(known.server().length() + 2) : text;
            return new UnheardException(known.server(), what, known.getCause());
        }
        return error;
    }

    /** Whether the same request may be served when it is repeated later. */
    public static boolean isPassing(RuntimeException error) {
        return error instanceof LockException known && known.isPassing();
    }

    /** The code of a refusal, otherwise empty. */
    public static String code(RuntimeException error) {
        return error instanceof RefusedException refused ? refused.code() : "";
    }
}
