//! One virtual machine, from one configuration: the place where the processor, the board and its devices meet.
//!
//! The crate is no command line, no control plane and no device. A machine owns a thread for each vCPU (the caller's
//! thread runs the first), a thread for each virtio device and a reader for each serial port. It joins all of them
//! before it is gone.
//!
//! The rules:
//!
//! 1. *The vCPU returns, the machine answers.* [`machine`](Machine) dispatches each exit; the engine never calls a
//!    device.
//! 2. *No thread polls.* A thread that has something for a vCPU (a deadline, a key, an interrupt from another vCPU, a
//!    stop) wakes it. An idle vCPU may poll for a moment before it sleeps, if a core is free for it ([`idle`]).
//! 3. *An exit takes no lock* but the chip set's, if it needs the chip set. [`machine::platform`] has the lock order;
//!    the lock of a [`devices::collector`] comes last.
//! 4. *A reset is a new boot*: the machine clears memory and loads the kernel again.

#![forbid(unsafe_code)]

mod activity;
mod alarm;
mod clock;
mod configuration;
mod control;
mod convert;
mod debugger;
mod device_memory;
pub mod devices;
mod firmware;
mod helpers;
mod hold;
mod idle;
mod limits;
mod machine;
mod outcome;
mod processor;
mod random;
mod remote;
mod run;
pub mod snapshot;
mod stolen;
mod time_of_day;
mod waker;
mod xen_vcpu;

pub use ::boot::{Error as BootError, KernelCache, protocol as kernel_protocol};
pub use ::boot::{ModuleFile, is_multiboot, split_modules, unpack_payload, unpacked_bytes};
pub use ::cpu::state::{SegmentRegister, rflags};
pub use ::cpu::{Registers, Statistics, Technique, Techniques, UserExecution, Vcpu};
pub use ::cpu::{Room as RoomForKernel, room as room_for_kernel};
pub use ::cpu::{Stopped, Stops, Unmapped, WatchKind, Watchpoint};
pub use ::cpu::{XSAVE_BYTES, history, inspect};
pub use ::devices::virtio::balloon::Statistics as GuestMemoryStatistics;
pub use ::machine::toolstack::{DomainMemory, Refused, Toolstack};
pub use ::machine::{BareBoard, Board, Platform};
pub use ::xen::Board as XenBoard;
pub use activity::Activity;
pub use clock::HostClock;
pub use configuration::{
    Configuration, Contents, Module, Notice, OnHelpers, Preparation, Report, Reporter,
    UnpackPayload, Unpacker,
};
pub use debugger::{Debugger, Gone};
pub use devices::{
    Ballooned, ConsolePort, Device, Devices, DirectoryRequests, Netdev, Network, SerialBackend,
    SharedDirectories, SharedDirectory, Sockets, disk,
};
pub use firmware::{Error as FirmwareError, check_variables};
pub use helpers::cost_of_a_stop;
pub use limits::{MAX_FIRMWARE_BYTES, MAX_PROCESSORS};
pub use machine::{Age, Machine, Questions, Stop};
pub use outcome::{Error, Outcome};
pub use processor::{Kick, Processor};
pub use remote::Remote;
pub use time_of_day::{TimeOfDay, TimePair};
