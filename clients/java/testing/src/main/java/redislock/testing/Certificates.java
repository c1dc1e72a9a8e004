package redislock.testing;

import java.nio.file.Path;
import java.util.List;

/**
 * A certificate authority and a certificate for 127.0.0.1 and localhost, made by {@code openssl} in a directory that is
 * deleted at the end.
 */
public final class Certificates implements AutoCloseable {
    private final Path dir;

    private Certificates(Path dir) {
        this.dir = dir;
    }

    /**
     * Makes a new authority and a certificate of it.
     *
     * @return the certificates
     */
    public static Certificates create() {
        Certificates certificates = new Certificates(Directories.create());
        try {
            certificates.make();
            return certificates;
        } catch (Throwable e) {
            certificates.close();
            throw e;
        }
    }

    /**
     * The authority's certificate, for clients that trust it.
     *
     * @return a PEM file
     */
    public Path authority() {
        return dir.resolve("ca.crt");
    }

    @Override
    public void close() {
        Directories.delete(dir);
    }

    /** The options of a server with these certificates. */
    List<String> serverOptions(int tlsPort) {
        return List.of(
                "--tls-port", Integer.toString(tlsPort),
                "--tls-ca-cert-file", authority().toString(),
                "--tls-cert-file", dir.resolve("server.crt").toString(),
                "--tls-key-file", dir.resolve("server.key").toString(),
                "--tls-auth-clients", "no");
    }

    private void make() {
        Processes.run(dir, "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                "-nodes", "-keyout", "ca.key", "-out", "ca.crt", "-days", "2", "-subj", "/CN=test authority");
        Processes.run(dir, "openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=127.0.0.1",
                "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost");
        Processes.run(dir, "openssl", "x509", "-req", "-in", "server.csr", "-CA", "ca.crt", "-CAkey", "ca.key",
                "-CAcreateserial", "-days", "2", "-copy_extensions", "copy", "-out", "server.crt");
    }
}
