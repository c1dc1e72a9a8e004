package redislock.testing;

import java.util.List;

/** Closes several resources, all of them even if one fails. */
final class Closing {
    private Closing() {}

    /** Closes what was started before this failure. */
    static void after(Throwable failure, AutoCloseable started) {
        try {
            started.close();
        } catch (Throwable e) {
            failure.addSuppressed(e);
        }
    }

    static void closeAll(List<? extends AutoCloseable> resources) {
        AssertionError failure = null;
        for (AutoCloseable resource : resources) {
            try {
                resource.close();
            } catch (Throwable e) {
                if (failure == null) {
                    failure = new AssertionError(e.getMessage(), e);
                } else {
                    failure.addSuppressed(e);
                }
            }
        }
        if (failure != null) {
            throw failure;
        }
    }
}
