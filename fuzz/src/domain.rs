//! A small domain on the hypervisor, without a processor: the input makes its calls, and writes its memory as far as
//! its page tables let a kernel do that.

use std::sync::Arc;
use std::time::Duration;

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use machine::Backplane as _;
use machine::board::{self, Board as _, BoardVcpu as _, Payload, Surroundings};
use machine::saved::CounterShift;
use machine::time::{Clock as _, Hertz, ManualClock, Nanoseconds};
use machine::xen::{FlushOf, Inaccessible, SegmentBase, TableWrite, XenCall, XenVcpu};
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};
use xen_abi::Mfn;
use xen_abi::callback::TrapInfo;
use xen_abi::vcpu::GuestContext;

const TSC: Hertz = Hertz(2_500_000_000);
const PROCESSORS: usize = 2;
const MEMORY_BYTES: u64 = 4 << 20;
const MAXIMUM_BYTES: u64 = 5 << 20;

/// Where the tiny kernel's notes say that its first page is.
const KERNEL: u64 = 0xffff_ffff_8000_0000;

/// A page of the kernel's variables: where arguments are put.
const ARGUMENTS: u64 = KERNEL + 0x18_0000;

/// Linear addresses of the hypervisor's.
const RESERVED: std::ops::Range<u64> = 0xffff_8000_0000_0000..0xffff_8800_0000_0000;

/// Calls made again, at most.
const MAX_AGAIN: usize = 64;

/// A number that a hypercall may take for something.
#[derive(Debug, Clone, Copy, Arbitrary)]
pub enum Number {
    Any(u64),
    Small(u8),
    This,
    /// The frame of a page, and bits in front of and behind the number.
    Frame(u16),
    Entry {
        page: u16,
        flags: u16,
    },
    Pointer {
        page: u16,
        slot: u16,
        command: u8,
    },
    /// In the page of arguments.
    Argument(u8),
    Kernel(u32),
    Special(u8),
}

/// What a domain does.
#[derive(Debug, Clone, Arbitrary)]
pub enum Step {
    Call {
        number: u8,
        arguments: [Number; 5],
    },
    /// Words of the page of arguments.
    Arguments {
        at: u8,
        words: Vec<Number>,
    },
    /// A word of a page of the domain's that is no page table, or of those that it shares.
    Write {
        page: u16,
        slot: u16,
        value: Number,
    },
    Shared {
        slot: u16,
        value: Number,
    },
    /// A write to what is mapped read-only.
    Table {
        page: u16,
        slot: u16,
        value: Number,
    },
    Vcpu {
        second: bool,
    },
    Kick {
        is_kicked: bool,
    },
    Pass {
        nanoseconds: u32,
    },
    GoOn {
        changes: Vec<(u16, u8)>,
    },
}

/// A vCPU as the hypervisor sees it, which executes nothing.
struct Processor {
    memory: Arc<GuestMemoryMmap>,
    root: Option<Mfn>,
    is_kicked: bool,
    again: Option<[u64; 5]>,
    debug: u64,
}

impl Processor {
    /// Where a linear address is.
    fn translate(&self, at: u64, writes: bool) -> Result<GuestAddress, Inaccessible> {
        if RESERVED.contains(&at) || at.cast_signed() << 16 >> 16 != at.cast_signed() {
            return Err(Inaccessible);
        }
        let mut table = self.root.ok_or(Inaccessible)?.address();
        for shift in [39, 30, 21, 12] {
            let entry: u64 = self
                .memory
                .read_obj(GuestAddress(table + (at >> shift & 511) * 8))
                .map_err(|_| Inaccessible)?;
            if entry & 1 == 0 || (writes && entry & 2 == 0) {
                return Err(Inaccessible);
            }
            table = entry & 0x000f_ffff_ffff_f000;
        }
        Ok(GuestAddress(table + (at & 0xfff)))
    }

    /// The pieces of a range, each in a page.
    fn pieces(at: u64, length: usize) -> impl Iterator<Item = (u64, std::ops::Range<usize>)> {
        let mut done = 0;
        std::iter::from_fn(move || {
            let now = (length - done).min(0x1000 - (at.wrapping_add(done as u64) & 0xfff) as usize);
            let piece = (at.wrapping_add(done as u64), done..done + now);
            done += now;
            (now > 0).then_some(piece)
        })
    }
}

impl XenVcpu for Processor {
    fn set_result(&mut self, _: u64) {}

    fn restart_call(&mut self, arguments: [u64; 5]) {
        self.again = Some(arguments);
    }

    fn return_from_call(&mut self) {}

    fn is_kicked(&self) -> bool {
        self.is_kicked
    }

    fn read_linear(&mut self, at: u64, bytes: &mut [u8]) -> Result<(), Inaccessible> {
        for (at, piece) in Self::pieces(at, bytes.len()) {
            let place = self.translate(at, false)?;
            self.memory.read_slice(&mut bytes[piece], place).map_err(|_| Inaccessible)?;
        }
        Ok(())
    }

