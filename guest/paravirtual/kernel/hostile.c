/* Makes random hypercalls and scribbles over what it shares with the hypervisor: its memory, tables of its own, the
 * shared page, rings, grants and FIFOs. What it is to show is that nobody but its own machine suffers.
 *
 * The initial RAM disk says {seed, turns, vCPUs}. Each turn does one thing, valid, nearly valid or wild. It says
 * `hostile: N` now and then, and has its machine reset when it gets to the end. Whatever exception or event comes, the
 * next turn goes on, on another stack: nothing that this kernel keeps is needed but its code and `turn_number`. It may
 * lose these too. Then it crashes, or loops for ever, which is for whoever runs it to end.
 *
 * Layouts and numbers: public/ of Xen. */
#include "hostile.h"

u64 pool[POOL][512] __attribute__((aligned(4096)));
volatile u64 *surfaces[MAX_SURFACES];
u64 surface_count;
const struct start_info *info;

static u64 shared[512] __attribute__((aligned(4096)));
/* Arguments in memory. A page of its own: a call may have it mapped otherwise. */
static u64 structure[512] __attribute__((aligned(4096)));
/* The state in which other vCPUs start. */
static u64 context[1024] __attribute__((aligned(4096)));
static u64 random_state, turn_number, turns;

/* One is in use by each vCPU. Who comes back to one finds nobody there. */
char stacks[32][2048] __attribute__((aligned(4096)));
uint32_t next_stack;
void exception(void);
__asm__("exception: movl $1, %eax; lock xaddl %eax, next_stack; andl $31, %eax; incl %eax; shll $11, %eax;"
        "leaq stacks(%rax), %rsp; cld; call go_on; ud2");

u64 any(u64 below)
{
        random_state ^= random_state << 13;
        random_state ^= random_state >> 7;
        random_state ^= random_state << 17;
        return random_state % below;
}

u64 mfn_of(const volatile void *address)
{
        return ((const u64 *)info->mfn_list)[((u64)address - BASE) / PAGE];
}

volatile u64 *page_of(u64 mfn)
{
        for (u64 page = 0; page < info->pages; page++)
                if (((const u64 *)info->mfn_list)[page] == mfn)
                        return (u64 *)(BASE + page * PAGE);
        return shared;
}

void add_surface(volatile u64 *page)
{
        if (surface_count < MAX_SURFACES)
                surfaces[surface_count++] = page;
}

static void say(u64 number)
{
        char line[] = "hostile: 00000000\n";
        for (int digit = 0; digit < 8; digit++)
                line[9 + digit] = "0123456789abcdef"[number >> (28 - 4 * digit) & 15];
        hypercall(18, 0, sizeof line - 1, (u64)line, 0);
}

u64 own_frame(void)
{
        if (any(8))
                return mfn_of(pool[any(POOL)]);
        return ((const u64 *)info->mfn_list)[any(info->pages)];
}

u64 anything(void)
{
        switch (any(16)) {
        case 0:
                return any(~0ul);
        case 1:
                return 1ul << any(64);
        case 2:
                return ~any(1 << 20);
        case 3:
                return 0x7ff0 + any(3);
        case 4:
                return own_frame();
        case 5:
                return own_frame() << 12 | any(512) << 3 | any(4);
        case 6:
                return own_frame() << 12 | any(4096) | 1;
        case 7:
                return (u64)pool[any(POOL)] + any(2) * any(4096);
        case 8:
                return (u64)structure + 8 * any(64);
        case 9:
                return 0xffff800000000000ul + any(1ul << 40);
        case 10:
                return info->pt_base + any(info->pt_frames * PAGE);
        case 11:
                return (u64)surfaces[any(surface_count)] + any(4096);
        default:
                return any(40);
        }
}

/* What this kernel itself could not go on after is rare. */
static int ends_it(u64 number, u64 command)
{
        switch (number) {
        case 0: /* set_trap_table */
        case 2: /* set_gdt */
        case 4: /* set_callbacks */
        case 23: /* iret */
        case 30: /* callback_op */
                return 1;
        case 24: /* vcpu_op: up and down */
                return command < 3;
        case 29: /* sched_op: all that waits, or ends it */
                return command > 0;
        }
        return 0;
}

/* A root of the pool's would have nothing of this kernel; nor would a multicall's entry that ends it. */
static void spare(void)
{
        for (int index = 0; index < 64; index++)
                if ((uint32_t)structure[index] == 5 && any(500))
                        structure[index] = 4;
        for (int entry = 0; entry < 64; entry += 8)
                if (ends_it(structure[entry], structure[entry + 2]) && any(500))
                        structure[entry] = 17;
}

