//! The registers that gdb is shown, in gdb's order, which is that of [`GROUPS`]: the description, the packets with all
//! registers and the numbers of single ones all come from that table.

use gdbstub::arch::{Arch, RegId, Registers};
use std::num::NonZeroUsize;

/// Bytes of the standard format of XSAVE that are looked at (SDM 1 13.4): x87 and SSE, the header, and AVX.
pub const EXTENDED_BYTES: usize = 576 + 256;

/// Where things are in that.
mod offset {
    pub(super) const FCW: usize = 0;
    pub(super) const FSW: usize = 2;
    pub(super) const FTW: usize = 4;
    pub(super) const FOP: usize = 6;
    pub(super) const FIP: usize = 8;
    pub(super) const FDP: usize = 16;
    pub(super) const MXCSR: usize = 24;
    pub(super) const ST: usize = 32;
    pub(super) const XMM: usize = 160;
    pub(super) const COMPONENTS: usize = 512;
    pub(super) const YMM: usize = 576;
}

/// The components that are looked at (SDM 1 13.1), as bits of XSTATE_BV.
const LEGACY: u64 = 1;
const SSE: u64 = 2;
const AVX: u64 = 4;

/// The registers of one processor, as the hardware has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegisterFile {
    /// RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8..R15: the order of encoding.
    pub general: [u64; 16],
    /// The next instruction.
    pub rip: u64,
    /// RFLAGS.
    pub rflags: u64,
    /// The selectors of ES, CS, SS, DS, FS, GS.
    pub selectors: [u16; 6],
    /// The bases of FS and GS, and what SWAPGS swaps that of GS with.
    pub bases: [u64; 3],
    /// CR0, CR2, CR3, CR4, and IA32_EFER.
    pub control: [u64; 5],
    /// The start of the standard format of XSAVE.
    pub extended: [u8; EXTENDED_BYTES],
}

impl Default for RegisterFile {
    fn default() -> Self {
        Self {
            general: [0; 16],
            rip: 0,
            rflags: 2,
            selectors: [0; 6],
            bases: [0; 3],
            control: [0; 5],
            extended: [0; EXTENDED_BYTES],
        }
    }
}

/// One register of gdb's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Register {
    /// By the number of its encoding.
    General(u8),
    /// The program counter.
    Rip,
    /// The lower half of RFLAGS.
    Flags,
    /// By its place in [`RegisterFile::selectors`].
    Selector(u8),
    /// ST0 to ST7.
    Stack(u8),
    /// FCW, FSW, FTW, FCS, FIP, FDS, FDP and FOP, as gdb counts them.
    X87(u8),
    /// XMM0 to XMM15.
    Xmm(u8),
    /// MXCSR.
    Mxcsr,
    /// The upper halves of YMM0 to YMM15.
    YmmHigh(u8),
    /// By its place in [`RegisterFile::bases`].
    Base(u8),
    /// By its place in [`RegisterFile::control`].
    Control(u8),
}

/// Registers that belong together.
pub(crate) struct Group {
    /// gdb's name for them, or one of ours.
    pub(crate) feature: &'static str,
    /// Each with its name and its type.
    pub(crate) registers: &'static [(&'static str, &'static str, Register)],
}

use Register::{Base, Control, Flags, General, Mxcsr, Rip, Selector, Stack, X87, Xmm, YmmHigh};

/// All of them.
pub(crate) const GROUPS: [Group; 5] = [
    Group { feature: "org.gnu.gdb.i386.core", registers: CORE },
    Group { feature: "org.gnu.gdb.i386.sse", registers: SSE_REGISTERS },
    Group { feature: "org.gnu.gdb.i386.avx", registers: AVX_REGISTERS },
    Group { feature: "org.gnu.gdb.i386.segments", registers: SEGMENTS },
    Group { feature: "org.bivouac.system", registers: SYSTEM },
];

