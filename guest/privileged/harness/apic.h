/* The interrupt controllers and timers of a PC, as far as the programs need them. */
#ifndef APIC_H
#define APIC_H

#include "harness.h"

/* Registers of the local APIC (SDM 3A table 11-1). */
#define APIC_ID 0x20
#define APIC_VERSION 0x30
#define APIC_TPR 0x80
#define APIC_PPR 0xa0
#define APIC_EOI 0xb0
#define APIC_SPURIOUS 0xf0
#define APIC_ISR 0x100
#define APIC_IRR 0x200
#define APIC_ERROR 0x280
#define APIC_ICR 0x300
#define APIC_ICR_HIGH 0x310
#define APIC_LVT_TIMER 0x320
#define APIC_LVT_LINT0 0x350
#define APIC_LVT_LINT1 0x360
#define APIC_LVT_ERROR 0x370
#define APIC_TIMER_INITIAL 0x380
#define APIC_TIMER_CURRENT 0x390
#define APIC_TIMER_DIVIDE 0x3e0

#define ICR_SELF 0x40000
#define ICR_NMI 0x400
#define TIMER_PERIODIC 0x20000
#define TIMER_DEADLINE 0x40000
#define LVT_MASKED 0x10000

u32 apic_read(unsigned index);
void apic_write(unsigned index, u32 value);
void apic_enable(void);
void apic_timer(unsigned vector, unsigned mode, u32 count);
void apic_timer_off(void);
void apic_eoi(void);
/* Highest vector in a 256-bit register, or 0. */
unsigned apic_highest(unsigned index);

u32 ioapic_read(unsigned index);
void ioapic_write(unsigned index, u32 value);
void pit_start(unsigned mode, u16 count);
void pic_set_up(u8 base, u16 mask);

/* A hook that logs, acknowledges at the APIC and resumes. */
bool log_and_acknowledge(struct event *event);
/* A hook that acknowledges at the APIC and ends the snippet. */
bool acknowledge_and_stop(struct event *event);

#endif
