/* Random bytes executed at privilege level 0, with random registers, as a kernel would that is lost.
 * What they break of this program ends it. */
#include "hostile.h"

enum { BYTES = 48 };

#define CODE_FRAME (70ul << 20)
#define DATA_FRAME (72ul << 20)
#define CODE HIGH_BASE
#define DATA (HIGH_BASE + 0x1000)

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

int main(void)
{
    u64 rounds = begin();
    word tables = read_cr3(), cr0 = read_cr0(), cr4 = read_cr4();
    u64 efer = rdmsr(MSR_EFER);
    map_at(CODE, CODE_FRAME, 1, P_ALL);
    map_at(DATA, DATA_FRAME, 1, P_ALL);
    for (u64 round = 0; round < rounds; round++) {
        fill((u8 *)CODE_FRAME);
        struct event start = kernel_state((void *)(CODE + random() % 16));
        u64 *registers = (u64 *)&start;
        for (unsigned i = 0; i < 15; i++)
            registers[i] = random() & 1 ? DATA + random() % 4096 : odd_number();
        start.rsp = DATA + 2048;
        start.rflags |= F_IF;
        apic_timer(GIVE_UP, 0, 400000);
        run(&start);
        write_cr3(tables);
        write_cr0(cr0);
        write_cr4(cr4);
        write_dr7(0);
        wrmsr(MSR_EFER, efer);
        apic_timer_off();
        apic_enable();
        load_idt();
    }
    print("ok survived\n");
    return 0;
}
