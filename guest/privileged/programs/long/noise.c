/* Random bytes executed in ring 3, in 64-bit and in compatibility mode: whatever they are, they end
 * in an exception or with the timer, in ring 3, and have touched nothing but their own two pages.
 */
#include "apic.h"
#include "paging.h"

enum { ROUNDS = 8000, BYTES = 48, VECTOR = 0x50 };

#define CODE_FRAME (70ul << 20)
#define DATA_FRAME (72ul << 20)
/* Below 4 GiB, so that compatibility mode reaches it too. */
#define CODE 0x40000000ul
#define DATA 0x40001000ul

static u32 state = 0x9e3779b9;

static u32 random(void)
{
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return state >> 3;
}

/* Half of the time bytes that look like instructions: prefixes, an opcode, a ModRM that leads to
 * the data page. */
static void fill(volatile u8 *code)
{
    static const u8 prefixes[] = {0x66, 0xf2, 0xf3, 0x48, 0x41, 0x0f, 0x0f, 0x64,
                                  0xf0, 0x67, 0xc5, 0xc4, 0x62, 0x40, 0x4c, 0x65};
    bool shaped = random() & 1;
    for (unsigned i = 0; i < BYTES; i++)
        code[i] = random();
    for (unsigned i = 0; shaped && i + 8 < BYTES;) {
        for (unsigned n = random() % 4; n; n--)
            code[i++] = prefixes[random() % 16];
        code[i++] = random();
        code[i++] = random() & 0xc7;
    }
    code[BYTES] = 0xcd;
    code[BYTES + 1] = 0x81;
}

static u64 hash(const void *from, size_t size)
{
    u64 h = 0;
    for (const u64 *p = from; size; p++, size -= 8)
        h = (h ^ *p) * 0x9e3779b97f4a7c15;
    return h;
}

static void one(bool compat, unsigned *timers)
{
    struct event start = compat ? compat_state(0) : user_state(0);
    u64 *registers = (u64 *)&start;
    for (unsigned i = 0; i < 15; i++)
        registers[i] = random() & 1 ? DATA + random() % 4096 : random() & 0xff;
    start.rip = CODE + random() % 16;
    start.rsp = DATA + 2048;
    start.rflags |= F_IF;
    apic_timer(VECTOR, 0, 400000);
    run(&start);
    apic_timer_off();
    *timers += last.vector == VECTOR;
    check(last.cs & 3, 3, "it stays in ring 3: CS %x", last.cs);
    check(last.rflags >> 12 & 3, 0, "IOPL stays 0");
    check(last.vector < 20 || last.vector == VECTOR || last.vector >= 0x80, true,
          "an event that there is: %d", (unsigned)last.vector);
    check(last.vector != DF && last.vector != TS && last.vector != MC, true,
          "an event that ring 3 can cause: %d", (unsigned)last.vector);
}

int main(void)
{
    map_at(CODE, CODE_FRAME, 1, P_ALL);
    map_at(DATA, DATA_FRAME, 1, P_ALL);
    apic_enable();
    hooks[VECTOR] = acknowledge_and_stop;
    wrmsr(MSR_EFER, rdmsr(MSR_EFER) & ~EFER_SCE);
    /* Ring 3 sees its two pages and nothing else. */
    pdpt_low[2] = 0;
    flush_tlb();
    u64 tables = hash(gdt, sizeof(gdt));
    u64 program = hash((void *)0x100000, 0x2000);
    for (unsigned compat = 0; compat < 2; compat++) {
        unsigned timers = 0;
        begin_group();
        for (unsigned i = 0; i < ROUNDS; i++) {
            /* Half of the time the time-stamp counter is forbidden. */
            if (i % 1000 == 0)
                write_cr4(read_cr4() ^ CR4_TSD);
            fill((u8 *)CODE_FRAME);
            one(compat, &timers);
        }
        check(hash((void *)0x100000, 0x2000) == program, true, "the program is as it was");
        check(timers < ROUNDS / 2, true, "most end by themselves");
        end_group(compat ? "random bytes in compatibility mode" : "random bytes in 64-bit mode");
    }
    check(hash(gdt, sizeof(gdt)) == tables, true, "the GDT is as it was");
    return 0;
}
