/* libclang.c: does the libclang that bindgen will load read the server's header?
 *
 * bindgen loads libclang at run time through the crate clang-sys. This program searches as clang-sys 1.9 does
 * (build/common.rs, build/dynamic.rs: LIBCLANG_PATH alone, else llvm-config, LD_LIBRARY_PATH, LIBRARY_PATH and
 * the system's directories; the highest version in a file's name is taken) and parses the headers that
 * redismodule.h includes. Of these, stddef.h and stdarg.h come with libclang, in a package of their own.
 *
 * Arguments are passed to libclang. Prints the library's path and the version of clang, or the reason.
 * Exit: 0 it works, 1 a library is there and does not work, 2 there is none.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PARTS 8

static char best[PATH_MAX];
static long best_version[PARTS];

/* "libclang.so.19" and "libclang-19.so" have a version, as clang-sys reads it; "libclang.so" has none. */
static void version_of(const char *name, long version[PARTS]) {
    char text[256] = "";
    memset(version, 0xff, PARTS * sizeof *version);
    if (strncmp(name, "libclang.so.", 12) == 0) {
        snprintf(text, sizeof text, "%s", name + 12);
    } else if (strncmp(name, "libclang-", 9) == 0) {
        snprintf(text, sizeof text, "%.*s", (int)strlen(name + 9) - 3, name + 9);
    } else {
        return;
    }
    char *rest = text, *part;
    for (int i = 0; i < PARTS && (part = strsep(&rest, ".")) != NULL; i++) {
        char *end;
        version[i] = strtol(part, &end, 10);
        if (*part == '\0' || *end != '\0') version[i] = 0;
    }
}

static int is_newer(const long a[PARTS], const long b[PARTS]) {
    for (int i = 0; i < PARTS; i++)
        if (a[i] != b[i]) return a[i] > b[i];
    return 0;
}

/* A shared library of this machine's word size. */
static int fits(const char *path) {
    unsigned char head[5] = {0};
    FILE *file = fopen(path, "rb");
    if (file == NULL) return 0;
    size_t got = fread(head, 1, sizeof head, file);
    fclose(file);
    return got == sizeof head && memcmp(head, "\177ELF", 4) == 0 && head[4] == (sizeof(void *) == 8 ? 2 : 1);
}

/* Of several libraries with the highest version, the first that is found counts. */
static void consider(const char *path) {
    long version[PARTS];
    const char *name = strrchr(path, '/') + 1;
    if (strstr(name, "-cpp.") != NULL || !fits(path)) return;
    version_of(name, version);
    if (best[0] == '\0' || is_newer(version, best_version)) {
        snprintf(best, sizeof best, "%s", path);
        memcpy(best_version, version, sizeof version);
    }
}

static void search_pattern(const char *directories) {
    static const char *const files[] = {"libclang.so", "libclang-*.so", "libclang.so.*", "libclang-*.so.*"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char pattern[PATH_MAX];
        glob_t found;
        snprintf(pattern, sizeof pattern, "%s/%s", directories, files[i]);
        if (glob(pattern, 0, NULL, &found) == 0)
            for (size_t j = 0; j < found.gl_pathc; j++) consider(found.gl_pathv[j]);
        globfree(&found);
    }
}

/* A directory that the user named: its characters stand for themselves. */
static void search_directory(const char *directory) {
    char escaped[PATH_MAX];
    size_t n = 0;
    for (; *directory != '\0' && n + 3 < sizeof escaped; directory++) {
        if (strchr("*?[\\", *directory) != NULL) escaped[n++] = '\\';
        escaped[n++] = *directory;
    }
    escaped[n] = '\0';
    search_pattern(escaped);
}

static void search_list(const char *variable) {
    const char *value = getenv(variable);
    if (value == NULL) return;
    char *list = strdup(value), *rest = list, *directory;
    while ((directory = strsep(&rest, ":")) != NULL)
        if (*directory != '\0') search_directory(directory);
    free(list);
}