const CORE: &[(&str, &str, Register)] = &[
    ("rax", "int64", General(0)),
    ("rbx", "int64", General(3)),
    ("rcx", "int64", General(1)),
    ("rdx", "int64", General(2)),
    ("rsi", "int64", General(6)),
    ("rdi", "int64", General(7)),
    ("rbp", "data_ptr", General(5)),
    ("rsp", "data_ptr", General(4)),
    ("r8", "int64", General(8)),
    ("r9", "int64", General(9)),
    ("r10", "int64", General(10)),
    ("r11", "int64", General(11)),
    ("r12", "int64", General(12)),
    ("r13", "int64", General(13)),
    ("r14", "int64", General(14)),
    ("r15", "int64", General(15)),
    ("rip", "code_ptr", Rip),
    ("eflags", "i386_eflags", Flags),
    ("cs", "int32", Selector(1)),
    ("ss", "int32", Selector(2)),
    ("ds", "int32", Selector(3)),
    ("es", "int32", Selector(0)),
    ("fs", "int32", Selector(4)),
    ("gs", "int32", Selector(5)),
    ("st0", "i387_ext", Stack(0)),
    ("st1", "i387_ext", Stack(1)),
    ("st2", "i387_ext", Stack(2)),
    ("st3", "i387_ext", Stack(3)),
    ("st4", "i387_ext", Stack(4)),
    ("st5", "i387_ext", Stack(5)),
    ("st6", "i387_ext", Stack(6)),
    ("st7", "i387_ext", Stack(7)),
    ("fctrl", "int", X87(0)),
    ("fstat", "int", X87(1)),
    ("ftag", "int", X87(2)),
    ("fiseg", "int", X87(3)),
    ("fioff", "int", X87(4)),
    ("foseg", "int", X87(5)),
    ("fooff", "int", X87(6)),
    ("fop", "int", X87(7)),
];

const SSE_REGISTERS: &[(&str, &str, Register)] = &[
    ("xmm0", "vec128", Xmm(0)),
    ("xmm1", "vec128", Xmm(1)),
    ("xmm2", "vec128", Xmm(2)),
    ("xmm3", "vec128", Xmm(3)),
    ("xmm4", "vec128", Xmm(4)),
    ("xmm5", "vec128", Xmm(5)),
    ("xmm6", "vec128", Xmm(6)),
    ("xmm7", "vec128", Xmm(7)),
    ("xmm8", "vec128", Xmm(8)),
    ("xmm9", "vec128", Xmm(9)),
    ("xmm10", "vec128", Xmm(10)),
    ("xmm11", "vec128", Xmm(11)),
    ("xmm12", "vec128", Xmm(12)),
    ("xmm13", "vec128", Xmm(13)),
    ("xmm14", "vec128", Xmm(14)),
    ("xmm15", "vec128", Xmm(15)),
    ("mxcsr", "i386_mxcsr", Mxcsr),
];

const AVX_REGISTERS: &[(&str, &str, Register)] = &[
    ("ymm0h", "uint128", YmmHigh(0)),
    ("ymm1h", "uint128", YmmHigh(1)),
    ("ymm2h", "uint128", YmmHigh(2)),
    ("ymm3h", "uint128", YmmHigh(3)),
    ("ymm4h", "uint128", YmmHigh(4)),
    ("ymm5h", "uint128", YmmHigh(5)),
    ("ymm6h", "uint128", YmmHigh(6)),
    ("ymm7h", "uint128", YmmHigh(7)),
    ("ymm8h", "uint128", YmmHigh(8)),
    ("ymm9h", "uint128", YmmHigh(9)),
    ("ymm10h", "uint128", YmmHigh(10)),
    ("ymm11h", "uint128", YmmHigh(11)),
    ("ymm12h", "uint128", YmmHigh(12)),
    ("ymm13h", "uint128", YmmHigh(13)),
    ("ymm14h", "uint128", YmmHigh(14)),
    ("ymm15h", "uint128", YmmHigh(15)),
];

const SEGMENTS: &[(&str, &str, Register)] =
    &[("fs_base", "int", Base(0)), ("gs_base", "int", Base(1))];

const SYSTEM: &[(&str, &str, Register)] = &[
    ("k_gs_base", "int64", Base(2)),
    ("cr0", "int64", Control(0)),
    ("cr2", "int64", Control(1)),
    ("cr3", "int64", Control(2)),
    ("cr4", "int64", Control(3)),
    ("efer", "int64", Control(4)),
];

impl Register {
    /// All, in gdb's order.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        GROUPS.iter().flat_map(|group| group.registers).map(|&(_, _, register)| register)
    }

    /// How many bytes gdb is told.
    pub(crate) fn size(self) -> usize {
        match self {
            General(_) | Rip | Base(_) | Control(_) => 8,
            Flags | Selector(_) | X87(_) | Mxcsr => 4,
            Stack(_) => 10,
            Xmm(_) | YmmHigh(_) => 16,
        }
    }

    /// Whether it can be set. What a selector and a control register mean is more than their number.
    pub(crate) fn can_be_set(self) -> bool {
        !matches!(self, Selector(_) | Control(_) | X87(2..))
    }

    /// Where it is in the image of XSAVE, if it is there as gdb has it, and of which component it is.
    fn place(self) -> Option<(usize, u64)> {
        Some(match self {
            Stack(number) => (offset::ST + 16 * usize::from(number), LEGACY),
            Xmm(number) => (offset::XMM + 16 * usize::from(number), SSE),
            Mxcsr => (offset::MXCSR, SSE),
            YmmHigh(number) => (offset::YMM + 16 * usize::from(number), AVX),
            _ => return None,
        })
    }
}

