/* Self-modifying code: a store is seen by the next instruction, whoever stores and however; and
 * code that is remapped, or that lies across two pages (SDM 3A 8.1.3, 11.6). */
#include "paging.h"

SNIPPET(next_instruction, "movb %dil, 1f+1(%rip)", "1: mov $0x11, %al", "");
SNIPPET(later_instruction, "movb %dil, 1f+1(%rip); nop; nop; inc %ecx", "1: mov $0x11, %al", "");
SNIPPET(own_loop, "xor %eax, %eax; mov $100, %ecx; 1: movl %ecx, 2f+1(%rip)",
        "2: .byte 0x05, 0, 0, 0, 0", "dec %ecx; jnz 1b");
SNIPPET(opcode_flips, "xor %eax, %eax; mov $100, %ecx; 1: xorb $0x28, 2f(%rip)",
        "2: add %ecx, %eax", "dec %ecx; jnz 1b");
SNIPPET(call_it, "nop", "call *%rdi", "");
SNIPPET(store_8, "nop", "movq %rsi, (%rdi)", "");
SNIPPET(by_push, "mov %rsp, %rbx; lea 8(%rdi), %rsp", "push %rsi", "mov %rbx, %rsp");
SNIPPET(by_string, "push %rsi; mov %rsp, %rsi; mov $8, %ecx; cld", "rep movsb", "pop %rsi");
SNIPPET(by_stos, "mov %rsi, %rax; mov $1, %ecx; cld", "rep stosq", "");
SNIPPET(by_exchange, "nop", "xchg %rsi, (%rdi)", "");
SNIPPET(by_compare, "mov (%rdi), %rax", "lock cmpxchg %rsi, (%rdi)", "");
SNIPPET(by_compare_16, "mov (%rdi), %rax; mov 8(%rdi), %rdx; mov %rsi, %rbx; mov %rdx, %rcx",
        "lock cmpxchg16b (%rdi)", "");
SNIPPET(by_add, "sub (%rdi), %rsi", "lock add %rsi, (%rdi)", "");
SNIPPET(by_vector, "movq %rsi, %xmm0", "movq %xmm0, (%rdi)", "");
SNIPPET(by_vector_16, "movq %rsi, %xmm0; movhps 8(%rdi), %xmm0", "movups %xmm0, (%rdi)", "");
SNIPPET(by_nontemporal, "nop", "movnti %rsi, (%rdi); sfence", "");
SNIPPET(by_x87, "push %rsi; fildll (%rsp)", "fistpll (%rdi)", "pop %rsi");
SNIPPET(by_two_halves, "mov %rsi, %rax; shr $32, %rax", "movl %esi, (%rdi); movl %eax, 4(%rdi)",
        "");
SNIPPET(by_call, "mov %rsp, %rbx; lea 8(%rdi), %rsp; call 1f; 1: mov %rbx, %rsp",
        "mov %rsi, (%rdi)", "");
SNIPPET(by_straddle, "mov %rsi, %rax; shl $32, %rax; movl $0x90909090, %ecx; or %rcx, %rax",
        "mov %rax, -4(%rdi); shr $32, %rsi; mov %esi, 4(%rdi)", "");

#define CODE (44ul << 20)
#define OTHER (46ul << 20)
#define ADDRESS (HIGH_BASE + (50ul << 30))

/* mov $value, %eax; ret, in 8 bytes. */
static u64 function(u32 value) { return 0xb8 | (u64)value << 8 | 0x9090c3ull << 40; }
static void put(word frame, u32 value) { *(volatile u64 *)frame = function(value); }

static u32 call_at(word address, bool user)
{
    user ? run_user(call_it, address, 0) : run_kernel(call_it, address, 0);
    return last.vector == DONE ? last.rax : 0xffffff00 | last.vector;
}

static void in_place(bool user)
{
    for (unsigned i = 0; i < 3; i++) {
        user ? run_user(next_instruction, 0x20 + i, 0) : run_kernel(next_instruction, 0x20 + i, 0);
        check(last.rax & 0xff, 0x20 + i, "next instruction, user %d, round %d", user, i);
        user ? run_user(later_instruction, 0x30 + i, 0)
             : run_kernel(later_instruction, 0x30 + i, 0);
        check(last.rax & 0xff, 0x30 + i, "later instruction, user %d, round %d", user, i);
    }
    user ? run_user(own_loop, 0, 0) : run_kernel(own_loop, 0, 0);
    check(last.rax, 5050, "operand that changes in a loop, user %d", user);
    user ? run_user(opcode_flips, 0, 0) : run_kernel(opcode_flips, 0, 0);
    check(last.rax, (u32)-50, "opcode that changes in a loop, user %d", user);
}