static void search_llvm_config(void) {
    char prefix[PATH_MAX / 2] = "", directory[PATH_MAX];
    FILE *config = popen("exec \"${LLVM_CONFIG_PATH:-llvm-config}\" --prefix 2>/dev/null", "r");
    if (config == NULL) return;
    if (fgets(prefix, sizeof prefix, config) == NULL) prefix[0] = '\0';
    pclose(config);
    prefix[strcspn(prefix, "\n")] = '\0';
    if (prefix[0] == '\0') return;
    snprintf(directory, sizeof directory, "%s/bin", prefix);
    search_directory(directory);
    snprintf(directory, sizeof directory, "%s/lib", prefix);
    search_directory(directory);
    snprintf(directory, sizeof directory, "%s/lib64", prefix);
    search_directory(directory);
}

static void search(void) {
    static const char *const usual[] = {"/usr/local/llvm*/lib*", "/usr/local/lib*/*/*", "/usr/local/lib*/*",
                                        "/usr/local/lib*",       "/usr/lib*/*/*",       "/usr/lib*/*",
                                        "/usr/lib*"};
    const char *path = getenv("LIBCLANG_PATH");
    if (path != NULL) {
        /* A library or the directory of one. */
        const char *name = strrchr(path, '/');
        if (name != NULL && strncmp(name, "/libclang", 9) == 0) consider(path);
        if (best[0] == '\0') search_directory(path);
        return;
    }
    search_llvm_config();
    search_list("LD_LIBRARY_PATH");
    search_list("LIBRARY_PATH");
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) search_pattern(usual[i]);
}

/* The few functions of libclang's C interface that are called; its header need not be installed. */
typedef struct {
    const void *data;
    unsigned private_flags;
} String;
struct Unsaved {
    const char *name, *text;
    unsigned long length;
};

int main(int argc, char **argv) {
    static const char text[] = "#include <sys/types.h>\n#include <stdint.h>\n#include <stdio.h>\n"
                               "#include <stdlib.h>\n#include <stddef.h>\n#include <stdarg.h>\nsize_t probe(va_list);\n";
    struct Unsaved header = {"probe.h", text, sizeof text - 1};
    search();
    if (best[0] == '\0') {
        puts("no libclang");
        return 2;
    }
    void *library = dlopen(best, RTLD_NOW);
    if (library == NULL) {
        printf("%s: %s\n", best, dlerror());
        return 1;
    }
    String (*clang_version)(void) = (String(*)(void))dlsym(library, "clang_getClangVersion");
    const char *(*c_string)(String) = (const char *(*)(String))dlsym(library, "clang_getCString");
    void *(*create_index)(int, int) = (void *(*)(int, int))dlsym(library, "clang_createIndex");
    int (*parse)(void *, const char *, const char *const *, int, struct Unsaved *, unsigned, unsigned, void **) =
        (int (*)(void *, const char *, const char *const *, int, struct Unsaved *, unsigned, unsigned, void **))dlsym(
            library, "clang_parseTranslationUnit2");
    unsigned (*count)(void *) = (unsigned (*)(void *))dlsym(library, "clang_getNumDiagnostics");
    void *(*diagnostic)(void *, unsigned) = (void *(*)(void *, unsigned))dlsym(library, "clang_getDiagnostic");
    int (*severity)(void *) = (int (*)(void *))dlsym(library, "clang_getDiagnosticSeverity");
    String (*spelling)(void *) = (String(*)(void *))dlsym(library, "clang_getDiagnosticSpelling");
    if (!clang_version || !c_string || !create_index || !parse || !count || !diagnostic || !severity || !spelling) {
        printf("%s: not libclang\n", best);
        return 1;
    }
    printf("%s: %s\n", best, c_string(clang_version()));
    void *unit = NULL;
    int status = parse(create_index(0, 0), header.name, (const char *const *)argv + 1, argc - 1, &header, 1, 0, &unit);
    if (status != 0) {
        printf("it parses no header (status %d)\n", status);
        return 1;
    }
    for (unsigned i = 0; i < count(unit); i++) {
        void *found = diagnostic(unit, i);
        if (severity(found) >= 3) {
            puts(c_string(spelling(found)));
            return 1;
        }
    }
    return 0;
}