    fn write_linear(&mut self, at: u64, bytes: &[u8]) -> Result<(), Inaccessible> {
        for (at, piece) in Self::pieces(at, bytes.len()) {
            let place = self.translate(at, true)?;
            self.memory.write_slice(&bytes[piece], place).map_err(|_| Inaccessible)?;
        }
        Ok(())
    }

    fn clear_traps(&mut self) {}
    fn set_trap(&mut self, _: &TrapInfo) {}
    fn set_callback(&mut self, _: u16, _: u64, _: bool) {}
    fn set_kernel_stack(&mut self, _: u16, _: u64) {}
    fn set_task_switched(&mut self, _: bool) {}
    fn set_segment_base(&mut self, _: SegmentBase, _: u64) {}
    fn load_user_gs(&mut self, _: u16) {}

    fn debug_register(&self, _: usize) -> u64 {
        self.debug
    }

    fn set_debug_register(&mut self, _: usize, value: u64) {
        self.debug = value;
    }

    fn set_io_privilege(&mut self, _: u8) {}
    fn set_open_ports(&mut self, _: u64, _: u32) {}
    fn set_assists(&mut self, _: u64) {}
    fn set_gdt(&mut self, _: &[Mfn]) {}
    fn set_ldt(&mut self, _: u64, _: u32) {}

    fn load_kernel_root(&mut self, root: Mfn) {
        self.root = Some(root);
    }

    fn load_user_root(&mut self, _: Option<Mfn>) {}
    fn flush(&mut self, _: FlushOf) {}
    fn flush_others(&mut self, _: u64, _: FlushOf) {}
    fn entry_changed(&mut self, _: (Mfn, u8), _: usize, _: u64, _: u64) {}
    fn table_demoted(&mut self, _: Mfn, _: u8) {}
    fn revoke_writable(&mut self, _: Mfn) {}
    fn set_machine_to_physical(&mut self, _: GuestAddress, _: u64) {}
    fn set_vcpu_info(&mut self, _: GuestAddress) {}
    fn refuse_write(&mut self) {}
    fn retry_write(&mut self) {}
    fn initialise(&mut self, _: &GuestContext) {}
}

/// See the top of this file.
pub struct Bench {
    board: xen::Board,
    memory: Arc<GuestMemoryMmap>,
    clock: Arc<ManualClock>,
    /// Each vCPU's root.
    roots: [Option<Mfn>; PROCESSORS],
    vcpu: usize,
    is_kicked: bool,
}

impl Bench {
    /// A domain whose kernel is loaded.
    pub fn new() -> Self {
        let mut bench = Self::empty();
        let payload =
            Payload { kernel: paravirtual::HOSTILE, command_line: "", ram_disk: Some(&[0; 24]) };
        bench.board.load(&payload).expect("it is a kernel");
        let context = bench.board.vcpu(0).take_context().expect("it starts");
        bench.roots[0] = Some(Mfn::of_address(context.control[3]));
        bench
    }

    fn empty() -> Self {
        let ranges: Vec<_> = <xen::Board as board::Board>::ram_regions(MAXIMUM_BYTES)
            .into_iter()
            .map(|(start, bytes)| (start, bytes as usize))
            .collect();
        let memory = Arc::new(GuestMemoryMmap::from_ranges(&ranges).expect("some memory"));
        let clock = Arc::new(ManualClock::new(TSC, Duration::from_secs(1_800_000_000)));
        Self::over(memory, clock)
    }

    fn over(memory: Arc<GuestMemoryMmap>, clock: Arc<ManualClock>) -> Self {
        let config = board::Config {
            processors: PROCESSORS,
            tsc: TSC,
            memory_bytes: MEMORY_BYTES,
            maximum_bytes: MAXIMUM_BYTES,
            firmware_bytes: 0,
        };
        let surroundings = Surroundings {
            clock: Arc::clone(&clock) as _,
            memory: Arc::clone(&memory) as _,
            wake: Arc::new(crate::Nobody),
        };
        let mut board = xen::Board::new(config, surroundings).expect("a sensible configuration");
        for line in 0..2 {
            board.add_line(line, Box::new(std::io::sink()));
        }
        Self { board, memory, clock, roots: [None; PROCESSORS], vcpu: 0, is_kicked: false }
    }

