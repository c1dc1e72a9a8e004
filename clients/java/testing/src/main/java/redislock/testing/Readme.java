package redislock.testing;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.regex.Pattern;

/** The examples of a README: a source file of the tests contains them, so they are compiled and run. */
public final class Readme {
    private static final Pattern EXAMPLE = Pattern.compile("```java\n(.*?)```", Pattern.DOTALL);

    private Readme() {}

    /**
     * Checks that a source file contains each Java example of {@code README.md}, apart from its white space.
     *
     * @param source the file, relative to the module's directory like {@code README.md}
     * @throws AssertionError if an example is not there, or there is none
     */
    public static void requireExamplesIn(String source) {
        requireExamplesIn("README.md", source);
    }

    /**
     * The same for another page. The address {@code "redis://localhost:6379"} of an example is the variable
     * {@code address} in the source file, whose server has another port.
     *
     * @param page   the file with the examples, relative to the module's directory
     * @param source the source file, relative to the module's directory
     * @throws AssertionError if an example is not there, or there is none
     */
    public static void requireExamplesIn(String page, String source) {
        Path module = Path.of(System.getProperty("basedir", "."));
        String compiled = withoutSpace(textOf(module.resolve(source)));
        List<String> examples = EXAMPLE.matcher(textOf(module.resolve(page))).results()
                .map(match -> match.group(1)).toList();
        if (examples.isEmpty()) {
            throw new AssertionError(page + " has no example");
        }
        for (String example : examples) {
            if (!compiled.contains(withoutSpace(example.replace("\"redis://localhost:6379\"", "address")))) {
                throw new AssertionError(source + " does not contain this example of " + page + ":\n" + example);
            }
        }
    }

    private static String withoutSpace(String text) {
        return text.replaceAll("\\s+", "");
    }

    private static String textOf(Path file) {
        try {
            return Files.readString(file);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
