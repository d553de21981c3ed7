/* A page fault for which no stack is mapped, nor one for the double fault: the processor shuts down
 * (SDM 3A 6.15, interrupt 8). */
#include "harness.h"

int main(void)
{
    check(1, 1, "ready");
    set_gate(PF, (word)vector_stubs + 16 * PF, KERNEL_CS, GATE_INTERRUPT, 1);
    set_gate(DF, (word)vector_stubs + 16 * DF, KERNEL_CS, GATE_INTERRUPT, 1);
    tss.ist[0] = 0x9000000000;
    asm volatile("mov (%0), %%al" ::"r"(0x9000000000) : "rax");
    print("survived\n");
    return 0;
}
