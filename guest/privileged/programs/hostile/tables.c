/* Page tables that nobody should make: pages and tables at any physical address, beyond memory, in
 * devices, at the last page there is, with any bits; in the end, any CR3. */
#include "hostile.h"

SNIPPET(load, "", "mov (%rdi), %rax", "");
SNIPPET(load_many, "", "1: mov (%rdi), %al; add $64, %rdi; loop 1b", "");
SNIPPET(store, "", "mov %rsi, (%rdi)", "");
SNIPPET(add, "", "lock addq $1, (%rdi)", "");
SNIPPET(store_vector, "", "movups %xmm0, (%rdi)", "");
SNIPPET(fill, "", "rep stosb", "");
SNIPPET(copy, "lea 0x1000(%rdi), %rsi", "rep movsb", "");
SNIPPET(jump, "", "jmp *%rdi", "");
SNIPPET(flush, "", "invlpg (%rdi)", "");
SNIPPET(load_cr3, "mov %cr3, %rdx", "mov %rdi, %cr3", "mov (%rsi), %rax; mov %rdx, %cr3");

static char *const WAYS[] = {load, load_many, store, add, store_vector, fill, copy, jump, flush};

/* Memory that is neither the program's nor beyond what there is. */
#define FREE_FRAME (80ul << 20)

static u64 frame(void)
{
    static const u64 places[] = {0xfee00000, 0xfec00000, 0xfed00000, 0xe0000,    0xa0000,
                                 0xfff00000, 0xc0000000, 0x10000000, FREE_FRAME, FREE_FRAME};
    u64 near = (random() % 4) << 12;
    switch (random() % 4) {
    case 0:
        return P_FRAME - near;
    case 1:
        return random() & P_FRAME & ~0xfffffffull;
    default:
        return places[random() % (sizeof(places) / sizeof(places[0]))] + near;
    }
}

static u64 bits(void)
{
    u64 all = random() & 0xfff;
    return (random() % 8 ? all | P_P : all) | (random() % 4 ? 0 : P_NX) |
           (random() % 16 ? 0 : random() & 0x7ff0000000000000);
}

static void attack(void)
{
    word base = (random() & 1 ? LOW_BASE : HIGH_BASE) + (random() % 4 << 21) + (random() % 4 << 12);
    unsigned leaf = 1 + random() % 3, level = leaf + random() % (5 - leaf);
    static struct walk walks[2][3];
    struct walk *walk = &walks[base >= HIGH_BASE][leaf - 1];
    /* The same tables again and again: the pool is small. */
    if (!walk->leaf)
        *walk = map_at(base & ~((1ul << (12 + 9 * (leaf - 1))) - 1), FREE_FRAME, leaf, P_ALL);
    u64 *entry = walk->entry[level], old = *entry;
    *entry = frame() | bits();
    if (random() & 1)
        flush_tlb();
    else
        invlpg(base);
    for (unsigned n = 0; n < 4; n++)
        attempt(WAYS[random() % (sizeof(WAYS) / sizeof(WAYS[0]))], base + random() % 4096, random());
    *entry = old;
    flush_tlb();
}

int main(void)
{
    u64 rounds = begin();
    for (u64 round = 0; round < rounds; round++)
        attack();
    print("ok survived\n");
    attempt(load_cr3, random() & 1 ? odd_number() : frame(), HIGH_BASE);
    return 0;
}
