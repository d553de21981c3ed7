/* Any access to any I/O port and to any register of a device in memory. */
#include "hostile.h"

SNIPPET(in_1, "mov %edi, %edx", "in %dx, %al", "");
SNIPPET(in_2, "mov %edi, %edx", "in %dx, %ax", "");
SNIPPET(in_4, "mov %edi, %edx", "in %dx, %eax", "");
SNIPPET(out_1, "mov %edi, %edx; mov %esi, %eax", "out %al, %dx", "");
SNIPPET(out_2, "mov %edi, %edx; mov %esi, %eax", "out %ax, %dx", "");
SNIPPET(out_4, "mov %edi, %edx; mov %esi, %eax", "out %eax, %dx", "");
SNIPPET(ins, "mov %edi, %edx; lea -2048(%rsp), %rdi", "rep insl", "");
SNIPPET(outs, "mov %edi, %edx; mov $0x100000, %esi", "rep outsw", "");
SNIPPET(in_there, "mov %edi, %edx; mov %rsi, %rdi", "rep insb", "");
SNIPPET(load_1, "", "mov (%rdi), %al", "");
SNIPPET(load_8, "", "mov (%rdi), %rax", "");
SNIPPET(store_1, "", "mov %sil, (%rdi)", "");
SNIPPET(store_4, "", "mov %esi, (%rdi)", "");
SNIPPET(store_8, "", "mov %rsi, (%rdi)", "");
SNIPPET(store_16, "movq %rsi, %xmm0", "movups %xmm0, (%rdi)", "");
SNIPPET(store_fill, "mov %esi, %eax", "rep stosl", "");
SNIPPET(add, "", "lock addl %esi, (%rdi)", "");

static char *const PORT_WAYS[] = {in_1, in_2, in_4, out_1, out_2, out_4, ins, outs, in_there};
static char *const MEMORY_WAYS[] = {load_1,  load_8,   store_1,    store_4,
                                    store_8, store_16, store_fill, add};

/* Ports that end the machine, as they should; they come last. */
static bool is_end(u16 port)
{
    return port == 0x92 || port == 0x64 || port == 0x60 || (port >= 0xcf6 && port <= 0xcf9) ||
           (port >= 0x5fc && port <= 0x610) || (port >= 0xf0 && port <= 0xf4);
}

static u16 any_port(void)
{
    static const u16 known[] = {0x20,  0x21,  0xa0,  0xa1,  0x40,  0x41,  0x42,  0x43,  0x61,
                                0x70,  0x71,  0x80,  0xe9,  0x2f8, 0x2f9, 0x2fb, 0x3f9, 0x3fa,
                                0x3fb, 0x3fc, 0x4d0, 0x4d1, 0x510, 0x511, 0x514, 0x518, 0xcf8,
                                0xcfc, 0x600, 0x608, 0xb2,  0x604};
    return random() % 2 ? known[random() % (sizeof(known) / sizeof(known[0]))] : random();
}

int main(void)
{
    u64 rounds = begin();
    for (u64 round = 0; round < rounds; round++) {
        if (random() & 1) {
            u16 port = any_port();
            word other = random() & 1 ? random() : DIRECT_ALIAS + (80ul << 20);
            if (!is_end(port))
                attempt(PORT_WAYS[random() % (sizeof(PORT_WAYS) / sizeof(PORT_WAYS[0]))], port, other);
        } else {
            static const word places[] = {0xfee00000, 0xfec00000, 0xfed00000, 0xc0000000, 0xfffff000};
            word at = places[random() % 5] + random() % 4096;
            attempt(MEMORY_WAYS[random() % (sizeof(MEMORY_WAYS) / sizeof(MEMORY_WAYS[0]))], at, random());
            apic_enable();
        }
    }
    print("ok survived\n");
    for (unsigned n = 0; n < 1000; n++)
        attempt(PORT_WAYS[random() % (sizeof(PORT_WAYS) / sizeof(PORT_WAYS[0]))], random() % 0xd00,
                random());
    return 0;
}
