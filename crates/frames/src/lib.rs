//! The types of a paravirtual machine's frames: Xen's validation of page tables, as a library without a machine.
//!
//! A paravirtual kernel writes its own page tables, and asks the hypervisor for each change. The hypervisor accepts a
//! table as a table only after it has looked at all its entries, and from then on it looks at each new entry. This
//! crate is that check: it knows frames, counts and entries, but no processor, no thread and no hypercall's memory.
//! The processor's walker is software and reaches only the domain's own memory, so the host's safety does not depend
//! on this crate. What depends on it: the guest sees the error codes that it would see on Xen, the engine knows of
//! each change of a mapping, and a back-end that has a frame for writing knows that the frame is no page table.
//!
//! # The idea
//!
//! Each machine frame has a [`FrameRecord`]: a type, a count of uses as that type, and a count of all uses. A use
//! of a frame is one of:
//!
//! | use | reference | type |
//! | --- | --- | --- |
//! | read-only entry in an L1 | 1 | - |
//! | writable entry in an L1 | 1 | writable |
//! | entry in an L(n) | 1 | L(n-1) |
//! | linear entry in an L(n): it names another L(n) | 1 | L(n) |
//! | entry that names its own table | - | - |
//! | pin, base pointer of a processor | 1 | L1-L4 |
//! | frame of a descriptor table | 1 | descriptors |
//! | a grant in use for writing | 1 | writable |
//!
//! A frame whose type count is 0 takes whatever type is asked for next. A page table is validated when its count
//! leaves 0 (*promotion*), which uses its children, and is left when the count returns to 0 (*demotion*).
//!
//! # What rules it
//!
//! 1. *One type at a time.* While a frame's type count is not 0, the frame cannot be used as another type. So a page
//!    table is never writable, and the other way round.
//! 2. *Counts are exact.* The counts are those that [`Tables::audit`] finds when it walks from the roots: pins, base
//!    pointers, descriptor tables, and the uses that the caller has taken.
//! 3. *Mark, revoke, validate.* A promotion first sets the type, so that nobody gets a new writable mapping; then the
//!    engine revokes the old ones ([`Effects::revoke`]); only then is the content read. What was validated does not
//!    change behind the check.
//! 4. *Take the new, store, tell, put the old.* A change of an entry takes the references of the new entry first, and
//!    is refused there. Then it stores the entry and tells the engine ([`Effects::changed`]), which invalidates the
//!    old one. Only then are the old entry's references put, and may the frame it named get another type.
//! 5. *Refused is unchanged.* An operation that returns an error has changed neither counts nor memory.
//! 6. *No recursion.* Promotion and demotion work on an explicit stack of at most [`limits::MAX_STEPS`] tables: an
//!    entry leads down a level, or, in a demotion, once per level to a table of the same level (linear entries do not
//!    follow each other).
//! 7. *Work that was interrupted belongs to the domain.* When [`Effects::should_yield`] stops a promotion or demotion,
//!    the stack stays in [`State`]. The next operation of any processor finishes it first. The outcome of a promotion
//!    waits for the processor that had asked for it, which asks again.
//! 8. *Page tables have one writer.* [`Tables`] borrows [`State`] exclusively: the domain's lock. Back-ends in other
//!    processes take and put references of frames meanwhile ([`Frames`]), by compare-and-exchange alone.
//! 9. *Whatever the guest asks for, the answer is an [`Errno`].* No content of a table, and no frame number, makes
//!    this crate panic, or loop for longer than the tables are large.
//!
//! An example: frame 7 is ordinary memory, mapped writable once (type writable, count 1, references 1). The kernel maps
//! it read-only instead (type count 0, references 1), then pins it as L1: the record becomes {L1, count 1, not
//! validated}, the engine revokes what still could write, 512 entries are looked at, and the record becomes {L1,
//! count 1, validated, pinned, references 2}. An attempt to map it writable is now `EBUSY`.

#![forbid(unsafe_code)]

mod abi;
mod audit;
mod descriptor;
mod entry;
mod leaf;
pub mod limits;
mod list;
mod machine;
mod operations;
mod promotion;
mod record;
mod state;
mod uses;
mod walk;
mod words;

pub use self::abi::{Errno, Update};
pub use self::audit::{Difference, Outside};
pub use self::descriptor::check_descriptor;
pub use self::entry::{Entry, Level};
pub use self::leaf::Leaf;
pub use self::list::{Outcome, Progress};
pub use self::machine::{Change, Effects, Memory};
pub use self::record::{Absent, FrameRecord, FrameType, Frames, Refused, Shown};
pub use self::state::{State, Stop, Tables};
pub use self::walk::walk;
pub use self::words::Words;
