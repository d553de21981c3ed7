/* What the parts of the hostile kernel share. */
#include "xen.h"

#define POOL 24
#define WORDS 512
#define BASE 0xffffffff80000000ul

extern u64 pool[POOL][512];
/* Pages that the hypervisor reads or writes while this kernel runs. */
#define MAX_SURFACES 24
extern volatile u64 *surfaces[MAX_SURFACES];
extern u64 surface_count;
extern const struct start_info *info;

/* A random number below another. */
u64 any(u64 below);
/* Something that a hypercall may take for an argument. */
u64 anything(void);
u64 own_frame(void);
u64 mfn_of(const volatile void *address);
/* Where the initial mapping has a page of this machine frame. */
volatile u64 *page_of(u64 mfn);
void add_surface(volatile u64 *page);

/* Set up what is to be scribbled over, and one use of it each. */
void rings_begin(void);
void ring_turn(void);

/* Execute what a kernel of this kind must not, or must ask for. */
void instruction(u64 which, u64 value);
