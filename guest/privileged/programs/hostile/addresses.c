/* Reads, writes and jumps to every kind of address in the kernel's half, where nothing is mapped: each
 * must fault. Where the process around this machine has something it is read only. */
#include "hostile.h"

SNIPPET(load, "", "mov (%rdi), %rax", "");
SNIPPET(store, "", "mov %rsi, (%rdi)", "");
SNIPPET(store_byte, "", "movb $0x41, (%rdi)", "");
SNIPPET(exchange, "", "xchg %rsi, (%rdi)", "");
SNIPPET(add, "", "lock addq $1, (%rdi)", "");
SNIPPET(exchange_16, "", "lock cmpxchg16b (%rdi)", "");
SNIPPET(vector, "", "movups (%rdi), %xmm0", "movups %xmm0, (%rdi)");
SNIPPET(save, "", "fxsave64 (%rdi)", "");
SNIPPET(save_x, "or $-1, %eax; or $-1, %edx", "xsave64 (%rdi)", "");
SNIPPET(fill, "", "rep stosb", "");
SNIPPET(copy_there, "mov $0x100000, %esi", "rep movsq", "");
SNIPPET(copy_here, "xchg %rdi, %rsi; lea -2048(%rsp), %rdi", "rep movsb", "");
SNIPPET(jump, "", "jmp *%rdi", "");
SNIPPET(call, "", "call *%rdi", "");
SNIPPET(call_there, "", "call *(%rdi)", "");
SNIPPET(stack, "mov %rdi, %rsp", "push %rsi", "");
SNIPPET(flush, "", "invlpg (%rdi)", "clflush (%rdi)");
SNIPPET(walk, "mov $256, %ecx; mov %rdi, %rdx", "1: mov (%rdx), %rax; add $8, %rdx; loop 1b", "");

static const struct {
    char *code;
    bool changes; /* what is there, or where this program goes on */
} WAYS[] = {{load, false},      {store, true},       {store_byte, true}, {exchange, true},
            {add, true},        {exchange_16, true}, {vector, true},     {save, true},
            {save_x, true},     {fill, true},        {copy_there, true}, {copy_here, false},
            {jump, true},       {call, true},        {call_there, true}, {stack, true},
            {flush, false},     {walk, false}};

static word anywhere(void)
{
    switch (random() % 8) {
    case 0: /* Every entry of the upper half of the PML4. */
        return 0xffff800000000000 + (random() % 256 << 39) + random() % 8192;
    case 1:
        return 0xffff800000000000 | random() >> 14;
    case 2: /* What lies 2 TiB above the half's beginning. */
        return 0xffff820000000000 + random() % (1ul << 30);
    case 3: /* Where a program is at its usual place. */
        return 0xffff820000200000 + random() % (16ul << 20);
    case 4:
        return 0xffff820000000000 + (random() % 1024 << 12) - random() % 16;
    case 5: /* The last of the pages, and around all powers of two. */
        return odd_number() | 0xffff800000000000;
    case 6:
        return odd_number();
    default:
        return 0xffff820000000000 + (random() >> 14);
    }
}

/* An instruction that has once faulted may be executed in another way than one that has not: half of
 * the time it is a new one. */
static char *perhaps_new(char *code)
{
    enum { BYTES = 64, PLACES = 1 << 18 };
    static unsigned used;
    if (random() & 1)
        return code;
    char *place = (char *)(80ul << 20) + BYTES * (used++ % PLACES);
    return memcpy(place, code, BYTES);
}

int main(void)
{
    u64 rounds = begin();
    for (u64 round = 0; round < rounds; round++) {
        unsigned way = random() % (sizeof(WAYS) / sizeof(WAYS[0]));
        word address = anywhere();
        bool is_else = is_own(address) || is_process(address);
        if (is_else && WAYS[way].changes)
            continue;
        attempt(perhaps_new(WAYS[way].code), address, random());
        if (!is_else && address >> 63 && last.vector == DONE)
            print("REACHED %x, in way %d\n", address, way);
    }
    print("ok survived\n");
    return 0;
}
