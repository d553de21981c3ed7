/* The instruction after `sti` completes before an interrupt is taken, whatever it has to wait for (SDM
 * 2B, STI): here a page that nothing has touched before, so that the access to it takes long. */
#include "apic.h"

#define TIMER 0x40
/* Memory that neither the programs nor their loader use. */
#define FRESH 0x4000000ul
#define PAGES 16384u

/* RDI is the first page, ESI their number, R8D the highest count of the timer but one. */
asm(".pushsection .text\n"
    "touch_pages: mov $0xfee00380, %ebx; xor %ecx, %ecx\n"
    "1: imul $1103515245, %ecx, %ecx; add $12345, %ecx\n"
    "   mov %ecx, %eax; shr $16, %eax; and %r8d, %eax; inc %eax\n"
    "   cli; mov %eax, (%rbx); add $4096, %rdi\n"
    "   sti\n"
    "sheltered_at: testb $0, (%rdi)\n"
    "   nop; dec %esi; jnz 1b\n"
    "   cli; int $0x81\n"
    ".popsection");
extern char touch_pages[], sheltered_at[];

static unsigned early, interrupts;

static bool look_where(struct event *event)
{
    interrupts++;
    early += event->rip == (word)sheltered_at;
    apic_eoi();
    return true;
}

int main(void)
{
    apic_enable();
    apic_write(APIC_LVT_TIMER, TIMER);
    hooks[TIMER] = look_where;
    /* Counts that end while the access is under way, some of them, on slow and fast hosts. */
    for (unsigned round = 0; round < 4; round++) {
        struct event start = kernel_state(touch_pages);
        start.rdi = FRESH + round * (PAGES / 4) * 4096ul;
        start.rsi = PAGES / 4;
        start.r8 = (64u << 4 * round) - 1;
        run(&start);
        check_done("round %d", round);
    }
    apic_timer_off();
    check(interrupts > 0, true, "interrupts came");
    check(early, 0, "interrupts between sti and the next instruction");
    return 0;
}
