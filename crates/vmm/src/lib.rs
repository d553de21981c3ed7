//! One virtual machine, from one configuration: the place where the processor, the machine and its
//! devices meet.
//!
//! What it is not: a command line, a control plane, a device. It owns a thread for each processor
//! (the first one's is the caller's), one for each virtio device and a reader per serial line, and leaves
//! none of them behind.
//!
//! What rules it:
//!
//! 1. *The processor returns, the machine answers.* [`machine`](Machine) dispatches each exit; the
//!    engine never calls a device.
//! 2. *Nobody polls.* Whoever has something for a processor (a deadline, a key, another processor's
//!    message, a stop) wakes it. An idle processor may watch for a moment before it sleeps, if there
//!    is a core for it ([`idle`]).
//! 3. *A processor's exits cost no lock* but the chip set's, for those that use it. Locks are taken in
//!    the order that [`machine::platform`] gives; a collector of serial output after all of them.
//! 4. *A reset is a new boot*: memory is cleared, the kernel is loaded again.

#![forbid(unsafe_code)]

mod activity;
mod alarm;
mod clock;
mod configuration;
mod control;
mod convert;
mod device_memory;
pub mod devices;
mod helpers;
mod idle;
mod machine;
mod processor;
mod random;
mod remote;
mod run;
pub mod snapshot;
mod stolen;
mod waker;

pub use ::boot::KernelCache;
pub use ::boot::{ModuleFile, is_multiboot, split_modules, unpack_payload, unpacked_bytes};
pub use ::cpu::{Registers, Statistics, Technique, Techniques, UserExecution, Vcpu};
pub use ::cpu::{Room as RoomForKernel, room as room_for_kernel};
pub use ::cpu::{history, inspect};
pub use ::devices::virtio::balloon::Statistics as GuestMemoryStatistics;
pub use ::machine::{BareBoard, Board, Platform};
pub use activity::Activity;
pub use clock::{HostClock, TimeOfDay, TimePair};
pub use configuration::{
    Configuration, Contents, Error, MAX_PROCESSORS, Module, Notice, Outcome, Preparation, Report,
    Reporter, UnpackPayload, Unpacker,
};
pub use devices::{
    Ballooned, CableEnd, ConsolePort, Device, Devices, DirectoryRequests, Line, Network,
    SharedDirectories, SharedDirectory, Sockets, disk,
};
pub use helpers::cost_of_a_stop;
pub use machine::{Age, Machine, Questions, Stop};
pub use processor::{Kick, Processor};
pub use remote::Remote;
