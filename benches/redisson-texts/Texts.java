import java.io.DataInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.util.HexFormat;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Collectors;
import java.util.zip.ZipEntry;
import java.util.zip.ZipFile;

/**
 * Reads the texts of Redisson's lock scripts out of its jar, so that none has to be kept here.
 *
 * <p>The compiler folds the lines of a script, written as a sum of literals, into one constant of the class:
 * every string constant whose SHA1 is asked for is a text, and is written to {@code <sha1>.lua}.
 *
 * <p>{@code java Texts.java scripts.txt out-dir jar} fails when a text is not in the jar.
 */
public final class Texts {
    private final Path out;
    private final Set<String> missing;

    private Texts(Path table, Path out) throws IOException {
        this.out = out;
        try (var lines = Files.lines(table)) {
            missing =
                    lines.filter(line -> !line.startsWith("#"))
                            .map(line -> line.split(" +")[1])
                            .collect(Collectors.toCollection(TreeSet::new));
        }
    }

    public static void main(String[] args) throws IOException, GeneralSecurityException {
        var out = Files.createDirectories(Path.of(args[1]));
        var texts = new Texts(Path.of(args[0]), out);
        int wanted = texts.missing.size();
        texts.readJar(args[2]);
        System.out.printf("%d of %d texts in %s%n", wanted - texts.missing.size(), wanted, out);
        if (!texts.missing.isEmpty()) {
            System.err.println("not in the jar: " + texts.missing);
            System.exit(1);
        }
    }

    private void readJar(String name) throws IOException, GeneralSecurityException {
        try (var jar = new ZipFile(name)) {
            for (ZipEntry entry : jar.stream().toList()) {
                if (entry.getName().matches("org/redisson/.*\\.class")) {
                    try (InputStream file = jar.getInputStream(entry)) {
                        readClass(new DataInputStream(file));
                    }
                }
            }
        }
    }

    /** Walks through the constants of a class: the tag of each says how long it is. */
    private void readClass(DataInputStream file) throws IOException, GeneralSecurityException {
        file.skipNBytes(8); // The magic number and the version.
        int constants = file.readUnsignedShort();
        for (int i = 1; i < constants; i++) {
            int tag = file.readUnsignedByte();
            switch (tag) {
                case 1 -> take(file.readUTF());
                case 3, 4, 9, 10, 11, 12, 17, 18 -> file.skipNBytes(4);
                case 5, 6 -> {
                    file.skipNBytes(8);
                    i++; // Long and double take two places.
                }
                case 7, 8, 16, 19, 20 -> file.skipNBytes(2);
                case 15 -> file.skipNBytes(3);
                default -> throw new IOException("a constant with the tag " + tag);
            }
        }
    }

    private void take(String constant) throws IOException, GeneralSecurityException {
        byte[] text = constant.getBytes(StandardCharsets.UTF_8);
        byte[] digest = MessageDigest.getInstance("SHA-1").digest(text);
        String sha1 = HexFormat.of().formatHex(digest);
        if (missing.remove(sha1)) {
            Files.write(out.resolve(sha1 + ".lua"), text);
        }
    }
}
