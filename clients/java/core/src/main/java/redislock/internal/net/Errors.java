package redislock.internal.net;

import io.lettuce.core.RedisCommandExecutionException;
import io.netty.handler.ssl.NotSslRecordException;
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
            if (command.equalsIgnoreCase("SENTINEL")) {
                return new LockException(server, "is no sentinel", null);
            }
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

    /** The exception for a connection that could not be opened. */
    static LockException ofOpening(String server, Throwable failure) {
        LockException error = ofTransport(server, failure);
        String text = String.valueOf(error.getMessage());
        boolean isEnded = text.contains("reset") || text.contains("closed") || text.contains("disconnected");
        return !isEnded || !(error instanceof LockConnectionException) ? error : new LockConnectionException(server,
                "the server ended the connection before it answered: does it speak TLS on this port, and does the "
                + "address say so?", error.getCause());
    }

    /** The exception for a connection that could not be opened, or has ended, with the words of the transport. */
    static LockException ofTransport(String server, Throwable cause) {
        Throwable deepest = cause;
        Throwable next = cause;
        for (int depth = 0; next != null && depth < DEEPEST; depth++) {
            deepest = next;
            if (next instanceof LockException ours) {
                return ours;
            }
            if (next instanceof RedisCommandExecutionException refused && refused.getMessage() != null) {
                return ofServer(server, refused.getMessage());
            }
            if (isAboutCertificates(next)) {
                return new UntrustedException(server, next);
            }
            if (next.getCause() != null) {
                next = next.getCause();
            } else {
                next = next.getSuppressed().length > 0 ? next.getSuppressed()[0] : null;
            }
        }
        // The texts of Lettuce around it may have a user.
        return new LockConnectionException(server, words(deepest), deepest);
    }

    private static String words(Throwable cause) {
        String text = String.valueOf(cause.getMessage());
        if (cause instanceof NotSslRecordException || text.contains("not an SSL/TLS record")
                || text.contains("handshake timed out")) {
            return "the server does not speak TLS on this port (redis:// is without TLS)";
        }
        if (text.contains("Invalid first byte: 72") || text.contains("HTTP/1")) {
            return "a web server (HTTP) answers on this port";
        }
        if (text.contains("Invalid first byte: 21")) {
            return "the server speaks TLS on this port (rediss:// is with TLS)";
        }
        return "the connection failed: " + (cause.getMessage() == null ? cause.getClass().getSimpleName() : text);
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
    static RuntimeException unheard(LockException error) {
        if (error instanceof LockConnectionException || error instanceof UntrustedException) {
            String text = error.getMessage();
            String what = text.startsWith(error.server() + ": ") ? text.substring(error.server().length() + 2) : text;
            return new UnheardException(error.server(), what, error.getCause());
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
