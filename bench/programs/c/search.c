/*
 * Looks for a word in the files named on the command line, one after another, as agrep does: open, read to
 * the end in blocks, close. With -a N it is the same program with hints written in by hand: N files ahead
 * it opens a file and tells the kernel that all of it will be wanted.
 *
 * Prints "NAME: LINE" for each line with the word. Exit status 0: found, 1: not found, 2: trouble.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* agrep's own block size. */
enum { BLOCK = 49152 };

/* Descriptors of the files ahead; -1 where there is none. */
static int *descriptors;

static void ahead(int file, char **names, int count)
{
    if (file >= count)
        return;
    descriptors[file] = open(names[file], O_RDONLY);
    if (descriptors[file] >= 0)
        posix_fadvise(descriptors[file], 0, 0, POSIX_FADV_WILLNEED);
}

/* The whole file, ended by a zero byte; the buffer grows and is used again. */
static size_t contents(int descriptor, char **buffer, size_t *room)
{
    size_t length = 0;
    for (;;) {
        if (*room < length + BLOCK + 1) {
            *room = 2 * (length + BLOCK + 1);
            *buffer = realloc(*buffer, *room);
            if (!*buffer)
                abort();
        }
        ssize_t got = read(descriptor, *buffer + length, BLOCK);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        length += (size_t)got;
    }
    (*buffer)[length] = 0;
    return length;
}

static int search(const char *word, const char *name, const char *text, size_t length)
{
    const char *end = text + length, *at = text;
    int found = 0;
    while ((at = memmem(at, (size_t)(end - at), word, strlen(word)))) {
        const char *line = memrchr(text, '\n', (size_t)(at - text));
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        line = line ? line + 1 : text;
        stop = stop ? stop : end;
        printf("%s: %.*s\n", name, (int)(stop - line), line);
        found = 1;
        at = stop;
    }
    return found;
}

int main(int count, char **words)
{
    int hints = 0, first = 1, found = 0, trouble = 0;
    if (count > 2 && !strcmp(words[1], "-a")) {
        hints = atoi(words[2]);
        first = 3;
    }
    if (count <= first) {
        fprintf(stderr, "usage: search [-a FILES-AHEAD] WORD FILE...\n");
        return 2;
    }
    const char *word = words[first];
    char **names = words + first + 1, *buffer = NULL;
    int files = count - first - 1;
    size_t room = 0;
    descriptors = calloc((size_t)files + 1, sizeof *descriptors);
    if (!descriptors)
        return 2;
    for (int file = 0; file < hints; file++)
        ahead(file, names, files);
    for (int file = 0; file < files; file++) {
        int descriptor;
        if (hints > 0) {
            ahead(file + hints, names, files);
            descriptor = descriptors[file];
        } else {
            descriptor = open(names[file], O_RDONLY);
        }
        if (descriptor < 0) {
            fprintf(stderr, "search: cannot open %s\n", names[file]);
            trouble = 1;
            continue;
        }
        size_t length = contents(descriptor, &buffer, &room);
        found |= search(word, names[file], buffer, length);
        close(descriptor);
    }
    return trouble ? 2 : !found;
}