static void wild_call(void)
{
        u64 number = any(4) ? (u64) "\1\14\15\16\21\24\32\40\30\12"[any(10)] : any(64);
        u64 arguments[4] = { anything(), anything(), anything(), anything() };
        if (any(2))
                arguments[0] = any(16);
        if (number == 1 || number == 13 || number == 26) {
                arguments[0] = (u64)structure;
                arguments[1] = any(number == 13 ? 64 : 4) ? any(8) : anything();
                arguments[3] = any(4) ? 0x7ff0 : anything();
        } else if (any(2)) {
                arguments[1] = (u64)structure;
        }
        if (number == 20 && any(4))
                arguments[2] = any(3);
        if (number == 18 || (ends_it(number, arguments[0]) && any(1000)))
                return;
        hypercall(number, arguments[0], arguments[1], arguments[2], arguments[3]);
}

/* A multicall of likely entries, some of them multicalls again: of this list, or of what lies behind it. */
static void multicall(void)
{
        u64 count = 1 + any(7);
        for (u64 entry = 0; entry < count; entry++) {
                u64 *at = &structure[entry * 8];
                at[0] = any(4) ? (u64) "\1\16\32\15\12\3\5\31"[any(8)] : any(64);
                for (int word = 1; word < 8; word++)
                        at[word] = anything();
                if (at[0] == 13) {
                        at[2] = (u64)&structure[8 * any(count + 1)];
                        at[3] = any(8);
                }
        }
        spare();
        hypercall(13, (u64)structure, count, 0, 0);
}

static long extended(uint32_t command, u64 frame)
{
        struct mmuext one = { command, frame, any(8) ? 0 : anything() };
        return hypercall(26, (u64)&one, 1, 0, 0x7ff0);
}

/* An entry that may lead to a frame of the pool's. */
static u64 entry(void)
{
        u64 value = (any(16) ? own_frame() : any(1ul << 40)) << 12 | 1 | (any(~0ul) & (2 | 4 | 0x60));
        if (any(2))
                value |= 7;
        if (!any(16))
                value |= any(4096);
        return any(8) ? value : value ^ 1ul << any(64);
}

static u64 slot(void)
{
        return any(2) ? any(512) : (u64[]){ 0, 1, 255, 256, 271, 272, 511 }[any(7)];
}

/* Write a word by one of the instructions that kernels write their page tables with. */
static void write_by_any(volatile u64 *place, u64 value)
{
        u64 expected = any(4) ? *place : value;
        switch (any(4)) {
        case 0:
                __asm__ volatile("xchgq %0, %1" : "+r"(value), "+m"(*place));
                break;
        case 1:
                __asm__ volatile("lock cmpxchgq %2, %1" : "+a"(expected), "+m"(*place) : "r"(value) : "cc");
                break;
        case 2:
                __asm__ volatile("movl %k1, %0" : "=m"(*(volatile uint32_t *)place) : "r"(value));
                break;
        default:
                write_word(place, value);
        }
}

/* What a kernel does to page tables, in any order. */
static void tables(void)
{
        u64 *page = pool[any(POOL)], mfn = mfn_of(page);
        switch (any(9)) {
        case 0:
        case 1: {
                struct update update = { mfn << 12 | slot() << 3 | any(4), entry() };
                hypercall(1, (u64)&update, 1, 0, 0x7ff0);
                break;
        }
        case 2:
                hypercall(14, (u64)page, mfn << 12 | 0x61 | any(2) * 2, any(3), 0);
                break;
        case 3:
                extended(any(4), mfn);
                break;
        case 4:
                extended(4, mfn);
                break;
        case 5:
                extended(15, any(3) ? mfn : 0);
                break;
        case 6:
                extended(any(20) == 5 ? 4 : any(20), any(2) ? mfn : anything());
                break;
        default:
                /* Fails unless it is writable, or an L1 that may say this. */
                write_by_any(&page[slot()], any(8) ? entry() : anything());
        }
}

/* Memory that shrinks and grows; calls with structures of the right form. */
static void reservation(void)
{
        u64 count = any(4);
        for (u64 index = 0; index < 8; index++)
                structure[16 + index] = any(8) ? own_frame() & ~any(4) : anything();
        u64 *at = structure;
        for (int side = 0; side < 2; side++) {
                *at++ = (u64)&structure[16 + 4 * side];
                *at++ = any(16) ? count : anything();
                *at++ = any(16) ? any(3) : anything();
                *at++ = any(16) ? 0x7ff0 : anything();
        }
        structure[8] = any(8) ? 0 : anything();
        hypercall(12, (u64[]){ 0, 1, 6, 11, 11, 7 }[any(6)], (u64)structure, 0, 0);
}

