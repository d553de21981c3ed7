//! Guest user code executed natively, in helper processes that can do nothing else.
//!
//! A [`Space`] is the user half of one guest address space: a process whose memory is pages of the
//! guest's, and one thread of which executes the user code of one vCPU at the host's full speed.
//! Every system call, fault and kick stops this thread with all registers in shared
//! memory. No process traces another: there is no `ptrace`, and no privilege.
//!
//! # The processes
//!
//! - The *domain* process: the caller. It holds guest memory and the area (`area.rs`), one slot of
//!   which belongs to each helper.
//! - The *zygote*: forked from the domain once, before it confines itself. It unmaps everything of
//!   the domain's, gives up what it can (capabilities, namespaces, files through Landlock), puts a
//!   filter on itself and from then on forks helpers.
//! - A *helper*: two processes with one memory. The *runner* executes the guest's code. The
//!   *mapper* maps and unmaps pages of guest memory there (`script.rs` sets both up, `stub.rs` is
//!   their code, `filter.rs` are their filters).
//!
//! A stop: the program's `syscall`, fault or kick is a signal to the runner; its handler, in the
//! stub, notes where the signal frame is and makes the one system call that the runner may make.
//! That is a seccomp notification: the kernel holds the runner until the domain answers. A start:
//! the answer; the stub loads every register from the entry page and leaves by IRETQ. Orders for
//! the mapper are laid out as a script of system calls; the mapper, held in the same manner, carries
//! them out and then answers the runner's notification itself, so that a fault takes one wake-up
//! more than a system call and not two.
//!
//! # Why that is safe
//!
//! Three parties distrust each other: the guest's user code, the domain (its kernel may have broken
//! the translator), and the host. The guest's user code is assumed to execute *any* instruction with
//! any register values in the runner, wherever it is mapped, the stub included. Then:
//!
//! 1. *The runner makes no system call but the stop.* Its last filter allows `getppid` from one
//!    instruction of the stub and turns everything else, of every architecture and ABI, into a
//!    SIGSYS for itself. Filters cannot be taken off, and no `rt_sigreturn` is allowed either: the
//!    stub leaves handlers by IRETQ. The stop takes no arguments and, with the notification, returns
//!    what the domain says. Syscall User Dispatch catches calls from outside the stub before any
//!    filter sees them. That is faster, keeps them from outer filters that would end the
//!    helper, and matters for two calls only, `uprobe` and `uretprobe`, which Linux exempts
//!    from filters: made from the stub, they return an error or raise SIGILL, because they are not
//!    made from the kernel's own trampolines.
//! 2. *The runner has nothing to make calls on.* It has no descriptors (they are the mapper's own
//!    table), no vDSO, no vvar, no stack or heap of the domain's: its memory was unmapped as a whole
//!    before the zygote waited for its first order. The vsyscall page, which cannot be unmapped, is
//!    subject to the filters, and its emulation is undone (`stop.rs`).
//! 3. *The runner's memory is what the domain mapped, and 64 KiB.* Of these, the stub is read and
//!    execute, the control pages (entry, orders, answers) are read only, and the scratch pages
//!    (report, signal stack) are writable. No system call means that no guest code can change that.
//!    What is in the control pages is the program's own registers and the addresses of its own
//!    mappings, and the number of a notification, which is of no use to a process that cannot answer it.
//! 4. *Running the stub gains nothing.* Its only effects beyond user instructions are its system
//!    calls. From the runner, all but the stop are SIGSYS (1). A stop that the program makes itself
//!    reports what the program wrote; see 6. What the stub reads to decide what to call lies in
//!    control pages, which the program cannot write, or is in registers, which it could have used
//!    with a `syscall` of its own.
//! 5. *The mapper executes no guest code and reads nothing that the guest can write.* It has its
//!    program counter in the stub for ever, its state in registers and control pages, no signal
//!    handlers, and all signals blocked. Its filter allows it to map the guest memory's file shared and fixed,
//!    to unmap and to protect, to answer the runner, to stop and to exit; nothing else, so that even
//!    a domain that has been taken over gains only mappings of memory that it had anyway.
//! 6. *What comes back is hostile.* The report and the signal frame lie in pages that the program
//!    can write. They are read once, by copy, while the runner is held by the kernel: the domain has
//!    *received* the notification, after which only a fatal signal wakes the runner
//!    (`SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV`), and no other thread of the guest's has these pages:
//!    each space has its own slot and one runner. Every field is brought to a value that user code
//!    could have had (`registers.rs`): selectors, flags, canonical addresses, extended state that
//!    XRSTOR takes. Every stop is one that user code could have caused (`stop.rs`). So a forged stop
//!    is a roundabout way of doing what the program may do. Pointers in the report are checked to be
//!    in the slot. Nothing read is used as an index, a length or a host address.
//! 7. *A stopped space stays stopped.* Whether the runner stands is known from the kernel's
//!    notification and from nothing in shared memory. This is why neither side spins on a word: a
//!    program could claim there to have stopped, run on, and see pages that the guest's kernel has
//!    taken from it and given to another process. Orders are carried out before the runner goes on.
//! 8. *It cannot be kept.* A kick is a signal sent through the runner's pidfd; the runner cannot
//!    block it (no `rt_sigprocmask`), and its handler goes straight to the stop, wherever it came
//!    from. It needs nothing of the program's but the signal stack, whose loss is the runner's
//!    death. Death is reported ([`Stop::Died`]), and the slot is not used again before the kernel says
//!    that the runner is dead.
//! 9. *Nothing outlives the domain.* The zygote exits when its socket closes; mappers die with the
//!    zygote and runners with their mappers (`PR_SET_PDEATHSIG`), both also when no process listens.
//! 10. *The zygote is no way out for a domain that was taken over.* The domain writes the scripts,
//!     so the zygote's filter (inherited by all helpers) names what scripts need: to fork in two ways,
//!     map, handle signals, pass on descriptors that it has, install filters. It opens nothing, runs
//!     nothing, connects to nothing and signals no process.
//!
//! What the guest can do is to end its own helper, by putting its stack pointer so that the kernel
//! has no room for a signal frame on the signal stack, or by reporting nonsense. That is
//! [`Stop::Died`], for that program.
//!
//! `tests/attacks.rs` tries all of this as a program, the tests of `helpers.rs` as a domain that has
//! been taken over.
//!
//! # How the caller serves a stop
//!
//! - [`Stop::SystemCall`]: what the `syscall` instruction does, from the registers as they are (RIP is
//!   behind it).
//! - [`Stop::Exception`] with vector 14: walk the guest's page tables for the address. If they allow
//!   the access, map the page, and others that will be wanted, and run again; otherwise deliver #PF
//!   with an error code made from the walk. The code here says only what was tried (W, I): P is
//!   about this space's mappings, and always set for addresses of the upper half.
//! - Any other exception: deliver it, or have the instruction interpreted, which is always right and
//!   is what #GP asks for where the guest's machine differs from the host (RDTSC, CPUID, `int n`
//!   through gates that the guest opens to programs).
//! - [`Stop::LegacyCall`]: an `int 0x80` if these are the two bytes before RIP; otherwise RIP is
//!   not known, and the program has met the same as under [`Stop::Died`].
//! - [`Stop::Unsupported`], [`Stop::NoMemory`]: translate, at least for now.
//! - [`Stop::Died`]: the program cannot go on. It is as if it had met a machine check: deliver #GP
//!   at the last known registers, and let the guest's kernel end it.
//! - A guest's TLB flush is [`Space::unmap`] or [`Space::unmap_all`] in the space of the vCPU that
//!   flushes; both are carried out before the program runs on.
//!
//! # What it costs, and what was rejected
//!
//! (`examples/cost.rs` measures it.) A system call and back takes 7.8 us on the machine where this was
//! developed: 2.3 us for the signal, 4.4 us for two switches between processes on one core. A page fault
//! with one order takes 16.6 us, each further order 4 us, each further page of one order 0.5 us when
//! populated. Making a space takes 0.2 ms; there is always one ahead.
//!
//! - *Futexes* in the control and scratch pages: the same two switches (4.4 us; 20 to 50 us when the
//!   kernel puts the two sides on different cores, which `SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP`
//!   prevents), and neither argument 6 nor 7 would hold.
//! - *Spinning* on a word: 0.6 us instead of the 4.4, with a core for each side; see argument 7. It
//!   would be sound if every change of a mapping were carried out at once, for 10 us each.
//! - *`ptrace`*: needs a permission that containers often withhold, and several calls for each stop.
//! - *One process* with the runner's filter allowing `mmap`: the program could make that call itself,
//!   with arguments of its own.
//!
//! # What is different from a processor of the guest's own
//!
//! - CPUID shows the host's leaves where [`Helpers::cpuid_faults`] is false; RDTSCP and RDPID show the
//!   host's processor number, and LSL the host's descriptors. RDTSC reads the host's counter,
//!   or raises #GP, so that the caller emulates it ([`TimeStamp`]). SGDT and the like show
//!   what Linux on the host shows (UMIP).
//! - The guest's own descriptor tables are not there: a program with segments in the LDT or the TLS
//!   entries of the GDT, or in 32-bit code, has to be translated ([`Stop::Unsupported`]).
//! - [`RESERVED`] is taken.
//! - PKRU and AMX are not carried; the guest must not be told that they exist.
//! - A call into the vsyscall page loses RAX, which the page's functions overwrite.

mod area;
mod error;
mod filter;
mod helpers;
mod kick;
mod layout;
mod linux;
mod notify;
mod registers;
mod reply;
mod rights;
mod script;
mod space;
mod start;
mod stop;
mod stub;
mod zygote;

pub use error::Error;
pub use helpers::Helpers;
pub use kick::Kick;
pub use layout::RESERVED;
pub use registers::{EXTENDED_BYTES, Registers};
pub use rights::{Protection, TimeStamp};
pub use space::Space;
pub use stop::Stop;