impl RegisterFile {
    /// A register's value, little-endian, of [`Register::size`] bytes.
    pub(crate) fn value(&self, register: Register) -> Vec<u8> {
        let at = |numbers: &[u64], place: u8| {
            numbers.get(usize::from(place)).map_or_else(Vec::new, |it| it.to_le_bytes().to_vec())
        };
        match register {
            General(number) => at(&self.general, number),
            Rip => self.rip.to_le_bytes().to_vec(),
            Flags => (self.rflags as u32).to_le_bytes().to_vec(),
            Selector(number) => {
                u32::from(self.selectors[usize::from(number)]).to_le_bytes().to_vec()
            }
            Base(number) => at(&self.bases, number),
            Control(number) => at(&self.control, number),
            X87(number) => self.x87(number).to_le_bytes().to_vec(),
            Stack(_) | Xmm(_) | Mxcsr | YmmHigh(_) => self.in_image(register),
        }
    }

    fn in_image(&self, register: Register) -> Vec<u8> {
        let Some((place, component)) = register.place() else { return Vec::new() };
        // MXCSR is there in any case (SDM 1 13.5.2).
        if self.components() & component == 0 && register != Mxcsr {
            return vec![0; register.size()];
        }
        self.extended[place..place + register.size()].to_vec()
    }

    fn components(&self) -> u64 {
        self.number(offset::COMPONENTS, 8)
    }

    fn number(&self, place: usize, size: usize) -> u64 {
        self.extended[place..place + size]
            .iter()
            .rev()
            .fold(0, |value, &byte| value << 8 | u64::from(byte))
    }

    /// A control register of the x87 unit, by gdb's number.
    fn x87(&self, number: u8) -> u32 {
        if self.components() & LEGACY == 0 {
            /// As FNINIT leaves them (SDM 2A "FINIT").
            const INITIAL: [u32; 3] = [0x37f, 0, 0xffff];
            return INITIAL.get(usize::from(number)).copied().unwrap_or(0);
        }
        let pointer = |place, is_high: bool| {
            let value = self.number(place, 8);
            if is_high { (value >> 32) as u32 } else { value as u32 }
        };
        match number {
            0 => self.number(offset::FCW, 2) as u32,
            1 => self.number(offset::FSW, 2) as u32,
            2 => self.tags(),
            3 => pointer(offset::FIP, true),
            4 => pointer(offset::FIP, false),
            5 => pointer(offset::FDP, true),
            6 => pointer(offset::FDP, false),
            _ => self.number(offset::FOP, 2) as u32 & 0x7ff,
        }
    }

    /// The tag word: two bits for each physical register, of which FXSAVE keeps whether it is empty (SDM 1 10.5.1.1).
    fn tags(&self) -> u32 {
        const EMPTY: u32 = 3;
        let (kept, top) = (self.number(offset::FTW, 1), self.number(offset::FSW, 2) >> 11 & 7);
        (0..8u64).fold(0, |tags, physical| {
            let place = offset::ST + 16 * ((physical + 8 - top) % 8) as usize;
            let (mantissa, exponent) = (self.number(place, 8), self.number(place + 8, 2) & 0x7fff);
            let tag = match exponent {
                _ if kept & 1 << physical == 0 => EMPTY,
                0 if mantissa == 0 => 1,
                0 | 0x7fff => 2,
                _ if mantissa >> 63 == 0 => 2,
                _ => 0,
            };
            tags | tag << (2 * physical)
        })
    }

    /// Set a register that [can be set](Register::can_be_set) to a value of its size; whether that was possible.
    pub(crate) fn set(&mut self, register: Register, value: &[u8]) -> bool {
        if value.len() != register.size() || !register.can_be_set() {
            return false;
        }
        let low = value.iter().take(8).rev().fold(0, |low, &byte| low << 8 | u64::from(byte));
        match register {
            General(number) => self.general[usize::from(number)] = low,
            Rip => self.rip = low,
            Flags => self.rflags = self.rflags & !0xffff_ffff | low,
            Base(number) => self.bases[usize::from(number)] = low,
            X87(number) => self.set_x87(number, low as u16),
            Stack(_) | Xmm(_) | Mxcsr | YmmHigh(_) => self.set_in_image(register, value),
            Selector(_) | Control(_) => return false,
        }
        true
    }

    fn set_x87(&mut self, number: u8, value: u16) {
        self.wake(LEGACY);
        let place = if number == 0 { offset::FCW } else { offset::FSW };
        self.extended[place..place + 2].copy_from_slice(&value.to_le_bytes());
    }

    fn set_in_image(&mut self, register: Register, value: &[u8]) {
        let Some((place, component)) = register.place() else { return };
        self.wake(component);
        self.extended[place..place + value.len()].copy_from_slice(value);
    }