/* Every kind of store, on code that has just run. */
static void stores(bool user)
{
    static const struct {
        const char *name;
        const void *code;
    } cases[] = {
        {"mov", store_8},
        {"push", by_push},
        {"rep movsb", by_string},
        {"rep stosq", by_stos},
        {"xchg", by_exchange},
        {"cmpxchg", by_compare},
        {"cmpxchg16b", by_compare_16},
        {"lock add", by_add},
        {"movq", by_vector},
        {"movups", by_vector_16},
        {"movnti", by_nontemporal},
        {"fistp", by_x87},
        {"two stores", by_two_halves},
        {"call", by_call},
        {"straddling", by_straddle},
    };
    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (unsigned alias = 0; alias < 2; alias++) {
            word frame = CODE + (cases[i].code == by_straddle ? 0x2000 : 0x1100);
            word execute = user ? USER(frame) : frame;
            word write = alias ? USER(frame) : execute;
            put(frame, 1);
            check(call_at(execute, user), 1, "before %s", cases[i].name);
            for (unsigned value = 2; value < 5; value++) {
                user ? run_user(cases[i].code, write, function(value))
                     : run_kernel(cases[i].code, write, function(value));
                check(last.vector, DONE, "%s, alias %d, user %d", cases[i].name, alias, user);
                check(call_at(execute, user), value, "after %s, alias %d, user %d, value %d",
                      cases[i].name, alias, user, value);
            }
        }
    }
}

/* Stores through three mappings; calls through three. */
static void aliases(void)
{
    word frame = CODE + 0x3000;
    word views[] = {frame, USER(frame), frame + DIRECT_ALIAS, frame + HIGH_ALIAS};
    u32 value = 0x100;
    for (unsigned w = 0; w < 4; w++) {
        for (unsigned x = 0; x < 4; x++) {
            put(views[w], ++value);
            check(call_at(views[x], false), value, "stored through view %d, called through %d", w,
                  x);
        }
    }
}

static void remapping(bool user)
{
    struct walk walk = map_at(ADDRESS, CODE + 0x4000, 1, P_ALL);
    put(CODE + 0x4000, 0xa);
    put(CODE + 0x5000, 0xb);
    begin_group();
    for (unsigned i = 0; i < 10; i++) {
        *walk.entry[1] = (i & 1 ? CODE + 0x5000 : CODE + 0x4000) | P_ALL;
        invlpg(ADDRESS);
        check(call_at(ADDRESS, user), i & 1 ? 0xb : 0xa, "round %d", i);
    }
    /* The frame that is not mapped changes meanwhile. */
    put(CODE + 0x4000, 0xc);
    *walk.entry[1] = (CODE + 0x4000) | P_ALL;
    invlpg(ADDRESS);
    check(call_at(ADDRESS, user), 0xc, "changed while unmapped");
    *walk.entry[1] = (CODE + 0x4000) | P_ALL | P_NX;
    invlpg(ADDRESS);
    check(call_at(ADDRESS, user), 0xffffff00 | PF, "no longer executable");
    *walk.entry[1] = 0;
    invlpg(ADDRESS);
    check(call_at(ADDRESS, user), 0xffffff00 | PF, "no longer present");
    check(call_at(CODE + 0x4000 + (user ? USER_ALIAS : 0), user), 0xc, "elsewhere it still is");
    end_group(user ? "remapped code, ring 3" : "remapped code, ring 0");
}

/* Code runs in ring 0 from a user page until SMEP is set; from a supervisor page never in ring 3.
 */
static void rights(void)
{
    put(CODE + 0x6000, 0xd);
    check(call_at(USER(CODE + 0x6000), false), 0xd, "ring 0 executes a user page");
    check(call_at(USER(CODE + 0x6000), true), 0xd, "ring 3 executes a user page");
    if (has_smep()) {
        write_cr4(read_cr4() | CR4_SMEP);
        check(call_at(USER(CODE + 0x6000), false), 0xffffff00 | PF, "SMEP");
        check(call_at(USER(CODE + 0x6000), true), 0xd, "SMEP leaves ring 3 alone");
        write_cr4(read_cr4() & ~CR4_SMEP);
        check(call_at(USER(CODE + 0x6000), false), 0xd, "SMEP off again");
    }
    check(call_at(CODE + 0x6000, false), 0xd, "ring 0 executes a supervisor page");
    check(call_at(CODE + 0x6000, true), 0xffffff00 | PF, "ring 3 does not");
}

