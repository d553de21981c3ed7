/* What a guest sees of a tree: a line for each file, in no order. Bytes of names that are not printable are
 * \xHH. */

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

static void fail(const char *what)
{
    printf("failed: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void print_name(const char *name)
{
    for (; *name; name++) {
        unsigned char byte = (unsigned char)*name;
        if (byte > ' ' && byte < 0x7f && byte != '\\')
            putchar(byte);
        else
            printf("\\x%02x", byte);
    }
}

/* FNV-1a */
static uint64_t add(uint64_t hash, const unsigned char *bytes, size_t count)
{
    for (size_t n = 0; n < count; n++)
        hash = (hash ^ bytes[n]) * 0x100000001b3ull;
    return hash;
}

static uint64_t contents(const char *path, const struct stat *status)
{
    static unsigned char buffer[1 << 16];
    uint64_t hash = 0xcbf29ce484222325ull;
    ssize_t count;
    if (S_ISLNK(status->st_mode)) {
        count = readlink(path, (char *)buffer, sizeof buffer);
        if (count < 0)
            fail(path);
        return add(hash, buffer, (size_t)count);
    }
    if (!S_ISREG(status->st_mode))
        return hash;
    int file = open(path, O_RDONLY);
    if (file < 0)
        fail(path);
    while ((count = read(file, buffer, sizeof buffer)) > 0)
        hash = add(hash, buffer, (size_t)count);
    if (count < 0)
        fail(path);
    close(file);
    return hash;
}

static int compare(const void *one, const void *other)
{
    return strcmp(*(char *const *)one, *(char *const *)other);
}

static void attributes(const char *path)
{
    static char names[1 << 16], value[1 << 16];
    char *sorted[64];
    size_t count = 0;
    ssize_t length = llistxattr(path, names, sizeof names);
    if (length < 0 && errno != ENOTSUP)
        fail(path);
    for (char *name = names; name < names + length && count < 64; name += strlen(name) + 1)
        sorted[count++] = name;
    qsort(sorted, count, sizeof *sorted, compare);
    for (size_t n = 0; n < count; n++) {
        ssize_t bytes = lgetxattr(path, sorted[n], value, sizeof value);
        if (bytes < 0)
            fail(sorted[n]);
        uint64_t hash = add(0xcbf29ce484222325ull, (unsigned char *)value, (size_t)bytes);
        printf("%s%s=%016llx", n ? "," : "", sorted[n], (unsigned long long)hash);
    }
}

static void list(const char *path, const char *shown)
{
    struct stat status;
    if (lstat(path, &status))
        fail(path);
    print_name(shown);
    printf(" %o %u:%u %lld.%09ld %lu %lu %u:%u ", status.st_mode, status.st_uid, status.st_gid,
           (long long)status.st_mtim.tv_sec, status.st_mtim.tv_nsec, (unsigned long)status.st_nlink,
           (unsigned long)status.st_ino, major(status.st_rdev), minor(status.st_rdev));
    printf("%lld %016llx ", S_ISDIR(status.st_mode) ? 0 : (long long)status.st_size,
           (unsigned long long)contents(path, &status));
    attributes(path);
    putchar('\n');
    if (!S_ISDIR(status.st_mode))
        return;
    DIR *directory = opendir(path);
    if (!directory)
        fail(path);
    for (struct dirent *entry; (entry = readdir(directory));) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        char *below;
        if (asprintf(&below, "%s/%s", path, entry->d_name) < 0)
            fail(path);
        list(below, below + (shown - path));
        free(below);
    }
    closedir(directory);
}

int main(int count, char **words)
{
    if (count != 2)
        return 2;
    list(words[1], words[1] + strlen(words[1]));
    return 0;
}
