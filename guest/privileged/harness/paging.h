/* Four-level page tables made to order, for the programs about paging. */
#ifndef PAGING_H
#define PAGING_H

#include "harness.h"

#define P_P (1ull << 0)
#define P_W (1ull << 1)
#define P_U (1ull << 2)
#define P_A (1ull << 5)
#define P_D (1ull << 6)
#define P_PS (1ull << 7)
#define P_G (1ull << 8)
#define P_NX (1ull << 63)
#define P_ALL (P_P | P_W | P_U)
#define P_FRAME 0x000ffffffffff000ull

/* Error code of #PF (SDM 3A 4.7). */
#define E_P 1
#define E_W 2
#define E_U 4
#define E_R 8
#define E_I 16

/* PML4 slots that are free, in the lower and in the upper half. */
#define LOW_BASE 0x0000008000000000ul
#define HIGH_BASE 0xffff960000000000ul

/* The entries that translate one address, highest level first: entry[4] is that of the PML4. A
 * large page ends at level 2 or 3. */
struct walk {
    u64 *entry[5];
    unsigned leaf;
};

/* A zeroed page of table memory. */
static inline u64 *new_table(void)
{
    static unsigned used;
    if (used == 400)
        print("FAIL harness: page tables are used up\n");
    memset(page_pool[used], 0, 4096);
    return (u64 *)page_pool[used++];
}

/* Make the tables for `address` down to `leaf` (1: 4 KiB, 2: 2 MiB, 3: 1 GiB) and map `frame`. */
static inline struct walk map_at(word address, u64 frame, unsigned leaf, u64 bits)
{
    struct walk walk = {.leaf = leaf};
    u64 *table = pml4;
    for (unsigned level = 4; level >= leaf; level--) {
        walk.entry[level] = &table[address >> (12 + 9 * (level - 1)) & 511];
        if (level == leaf)
            *walk.entry[level] = frame | bits | (leaf > 1 ? P_PS : 0);
        else if (!(*walk.entry[level] & P_P))
            *walk.entry[level] = (word)new_table() | P_ALL;
        table = (u64 *)(*walk.entry[level] & P_FRAME);
    }
    invlpg(address);
    return walk;
}

#endif
