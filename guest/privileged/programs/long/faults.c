/* An exception while another is delivered: one after the other, or a double fault (SDM 3A 6.15,
 * interrupt 8, table 6-5), and the EXT bit of the second's error code (SDM 3A 6.13). */
#include "harness.h"

SNIPPET(divide, "xor %edx, %edx; mov $1, %eax; xor %ecx, %ecx", "div %ecx", "");
SNIPPET(invalid, "nop", "ud2", "");
SNIPPET(protection, "mov $0x800000000000, %rdi", "mov (%rdi), %eax", "");
SNIPPET(not_present, "mov $0x70, %eax", "mov %eax, %es", "");
SNIPPET(stack, "mov $0x800000000000, %rbp", "mov (%rbp), %eax", "");
SNIPPET(page, "mov $0x9000000000, %rdi", "mov (%rdi), %eax", "");
SNIPPET(breakpoint, "nop", "int3", "");
SNIPPET(software, "nop", "int $0x40", "");

enum { BENIGN, CONTRIBUTORY, PAGE };
enum { ABSENT_IST = 6, NONCANONICAL_IST = 7 };

static const struct first {
    const char *name;
    char *code, *at;
    unsigned vector, class;
    bool external;
} firsts[] = {
    {"#DE", divide, divide_at, DE, CONTRIBUTORY, true},
    {"#UD", invalid, invalid_at, UD, BENIGN, true},
    {"#GP", protection, protection_at, GP, CONTRIBUTORY, true},
    {"#NP", not_present, not_present_at, NP, CONTRIBUTORY, true},
    {"#SS", stack, stack_at, SS, CONTRIBUTORY, true},
    {"#PF", page, page_at, PF, PAGE, true},
    {"int3", breakpoint, breakpoint_at, BP, BENIGN, false},
    {"int 0x40", software, software_at, 0x40, BENIGN, false},
};

static const struct {
    const char *name;
    unsigned vector, class;
} seconds[] = {
    {"gate not present", NP, CONTRIBUTORY},
    {"gate with a null selector", GP, CONTRIBUTORY},
    {"stack not canonical", SS, CONTRIBUTORY},
    {"stack absent", PF, PAGE},
};

static void spoil(unsigned vector, unsigned second)
{
    word stub = (word)vector_stubs + 16 * vector;
    unsigned attributes = GATE_INTERRUPT | GATE_DPL3;
    switch (second) {
    case 0:
        set_gate(vector, stub, KERNEL_CS, attributes & ~0x8000, 0);
        break;
    case 1:
        set_gate(vector, stub, 0, attributes, 0);
        break;
    case 2:
        set_gate(vector, stub, KERNEL_CS, attributes, NONCANONICAL_IST);
        break;
    case 3:
        set_gate(vector, stub, KERNEL_CS, attributes, ABSENT_IST);
        break;
    }
}

static void mend(unsigned vector)
{
    set_gate(vector, (word)vector_stubs + 16 * vector, KERNEL_CS, GATE_INTERRUPT, 0);
}

static unsigned second_error(const struct first *first, unsigned second)
{
    unsigned external = first->external;
    switch (second) {
    case 0:
        return first->vector * 8 + 2 + external;
    case 3:
        return 2;
    default:
        return external;
    }
}

static void pair(const struct first *first, unsigned second, bool user)
{
    bool twice = (first->class == CONTRIBUTORY && seconds[second].class == CONTRIBUTORY) ||
                 (first->class == PAGE && seconds[second].class != BENIGN);
    spoil(first->vector, second);
    user ? run_user(first->code, 0, 0) : run_kernel(first->code, 0, 0);
    mend(first->vector);
    if (twice) {
        check(last.vector, DF, "%s, %s, user %d: double fault", first->name, seconds[second].name,
              user);
        check(last.error, 0, "%s, %s, user %d: error code", first->name, seconds[second].name,
              user);
        check(last_frame + 22 * 8, tss.ist[4], "%s, %s, user %d: stack", first->name,
              seconds[second].name, user);
    } else {
        check_event(seconds[second].vector, second_error(first, second),
                    (word)first->at + (user ? USER_ALIAS : 0), "%s, %s, user %d", first->name,
                    seconds[second].name, user);
        if (second == 3)
            check(last_cr2 >> 12, (tss.ist[ABSENT_IST - 1] - 1) >> 12, "%s, %s, user %d: CR2",
                  first->name, seconds[second].name, user);
    }
}

/* From ring 3, with no stack in the TSS to go to: nothing but an IST helps. */
static void bad_stack_pointers(void)
{
    u64 good = tss.rsp[0];
    static const u64 bad[] = {0x800000002000, 0x9000002000};
    for (unsigned i = 0; i < 2; i++) {
        tss.rsp[0] = bad[i];
        set_gate(DONE, (word)vector_stubs + 16 * DONE, KERNEL_CS, GATE_INTERRUPT | GATE_DPL3, 4);
        run_user(invalid, 0, 0);
        check(last.vector, DF, "RSP0 %x: double fault", bad[i]);
        check(last.cs, USER_CS64, "RSP0 %x: CS", bad[i]);
        check(last_frame + 22 * 8, tss.ist[4], "RSP0 %x: stack", bad[i]);
        tss.rsp[0] = good;
        run_user(invalid, 0, 0);
        check_event(UD, 0, USER(invalid_at), "RSP0 mended");
    }
}

int main(void)
{
    gdt[FREE_SELECTOR / 8] = descriptor(0, 0xfffff, 0xc073);
    tss.ist[ABSENT_IST - 1] = 0x9000002000;
    tss.ist[NONCANONICAL_IST - 1] = 0x800000002000;
    set_gate(DF, (word)vector_stubs + 16 * DF, KERNEL_CS, GATE_INTERRUPT, 5);
    for (unsigned user = 0; user < 2; user++)
        for (unsigned i = 0; i < sizeof(firsts) / sizeof(firsts[0]); i++)
            for (unsigned second = 0; second < 4; second++)
                pair(&firsts[i], second, user);
    bad_stack_pointers();
    return 0;
}