    /// Do what a step says.
    pub fn carry_out(&mut self, step: &Step) {
        match step {
            Step::Call { number, arguments } => {
                let arguments = arguments.map(|argument| self.value(argument));
                self.call(u64::from(*number % 64), arguments);
            }
            Step::Arguments { at, words } => {
                for (index, word) in (u64::from(*at)..512).zip(words) {
                    let value = self.value(*word);
                    let _ = self.cpu().write_linear(ARGUMENTS + 8 * index, &value.to_le_bytes());
                }
            }
            Step::Write { page, slot, value } => {
                let at = KERNEL + (u64::from(*page % 1024) << 12) + 8 * u64::from(*slot % 512);
                let _ = self.cpu().write_linear(at, &self.value(*value).to_le_bytes());
            }
            Step::Shared { slot, value } => {
                // Its information and its grants, which it may map writable.
                let maximum = MAXIMUM_BYTES.next_multiple_of(2 << 20) >> 12;
                let frame = Mfn(xen::geometry::BASE.0 + maximum + u64::from(*slot / 512) % 4);
                let address = GuestAddress(frame.address() + 8 * u64::from(slot % 512));
                self.memory.write_obj(self.value(*value), address).expect("it is there");
            }
            Step::Table { page, slot, value } => {
                let frame = Mfn(xen::geometry::BASE.0 + u64::from(*page % 1024));
                let address = GuestAddress(frame.address() + 8 * u64::from(*slot % 512));
                let old = self.memory.read_obj(address).expect("it is there");
                let new = self.value(*value);
                let mut cpu = self.cpu();
                self.board.vcpu(self.vcpu).xen_write(&mut cpu, &TableWrite { address, old, new });
            }
            Step::Vcpu { second } => self.vcpu = usize::from(*second),
            Step::Kick { is_kicked } => self.is_kicked = *is_kicked,
            Step::Pass { nanoseconds } => {
                self.clock.advance(Nanoseconds((*nanoseconds).into()));
                let now: Nanoseconds = self.clock.now();
                self.board.vcpu(self.vcpu).advance(now);
                let _ = self.board.vcpu(self.vcpu).take_unhalt();
            }
            Step::GoOn { changes } => self.go_on(changes),
        }
        self.board.requests().take();
    }

    fn cpu(&self) -> Processor {
        let (memory, root) = (Arc::clone(&self.memory), self.roots[self.vcpu]);
        Processor { memory, root, is_kicked: self.is_kicked, again: None, debug: 0 }
    }

    fn value(&self, number: Number) -> u64 {
        let frame = |page: u16| xen::geometry::BASE.0 + u64::from(page % 1536);
        match number {
            Number::Any(value) => value,
            Number::Small(value) => u64::from(value),
            Number::This => 0x7ff0,
            Number::Frame(page) => frame(page),
            Number::Entry { page, flags } => frame(page) << 12 | u64::from(flags & 0xfff) | 1,
            Number::Pointer { page, slot, command } => {
                frame(page) << 12 | u64::from(slot % 512) << 3 | u64::from(command & 3)
            }
            Number::Argument(at) => ARGUMENTS + 8 * u64::from(at),
            Number::Kernel(offset) => KERNEL + u64::from(offset) % MEMORY_BYTES,
            Number::Special(bit) => 1_u64.rotate_left(bit.into()).wrapping_neg(),
        }
    }

    /// Make a call, again as often as it is to be.
    fn call(&mut self, number: u64, arguments: [u64; 5]) {
        let mut call = XenCall { number, arguments };
        let mut cpu = self.cpu();
        for _ in 0..MAX_AGAIN {
            self.board.vcpu(self.vcpu).xen_call(&mut cpu, &call);
            self.roots[self.vcpu] = cpu.root;
            match cpu.again.take() {
                Some(again) => call.arguments = again,
                None => return,
            }
        }
        // What is long is made in pieces, between which others have their turn: the rest is left out.
    }

    /// What is saved, with bytes that are changed, is refused, or is what a domain can be.
    fn go_on(&mut self, changes: &[(u16, u8)]) {
        let Some((shared, own)) = crate::changed(&self.board, PROCESSORS, changes) else { return };
        let other = Self::over(Arc::clone(&self.memory), Arc::clone(&self.clock));
        let shift = CounterShift::new(1, 0, true);
        match other.board.restore(&shared, &own, shift) {
            // Where the roots are is what the processors' own states say, and these were not changed.
            Ok(()) => {
                let roots = if changes.is_empty() { self.roots } else { [None; PROCESSORS] };
                *self = Self { roots, vcpu: self.vcpu, is_kicked: self.is_kicked, ..other };
            }
            Err(_) => assert!(!changes.is_empty(), "what was saved is taken"),
        }
    }

    /// All uses of frames are counted as they are.
    pub fn check(&self) {
        let toolstack = self.board.toolstack().expect("it is a domain");
        let differences = toolstack.audit();
        assert!(differences.is_empty(), "{differences:#?}");
    }
}

impl Default for Bench {
    fn default() -> Self {
        Self::new()
    }
}

/// Start a domain from what is to be its kernel, if that is one.
pub fn load(kernel: &[u8]) {
    let bench = Bench::empty();
    let payload = Payload { kernel, command_line: "word", ram_disk: Some(&[1; 5000]) };
    match bench.board.load(&payload) {
        Ok(()) => bench.check(),
        Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
    }
}

/// Where the headers and the notes of an ELF file are, byte by byte.
pub fn places_of_heads(kernel: &[u8]) -> Vec<usize> {
    const HEADERS: usize = 64 + 4 * 56;
    let notes = kernel.windows(4).enumerate().filter(|(_, bytes)| *bytes == b"Xen\0");
    let notes = notes.flat_map(|(at, _)| at.saturating_sub(12)..at + 16);
    (0..HEADERS).chain(notes).filter(|at| *at < kernel.len()).collect()
}
