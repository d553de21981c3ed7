//! What instructions may do differently on two processors that are both right: leave flags undefined,
//! and tell about the machine.

use iced_x86::{
    Decoder, DecoderOptions, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, RflagsBits,
};

use crate::state::Field;

/// What a path of instructions leaves open.
#[derive(Debug, Default)]
pub struct Freedom {
    /// Bits of RFLAGS.
    pub flags: u64,
    /// General-purpose registers.
    pub registers: Vec<Field>,
}

/// Collects what a path leaves open, instruction by instruction.
pub struct Analysis {
    factory: InstructionInfoFactory,
    freedom: Freedom,
    /// Something has told about the machine: what is computed since may come from that.
    told: bool,
}

/// Flags by iced's bits.
const FLAGS: [(u32, u64); 6] = [
    (RflagsBits::CF, 1 << 0),
    (RflagsBits::PF, 1 << 2),
    (RflagsBits::AF, 1 << 4),
    (RflagsBits::ZF, 1 << 6),
    (RflagsBits::SF, 1 << 7),
    (RflagsBits::OF, 1 << 11),
];

/// Instructions whose result is the machine's business, or time's.
fn tells(instruction: &Instruction) -> bool {
    use Mnemonic as M;
    matches!(
        instruction.mnemonic(),
        M::Cpuid
            | M::Rdtsc
            | M::Rdtscp
            | M::Rdpmc
            | M::Rdmsr
            | M::Rdpid
            | M::Rdrand
            | M::Rdseed
            | M::Xgetbv
            | M::In
            | M::Insb
            | M::Insw
            | M::Insd
            | M::Smsw
            | M::Sgdt
            | M::Sidt
            | M::Sldt
            | M::Str
            | M::Fnstenv
            | M::Fnsave
    )
}

impl Analysis {
    /// Of no instruction yet.
    pub fn new() -> Analysis {
        let factory = InstructionInfoFactory::new();
        Analysis { factory, freedom: Freedom::default(), told: false }
    }

    /// The next instruction of the path.
    pub fn add(&mut self, code: &[u8], bits: u32) {
        let instruction = Decoder::new(bits, code, DecoderOptions::NONE).decode();
        if instruction.is_invalid() {
            return;
        }
        let undefined = instruction.rflags_undefined();
        for (theirs, ours) in FLAGS {
            if undefined & theirs != 0 {
                self.freedom.flags |= ours;
            }
        }
        self.told |= tells(&instruction);
        if !self.told {
            return;
        }
        self.freedom.flags |= FLAGS.iter().fold(0, |all, (_, flag)| all | flag);
        let info = self.factory.info(&instruction);
        for used in info.used_registers() {
            let writes = !matches!(used.access(), OpAccess::Read | OpAccess::CondRead);
            if writes && used.register().is_gpr() {
                let number = used.register().full_register().number();
                self.freedom.registers.push(Field::general(number));
            }
        }
    }

    /// What is open.
    pub fn freedom(self) -> Freedom {
        self.freedom
    }
}
