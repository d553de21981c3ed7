/* A page fault, with the gates of both #PF and #DF not present: the processor shuts down
 * (SDM 3A 6.15, interrupt 8). */
#include "harness.h"

int main(void)
{
    check(1, 1, "ready");
    set_gate(PF, (word)vector_stubs + 16 * PF, KERNEL_CS, 0x0e00, 0);
    set_gate(DF, (word)vector_stubs + 16 * DF, KERNEL_CS, 0x0e00, 0);
    asm volatile("mov (%0), %%al" ::"r"(0x9000000000) : "rax");
    print("survived\n");
    return 0;
}
