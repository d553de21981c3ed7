/* The interrupt controllers and timers of a PC, as far as the programs need them. */
#include "apic.h"

#define APIC ((volatile u32 *)0xfee00000ul)
#define IOAPIC ((volatile u32 *)0xfec00000ul)

u32 apic_read(unsigned index) { return APIC[index / 4]; }
void apic_write(unsigned index, u32 value) { APIC[index / 4] = value; }
void apic_eoi(void) { apic_write(APIC_EOI, 0); }

void apic_enable(void)
{
    apic_write(APIC_LVT_TIMER, LVT_MASKED);
    apic_write(APIC_SPURIOUS, 0x1ff);
    apic_write(APIC_TPR, 0);
    apic_write(APIC_TIMER_DIVIDE, 0xb);
}

void apic_timer(unsigned vector, unsigned mode, u32 count)
{
    apic_write(APIC_LVT_TIMER, vector | mode);
    apic_write(APIC_TIMER_INITIAL, count);
}

void apic_timer_off(void)
{
    apic_write(APIC_LVT_TIMER, LVT_MASKED);
    apic_write(APIC_TIMER_INITIAL, 0);
}

unsigned apic_highest(unsigned index)
{
    for (int i = 7; i >= 0; i--) {
        u32 bits = apic_read(index + 16 * i);
        if (bits)
            return 32 * i + 31 - __builtin_clz(bits);
    }
    return 0;
}

u32 ioapic_read(unsigned index)
{
    IOAPIC[0] = index;
    return IOAPIC[4];
}

void ioapic_write(unsigned index, u32 value)
{
    IOAPIC[0] = index;
    IOAPIC[4] = value;
}

void pit_start(unsigned mode, u16 count)
{
    out8(0x43, 0x30 | mode << 1);
    out8(0x40, count);
    out8(0x40, count >> 8);
}

void pic_set_up(u8 base, u16 mask)
{
    out8(0x20, 0x11);
    out8(0xa0, 0x11);
    out8(0x21, base);
    out8(0xa1, base + 8);
    out8(0x21, 4);
    out8(0xa1, 2);
    out8(0x21, 1);
    out8(0xa1, 1);
    out8(0x21, mask);
    out8(0xa1, mask >> 8);
}

bool log_and_acknowledge(struct event *event)
{
    log_and_resume(event);
    apic_eoi();
    return true;
}

bool acknowledge_and_stop(struct event *event)
{
    (void)event;
    apic_eoi();
    return false;
}