static void scribble(void)
{
        volatile u64 *at = surfaces[any(surface_count)];
        /* The last ones map what this kernel is not in. */
        if (!any(6))
                at = (u64 *)(info->pt_base + (any(64) ? 4 + any(info->pt_frames - 4) : any(4)) * PAGE);
        u64 index = any(3) ? any(512) : any(2) ? any(8) : 256 + any(8);
        u64 value = any(2) ? at[index] + any(5) - 2 : anything();
        write_by_any(&at[index], any(8) ? value : at[index] ^ 1ul << any(64));
}

static void unmask(void)
{
        for (int vcpu = 0; vcpu < 4; vcpu++)
                *(volatile uint16_t *)((char *)shared + 64 * vcpu) = any(4) ? 0 : 0x101;
}

static void wild(void)
{
        for (u64 count = any(8); count; count--)
                structure[any(64)] = any(3) ? anything() : any(16);
        spare();
        wild_call();
}

static void turn(void)
{
        u64 own = mfn_of(structure);
        if (!any(4))
                hypercall(14, (u64)structure, own << 12 | 0x63, 2, 0);
        switch (any(16)) {
        case 0 ... 3:
                return wild();
        case 4:
                return multicall();
        case 5 ... 7:
                return tables();
        case 8:
                return reservation();
        case 9 ... 11:
                return scribble();
        case 12 ... 13:
                return ring_turn();
        case 14:
                /* One in 32 is a return to anywhere, which few lives survive. */
                return instruction(any(8) ? any(28) : any(32), anything());
        default:
                return unmask();
        }
}

void go_on(void)
{
        uint32_t reboot = 1;
        while (turn_number < turns) {
                if (turn_number++ % 256 == 0)
                        say(turn_number);
                turn();
        }
        say(turn_number);
        hypercall(29, 2, (u64)&reboot, 0, 0);
}

/* Others run the same, at the same time (struct vcpu_guest_context). */
static void start_others(u64 vcpus)
{
        char *at = (char *)context;
        *(u64 *)(at + 512) = 4;
        *(u64 *)(at + 648) = (u64)exception;
        *(u64 *)(at + 656) = 0xe033;
        *(u64 *)(at + 664) = 0x200;
        *(u64 *)(at + 672) = (u64)stacks + sizeof(stacks);
        *(u64 *)(at + 680) = 0xe02b;
        for (int vector = 0; vector < 32; vector++)
                *(struct trap *)(at + 720 + 16 * vector) = (struct trap){ vector, 0, 0xe033, (u64)exception };
        *(u64 *)(at + 4968) = 0xe02b;
        *(u64 *)(at + 4976) = (u64)stacks + sizeof(stacks);
        *(u64 *)(at + 5008) = mfn_of((void *)info->pt_base) << 12;
        *(u64 *)(at + 5112) = (u64)exception;
        *(u64 *)(at + 5120) = (u64)exception;
        for (u64 vcpu = 1; vcpu < vcpus; vcpu++) {
                hypercall(24, 0, vcpu, (u64)context, 0);
                hypercall(24, 1, vcpu, 0, 0);
        }
}

void main(const struct start_info *start)
{
        static struct trap traps[33];
        const u64 *wanted = (const u64 *)start->mod_start;
        info = start;
        turns = wanted[1];
        random_state = wanted[0] * 0x9e3779b97f4a7c15ul | 1;
        for (int vector = 0; vector < 32; vector++)
                traps[vector] = (struct trap){ vector, 0, 0xe033, (u64)exception };
        hypercall(0, (u64)traps, 0, 0, 0);
        for (uint16_t type = 0; type < 3; type++) {
                struct { uint16_t type, flags; u64 address; } callback = { type, 0, (u64)exception };
                hypercall(30, 0, (u64)&callback, 0, 0);
        }
        hypercall(3, 0xe02b, (u64)stacks + sizeof(stacks), 0, 0);
        hypercall(14, (u64)shared, start->shared_info | 3, 2, 0);
        /* A word that is 0 would be a call, with which this kernel takes no exceptions any more. */
        for (int entry = 0; entry < WORDS; entry += 8)
                structure[entry] = 17;
        add_surface(shared);
        add_surface(structure);
        add_surface(page_of(start->store_mfn));
        add_surface(page_of(start->console_mfn));
        rings_begin();
        start_others(wanted[2]);
        go_on();
}
