package redislock.internal.net;

import redislock.LockException;

/**
 * The reply of a node of a cluster that does not serve a key.
 *
 * @param isAsk  only this request goes to the other node ({@code ASK}); otherwise all of the slot ({@code MOVED})
 * @param slot   the slot of the key
 * @param target the other node
 */
record Redirection(boolean isAsk, int slot, Node target) {
    /** Whether an error of a server is a redirection. */
    static boolean isRedirection(String error) {
        String[] words = error.split(" ");
        return words.length >= 3 && (words[0].equals("MOVED") || words[0].equals("ASK"));
    }

    /**
     * Reads the error, as {@code MOVED 3999 127.0.0.1:6381}, of this node.
     *
     * @throws LockException when it cannot be read
     */
    static Redirection read(String error, Node by) {
        String[] words = error.split(" ");
        try {
            // An empty host is that of the node that answers.
            Node target = Node.read(words[2].startsWith(":") ? by.host() + words[2] : words[2], 0);
            return new Redirection(words[0].equals("ASK"), Integer.parseInt(words[1]), target);
        } catch (IllegalArgumentException foreign) {
            throw Reply.foreign(by.name());
        }
    }
}
