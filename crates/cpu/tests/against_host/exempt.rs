//! Forms that are not compared, each with its reason.

use iced_x86::{Code, EncodingKind, Instruction, Mnemonic};

/// Why `code` is not tried in `bits`-bit mode; `None` when it is.
pub fn form(code: Code, bits: u32) -> Option<&'static str> {
    let form = code.op_code();
    if !form.is_instruction() || matches!(code, Code::INVALID) {
        return Some("not an instruction");
    }
    if matches!(form.encoding(), EncodingKind::MVEX) || form.decoder_option() & KNC != 0 {
        return Some("exists on Knights Corner only");
    }
    if bits == 64 && !form.mode64() {
        return Some("not in 64-bit mode");
    }
    if bits == 32 && !form.mode32() {
        return Some("not in 32-bit mode");
    }
    if form.decoder_option() != 0 {
        return Some("obsolete or alternative: today's processors decode the bytes differently");
    }
    mnemonic(code.mnemonic())
}

const KNC: u32 = iced_x86::DecoderOptions::KNC;

fn mnemonic(mnemonic: Mnemonic) -> Option<&'static str> {
    Some(match mnemonic {
        Mnemonic::Syscall | Mnemonic::Sysenter => "enters the host's kernel",
        Mnemonic::Cpuid => "the guest's answers are not the host's, by design",
        Mnemonic::Rdtsc | Mnemonic::Rdtscp | Mnemonic::Rdpru => "time differs",
        Mnemonic::Rdrand | Mnemonic::Rdseed => "random",
        Mnemonic::Rdpid => "the host's processor number is not the guest's",
        Mnemonic::Sgdt | Mnemonic::Sidt | Mnemonic::Sldt | Mnemonic::Smsw | Mnemonic::Str => {
            "Linux emulates it for processes with UMIP"
        }
        Mnemonic::Vmcall | Mnemonic::Vmmcall | Mnemonic::Vmgexit | Mnemonic::Vmfunc => {
            "calls the host's hypervisor"
        }
        Mnemonic::Monitorx | Mnemonic::Mwaitx => "waits",
        Mnemonic::Rdpmc => "depends on the host's performance counters",
        _ => return None,
    })
}

/// Why this one encoding is not run.
pub fn encoding(instruction: &Instruction) -> Option<&'static str> {
    let system_call = instruction.mnemonic() == Mnemonic::Int && instruction.immediate8() == 0x80;
    if system_call { Some("enters the host's kernel") } else { mnemonic(instruction.mnemonic()) }
}
