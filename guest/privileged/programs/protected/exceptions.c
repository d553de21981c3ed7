/* Exceptions in 32-bit protected mode without paging: vectors, error codes, saved EIP, the stack
 * from the TSS, and what 64-bit mode no longer has (SDM 3A 6.12 to 6.15). */
#include "harness.h"

SNIPPET(divide, "xor %edx, %edx; mov $1, %eax; xor %ecx, %ecx", "div %ecx", "");
SNIPPET(ud2, "nop", "ud2", "");
SNIPPET(int3, "nop", "int3", "");
SNIPPET(into_set, "mov $0x7fffffff, %eax; inc %eax", "into", "");
SNIPPET(into_clear, "xor %eax, %eax", "into", "");
SNIPPET(bound_low, "mov $1, %eax", "bound %eax, (%edi)", "");
SNIPPET(bound_in, "mov $2, %eax", "bound %eax, (%edi)", "");
SNIPPET(bound_high, "mov $6, %eax", "bound %eax, (%edi)", "");
SNIPPET(aam_zero, "mov $1, %eax", ".byte 0xd4, 0", "");
SNIPPET(halt, "nop", "hlt", "");
SNIPPET(int_40, "nop", "int $0x40", "");
SNIPPET(int_80, "nop", "int $0x80", "");

static bool user;
static word at(const void *label) { return user ? USER(label) : (word)label; }
static const char *ring(void) { return user ? "ring 3" : "ring 0"; }
static void go(const void *code, word edi)
{
    if (user)
        run_user(code, edi, 0);
    else
        run_kernel(code, edi, 0);
}

static void both_rings(void)
{
    static const int bounds[] = {2, 5};
    go(divide, 0);
    check_event(DE, 0, at(divide_at), "divide %s", ring());
    go(ud2, 0);
    check_event(UD, 0, at(ud2_at), "ud2 %s", ring());
    go(int3, 0);
    check_event(BP, 0, at(int3_after), "int3 %s", ring());
    go(into_set, 0);
    check_event(OF, 0, at(into_set_after), "into with OF %s", ring());
    go(into_clear, 0);
    check_done("into without OF %s", ring());
    go(bound_low, (word)bounds);
    check_event(BR, 0, at(bound_low_at), "bound below %s", ring());
    go(bound_high, (word)bounds);
    check_event(BR, 0, at(bound_high_at), "bound above %s", ring());
    go(bound_in, (word)bounds);
    check_done("bound within %s", ring());
    go(aam_zero, 0);
    check_event(DE, 0, at(aam_zero_at), "aam 0 %s", ring());
    go(int_80, 0);
    check_event(0x80, 0, at(int_80_after), "int 0x80 %s", ring());
}

int main(void)
{
    for (unsigned i = 0; i < 2; i++) {
        user = i;
        both_rings();
    }
    go(halt, 0);
    check_event(GP, 0, at(halt_at), "hlt ring 3");
    go(int_40, 0);
    check_event(GP, 0x40 * 8 + 2, at(int_40_at), "int 0x40 ring 3");
    user = false;
    set_gate(0x40, (word)vector_stubs + 0x400, KERNEL_CS, GATE_INTERRUPT & ~0x8000);
    go(int_40, 0);
    check_event(NP, 0x40 * 8 + 2, at(int_40_at), "gate not present");
    set_gate(0x40, (word)vector_stubs + 0x400, KERNEL_DS, GATE_INTERRUPT);
    go(int_40, 0);
    check_event(GP, KERNEL_DS, at(int_40_at), "gate to a data segment");
    set_gate(0x40, (word)vector_stubs + 0x400, 0, GATE_INTERRUPT);
    go(int_40, 0);
    check_event(GP, 0, at(int_40_at), "gate to a null selector");
    return 0;
}
