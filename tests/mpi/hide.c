/*
 * A library that makes an MPI look like one that has less. Preloaded before the library under test:
 *
 * HIDE: dlsym() finds no symbol whose name matches one of these patterns, which commas separate.
 * SAY: MPI_Get_library_version, if dlsym() looked it up, answers this.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void *find_symbol(void *library, const char *name);

/* The C library's own. Its version in the oldest glibc with it differs between architectures. */
static find_symbol *real_dlsym(void) {
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17", "GLIBC_2.27"};
    static find_symbol *found;
    for (size_t at = 0; found == NULL && at < sizeof versions / sizeof *versions; at++) {
        *(void **)&found = dlvsym(RTLD_NEXT, "dlsym", versions[at]);
    }
    if (found == NULL) {
        fprintf(stderr, "hide: this C library has no dlsym\n");
        abort();
    }
    return found;
}

static int is_hidden(const char *name) {
    const char *hide = getenv("HIDE");
    char *patterns = strdup(hide != NULL ? hide : "");
    int hidden = 0;
    char *rest = patterns;
    for (char *pattern = patterns != NULL ? strsep(&rest, ",") : NULL; pattern != NULL && !hidden;
         pattern = strsep(&rest, ",")) {
        hidden = fnmatch(pattern, name, 0) == 0;
    }
    free(patterns);
    return hidden;
}

static int say(char *version, int *length) {
    *length = sprintf(version, "%s", getenv("SAY"));
    return 0;
}

void *dlsym(void *library, const char *name) {
    if (is_hidden(name)) {
        return NULL;
    }
    if (getenv("SAY") != NULL && strcmp(name, "PMPI_Get_library_version") == 0) {
        return (void *)say;
    }
    return real_dlsym()(library, name);
}