/* `mov $imm32, %eax` with its last bytes on the second page. */
static void straddling(bool user)
{
    word start = ADDRESS + (1ul << 30);
    struct walk first = map_at(start, CODE + 0x7000, 1, P_ALL);
    struct walk second = map_at(start + 4096, CODE + 0x8000, 1, P_ALL);
    unsigned u = user ? E_U : 0;
    begin_group();
    for (unsigned head = 1; head < 5; head++) {
        word address = start + 4096 - head;
        for (unsigned copy = 0; copy < 2; copy++) {
            u64 bytes = function(copy ? 0x55667788 : 0x11223344);
            memcpy((void *)(CODE + 0x8000 - head), &bytes, head);
            memcpy((void *)(CODE + 0x8000 + copy * 0x1000), (u8 *)&bytes + head, 8 - head);
        }
        u64 bytes = function(0x11223344), others = function(0x55667788);
        memcpy((void *)(CODE + 0x8000 - head), &bytes, head);
        /* What the second page holds decides the upper bytes only. */
        u32 mixed =
            (bytes & ((1ull << 8 * head) - 1)) >> 8 | (others & ~((1ull << 8 * head) - 1)) >> 8;
        *second.entry[1] = (CODE + 0x8000) | P_ALL;
        invlpg(start + 4096);
        check(call_at(address, user), 0x11223344, "both pages, head %d", head);
        *second.entry[1] = (CODE + 0x9000) | P_ALL;
        invlpg(start + 4096);
        check(call_at(address, user), mixed, "second page remapped, head %d", head);
        *second.entry[1] = 0;
        invlpg(start + 4096);
        call_at(address, user);
        check_event(PF, u | E_I, address, "second page absent, head %d", head);
        check(last_cr2, start + 4096, "second page absent, CR2, head %d", head);
        *second.entry[1] = (CODE + 0x8000) | P_ALL | P_NX;
        invlpg(start + 4096);
        call_at(address, user);
        check_event(PF, u | E_I | E_P, address, "second page not executable, head %d", head);
        check(last_cr2, start + 4096, "second page not executable, CR2, head %d", head);
        *second.entry[1] = (CODE + 0x8000) | P_ALL;
        *first.entry[1] = 0;
        invlpg(start);
        invlpg(start + 4096);
        call_at(address, user);
        check_event(PF, u | E_I, address, "first page absent, head %d", head);
        check(last_cr2, address, "first page absent, CR2, head %d", head);
        *first.entry[1] = (CODE + 0x7000) | P_ALL;
        check(call_at(address, user), 0x11223344, "both pages again, head %d", head);
        ((volatile u8 *)(CODE + 0x8000))[0] ^= 0x40;
        u32 expected = 0x11223344 ^ (0x40u << 8 * (head - 1));
        check(call_at(address, user), expected, "second page written, head %d", head);
    }
    end_group(user ? "an instruction across two pages, ring 3"
                   : "an instruction across two pages, ring 0");
}

/* A chain: page 0 calls page 1, which jumps to page 2; each is remapped in turn. */
static void chains(void)
{
    word start = ADDRESS + (2ul << 30);
    struct walk pages[3];
    for (unsigned i = 0; i < 3; i++)
        pages[i] = map_at(start + i * 4096, CODE + 0xa000 + i * 0x1000, 1, P_ALL);
    for (unsigned copy = 0; copy < 2; copy++) {
        u8 *base = (u8 *)(CODE + 0xa000 + copy * 0x3000);
        /* page 0: call page 1; add $copy, %eax; ret */
        static const u8 caller[] = {0xe8, 0xfb, 0x0f, 0, 0, 0x83, 0xc0, 0, 0xc3};
        memcpy(base, caller, sizeof(caller));
        base[7] = copy;
        /* page 1: mov $copy * 16, %ebx; jmp page 2 */
        static const u8 middle[] = {0xbb, 0, 0, 0, 0, 0xe9, 0xf6, 0x0f, 0, 0};
        memcpy(base + 0x1000, middle, sizeof(middle));
        base[0x1001] = copy * 16;
        /* page 2: lea copy * 64(%rbx), %eax; ret */
        static const u8 end[] = {0x8d, 0x43, 0, 0xc3};
        memcpy(base + 0x2000, end, sizeof(end));
        base[0x2002] = copy * 64;
    }
    begin_group();
    for (unsigned i = 0; i < 24; i++) {
        unsigned which = i % 8;
        for (unsigned page = 0; page < 3; page++) {
            *pages[page].entry[1] =
                (CODE + 0xa000 + (which >> page & 1) * 0x3000 + page * 0x1000) | P_ALL;
            invlpg(start + page * 4096);
        }
        u32 expected = (which & 1) + (which >> 1 & 1) * 16 + (which >> 2) * 64;
        check(call_at(start, i & 8), expected, "pages %x", (word)which);
        check(call_at(start, i & 8), expected, "pages %x again", (word)which);
    }
    *pages[2].entry[1] = 0;
    invlpg(start + 2 * 4096);
    call_at(start, false);
    check_event(PF, E_I, start + 2 * 4096, "the last page absent");
    end_group("calls and jumps between pages that are remapped");
}

/* Data beside code in one page, written again and again. */
static void mixed_page(void)
{
    word frame = OTHER + 0x100;
    volatile u32 *data = (u32 *)(OTHER + 0x800);
    begin_group();
    for (u32 i = 0; i < 2000; i++) {
        *data = i;
        if (i % 100 == 0)
            put(frame, i);
        if (i % 10 == 0)
            check(call_at(frame, false), i / 100 * 100, "call %d", i);
        check(*data, i, "data %d", i);
    }
    end_group("data beside code");
}

int main(void)
{
    for (unsigned user = 0; user < 2; user++) {
        in_place(user);
        stores(user);
        remapping(user);
        straddling(user);
    }
    aliases();
    rights();
    chains();
    mixed_page();
    return 0;
}
