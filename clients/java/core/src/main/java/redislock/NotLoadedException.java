package redislock;

/** The server does not know the module's commands, or an older module not all of them. */
public class NotLoadedException extends LockException {
    private static final long serialVersionUID = 1;

    /** The command that the server does not know. */
    private final String command;

    /**
     * A server without the module.
     *
     * @param server  the server's name, {@code host:port}
     * @param command the command that it does not know
     */
    public NotLoadedException(String server, String command) {
        super(server, "does not know " + command + ": load the module there (or a newer one), with `loadmodule "
                + "/usr/lib/redis/modules/libredis_lock.so` in its configuration, or with MODULE LOAD", null);
        this.command = command;
    }

    /**
     * The command that the server does not know.
     *
     * @return the command's name, such as {@code LOCK.ACQUIRE}
     */
    public String command() {
        return command;
    }
}
