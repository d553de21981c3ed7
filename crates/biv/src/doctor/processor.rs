//! The processor: what translated code is made of, what guests can be given, and what hardware
//! virtualization there is.

use std::is_x86_feature_detected as detected;
use std::os::unix::fs::FileTypeExt;

use super::Finding;

const TOPIC: &str = "processor";

/// AT_HWCAP2, bit 1: the kernel lets user mode execute `wrfsbase` and its kin (Linux,
/// arch/x86/include/uapi/asm/hwcap2.h).
const HWCAP2_FSGSBASE: usize = 1 << 1;

pub fn examine() -> Vec<Finding> {
    let information = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = field(&information, "flags").unwrap_or_default();
    let model = field(&information, "model name").unwrap_or("unknown");
    let mut findings = vec![Finding::good(TOPIC, "model", model)];
    let (_, hwcap2) = rustix::param::linux_hwcap();
    findings.extend([
        needed("BMI2", detected!("bmi2"), "translated code uses it; Haswell, Excavator or newer"),
        needed("AVX", detected!("avx"), "guests are given it; Sandy Bridge, Bulldozer or newer"),
        needed("XSAVEOPT", detected!("xsaveopt"), "guest state is saved with it"),
        needed(
            "FSGSBASE in user mode",
            hwcap2 & HWCAP2_FSGSBASE != 0,
            "translated code keeps its state there; Linux 5.9 or newer",
        ),
    ]);
    findings.push(extensions());
    findings.push(virtualization(flags));
    findings.push(kvm_node(flags));
    findings
}

fn needed(name: &str, present: bool, why: &str) -> Finding {
    if present {
        Finding::good(TOPIC, name, "yes, used")
    } else {
        Finding::missing(TOPIC, name, "no").because(&format!("needed: {why}"))
    }
}

/// What a guest sees beyond the baseline.
fn extensions() -> Finding {
    let present: Vec<&str> = [
        ("SSE4.2", detected!("sse4.2")),
        ("AVX2", detected!("avx2")),
        ("FMA", detected!("fma")),
        ("AVX-512", detected!("avx512f")),
        ("AES", detected!("aes")),
        ("SHA", detected!("sha")),
        ("VAES", detected!("vaes")),
        ("ADX", detected!("adx")),
        ("RDRAND", detected!("rdrand")),
    ]
    .into_iter()
    .filter_map(|(name, present)| present.then_some(name))
    .collect();
    let found = if present.is_empty() { "none".to_owned() } else { present.join(" ") };
    Finding::good(TOPIC, "for guests", found)
}

/// The first value of a field of `/proc/cpuinfo`.
fn field<'a>(information: &'a str, name: &str) -> Option<&'a str> {
    information.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })
}

fn has(flags: &str, flag: &str) -> bool {
    flags.split_ascii_whitespace().any(|word| word == flag)
}

fn hardware(flags: &str) -> Option<&'static str> {
    if has(flags, "vmx") {
        Some("VT-x (vmx)")
    } else if has(flags, "svm") {
        Some("AMD-V (svm)")
    } else {
        None
    }
}

fn virtualization(flags: &str) -> Finding {
    let inside = if has(flags, "hypervisor") { ", this host is itself a guest" } else { "" };
    match hardware(flags) {
        Some(name) => Finding::note(TOPIC, "virtualization", format!("{name}{inside}")).because(
            "not used by this version; where hardware KVM is at hand, a monitor that uses it is \
             faster",
        ),
        None => Finding::good(TOPIC, "virtualization", format!("none{inside}"))
            .because("not needed: guests are translated"),
    }
}

/// What stands at `/dev/kvm`, by its directory entry alone.
fn kvm_node(flags: &str) -> Finding {
    let node = std::fs::symlink_metadata("/dev/kvm");
    let is_device = node.is_ok_and(|node| node.file_type().is_char_device());
    let (found, meaning) = describe_kvm(is_device, hardware(flags).is_some());
    Finding::note(TOPIC, "/dev/kvm", found).because(meaning)
}

fn describe_kvm(is_device: bool, has_hardware: bool) -> (&'static str, &'static str) {
    match (is_device, has_hardware) {
        (false, _) => ("not there", "not needed"),
        (true, true) => {
            ("there, with hardware behind it by the CPU's flags", "this version never opens it")
        }
        (true, false) => (
            "there, without hardware behind it by the CPU's flags",
            "the node alone proves nothing; this version never opens it",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFORMATION: &str = "processor\t: 0\nmodel name\t: Some CPU: 3 GHz\nflags\t\t: fpu vmx \
        hypervisor\n\nprocessor\t: 1\nflags\t\t: fpu\n";

    #[test]
    fn fields_of_cpuinfo() {
        assert_eq!(field(INFORMATION, "model name"), Some("Some CPU: 3 GHz"));
        assert_eq!(field(INFORMATION, "flags"), Some("fpu vmx hypervisor"));
        assert_eq!(field(INFORMATION, "bugs"), None);
    }

    #[test]
    fn hardware_is_judged_by_whole_flags() {
        assert_eq!(hardware("fpu vmx"), Some("VT-x (vmx)"));
        assert_eq!(hardware("svm"), Some("AMD-V (svm)"));
        assert_eq!(hardware("fpu vmx_unrestricted svm_lock"), None);
        assert!(virtualization("fpu hypervisor").found.contains("itself a guest"));
    }

    #[test]
    fn a_node_without_hardware_is_told_apart() {
        assert!(describe_kvm(true, false).0.contains("without hardware"));
        assert!(describe_kvm(true, true).0.contains("with hardware"));
        assert_eq!(describe_kvm(false, true).0, "not there");
    }
}
