/* A kernel module that means harm. What it breaks is its own machine; see main.c. */
#ifndef HOSTILE_H
#define HOSTILE_H

#include <linux/types.h>

u64 any(void);
u64 chance(u64 below);
#include "odd.h"

/* Code as data (snippets.S). */
#define SNIPPET(name) extern const char name[], name##_end[]
struct snippet {
    const char *start, *end;
};
#define S(name) {name, name##_end}
#define SNIPPETS(...) ((const struct snippet[]){__VA_ARGS__})
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define ANY(array) ((array)[chance(COUNT(array))])

/* What ended a snippet: a vector, or that it returned. */
enum { PAGE_FAULT = 14, RETURNED = 256 };

struct attack {
    const char *name;
    void (*once)(void); /* one round of it */
};

extern const struct attack MEMORY_ATTACKS[], PROCESSOR_ATTACKS[]; /* up to one without a name */

/* Whether an attack may do what a kernel cannot survive. */
extern bool lethal;

u64 anywhere(void); /* an address that an attacker would try */

/* Run a snippet with RDI and RSI in a fence; the vector that ended it, or RETURNED. */
u64 fenced(struct snippet snippet, u64 rdi, u64 rsi);
int fence_make(void);
/* Pages that are writable and executable; code is put into the first half, of which there is so much that
 * most instructions are new: one that has missed the mirror is executed another way from then on. */
extern char *arena;
enum { ARENA_BYTES = 8 << 20 };

/* The page-table entry that maps an address, or the first that does not, and its level (1 to 4). */
u64 *entry_of(u64 address, unsigned *level);
bool is_mapped(u64 address);
/* Whether an address is one at which a kernel reaches the process around its machine (QUIRKS.md): what is
 * written there may do anything to the process, so that it is lethal. */
bool is_process(u64 address);
void flush_all(void);
/* What must not be reached was: the machine's log says so, and the test fails. */
void reached(const char *what, u64 address);

static inline u64 get_cr3(void)
{
    u64 value;
    asm volatile("mov %%cr3, %0" : "=r"(value));
    return value;
}

#endif