    /// A component is about to be in another state than its initial one: what was there until now is that.
    fn wake(&mut self, component: u64) {
        let components = self.components();
        if components & component != 0 {
            return;
        }
        let range = match component {
            LEGACY => offset::ST..offset::XMM,
            SSE => offset::XMM..offset::XMM + 256,
            _ => offset::YMM..EXTENDED_BYTES,
        };
        self.extended[range].fill(0);
        if component == LEGACY {
            self.extended[..offset::MXCSR].fill(0);
            self.extended[offset::FCW..offset::FCW + 2].copy_from_slice(&0x37f_u16.to_le_bytes());
        }
        let components = (components | component).to_le_bytes();
        self.extended[offset::COMPONENTS..offset::COMPONENTS + 8].copy_from_slice(&components);
    }
}

impl Registers for RegisterFile {
    type ProgramCounter = u64;

    fn pc(&self) -> u64 {
        self.rip
    }

    fn gdb_serialize(&self, mut write_byte: impl FnMut(Option<u8>)) {
        let values = Register::all().flat_map(|register| self.value(register));
        values.for_each(|byte| write_byte(Some(byte)));
    }

    fn gdb_deserialize(&mut self, bytes: &[u8]) -> Result<(), ()> {
        let mut rest = bytes;
        for register in Register::all() {
            let (value, after) = rest.split_at_checked(register.size()).ok_or(())?;
            rest = after;
            // What cannot be set stays.
            let _ = self.set(register, value);
        }
        if rest.is_empty() { Ok(()) } else { Err(()) }
    }
}

/// The number of a register.
impl RegId for Register {
    fn from_raw_id(id: usize) -> Option<(Self, Option<NonZeroUsize>)> {
        let register = Self::all().nth(id)?;
        Some((register, NonZeroUsize::new(register.size())))
    }

    fn to_raw_id(&self) -> Option<usize> {
        Self::all().position(|register| register == *self)
    }
}

/// The processor, for gdbstub.
#[derive(Debug)]
pub enum X86 {}

impl Arch for X86 {
    type Usize = u64;
    type Registers = RegisterFile;
    type BreakpointKind = usize;
    type RegId = Register;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(file: &RegisterFile) -> Vec<u8> {
        let mut bytes = Vec::new();
        file.gdb_serialize(|byte| bytes.extend(byte));
        bytes
    }

    #[test]
    fn each_register_has_its_size_and_its_number() {
        let file = RegisterFile::default();
        let mut length = 0;
        for (number, register) in Register::all().enumerate() {
            assert_eq!(file.value(register).len(), register.size(), "{register:?}");
            assert_eq!(register.to_raw_id(), Some(number), "{register:?}");
            assert_eq!(Register::from_raw_id(number).map(|found| found.0), Some(register));
            length += register.size();
        }
        assert_eq!(all(&file).len(), length);
        assert!(Register::from_raw_id(Register::all().count()).is_none());
    }

    #[test]
    fn what_is_set_is_read() {
        let mut file = RegisterFile::default();
        for (number, register) in Register::all().enumerate() {
            let value: Vec<u8> = (0..register.size()).map(|byte| (number + byte) as u8).collect();
            let is_set = file.set(register, &value);
            assert_eq!(is_set, register.can_be_set(), "{register:?}");
            let expected = match register {
                X87(_) if is_set => vec![value[0], value[1], 0, 0],
                _ => value,
            };
            assert!(!is_set || file.value(register) == expected, "{register:?}");
            assert!(!file.set(register, &[0; 3]), "{register:?}");
        }
        let mut other = RegisterFile::default();
        assert_eq!(other.gdb_deserialize(&all(&file)), Ok(()));
        assert_eq!(other.general, file.general);
        assert_eq!(other.value(Xmm(7)), file.value(Xmm(7)));
        assert_eq!(other.gdb_deserialize(&[0; 100]), Err(()));
    }

    #[test]
    fn tags_follow_what_the_registers_hold() {
        let mut file = RegisterFile::default();
        assert_eq!(file.x87(2), 0xffff);
        assert!(file.set(Stack(0), &[0, 0, 0, 0, 0, 0, 0, 0x80, 0xff, 0x3f]));
        // One register is in use, the last: TOP is 7.
        file.extended[offset::FTW] = 0x80;
        file.extended[offset::FSW + 1] = 7 << 3;
        assert_eq!(file.x87(2), 0x3fff, "1.0 is valid");
        assert!(file.set(Stack(0), &[0; 10]));
        assert_eq!(file.x87(2), 0x7fff, "zero");
        assert!(file.set(Stack(0), &[0, 0, 0, 0, 0, 0, 0, 0x80, 0xff, 0x7f]));
        assert_eq!(file.x87(2), 0xbfff, "infinity is special");
    }
}
