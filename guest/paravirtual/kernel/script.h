/* What the parts of the kernel that carries out scripts share. */
#include "xen.h"

#define POOL 40
#define NO_FRAME 0xffff
#define ADDRESS 0x000ffffffffff000ul

/* Three arguments, which each kind says the meaning of. */
struct operation { u64 kind, first, second, third; };

/* Kinds begin with these numbers. */
enum { PAGES = 0, EVENTS = 16, GRANTS = 48 };

extern u64 pool[POOL][512], mfns[POOL];
extern u64 own_domain, shared_info_address;

u64 mfn_of(const void *address);
/* The entry of the L1 that maps a page of the kernel's. */
volatile u64 *entry_of(const void *address);
/* Have an address of the kernel's mapped to a machine address, with flags. */
long map_page(const void *address, u64 machine_address_and_flags);

/* What an operation has come to: it is added to the sum of the script, and said if the script is to be. */
void note(const char *what, u64 value);

/* SELF, the own number, or nobody's. */
u64 domain_of(u64 choice);
/* The other way round: the own number is SELF. */
u64 from_domain(u64 domain);

void pages_carry_out(const struct operation *at);
int pages_reset(void);
void pages_show(void);

void events_begin(void);
void events_carry_out(const struct operation *at);
int events_reset(void);
void events_show(void);

void grants_begin(void);
void grants_carry_out(const struct operation *at);
int grants_reset(void);
void grants_show(void);
