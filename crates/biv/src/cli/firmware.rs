//! The options for a machine that starts firmware.

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, ValueHint};
use spec::Firmware;

/// Whether a machine starts firmware, and which.
#[derive(Debug, Clone, Default, Args)]
pub struct FirmwareOptions {
    /// Start the firmware in FILE, an image for QEMU's PC such as OVMF.fd (Debian's package ovmf). It boots the first
    /// disk that has a boot loader for it, in the order of --disk: for UEFI \EFI\BOOT\BOOTX64.EFI of an EFI system
    /// partition or of an installer's image. vars=FILE has the variables of an image without (OVMF_VARS.fd for
    /// OVMF_CODE.fd). What it sets is lost with the machine, or written to that file (keep). Nothing of Bivouac's runs
    /// in the guest; its console is on standard input and output
    #[arg(long, value_name = "FILE[,vars=FILE[,keep]]", visible_alias = "bios",
        value_hint = ValueHint::FilePath,
        conflicts_with_all = ["kernel", "initrd", "modules", "init", "append", "root", "root_disk",
            "boot_disk", "image", "busybox", "here", "volume", "cache", "xen", "refresh", "command",
            "kernel_dir"],
        value_parser = OsStringValueParser::new().try_map(Firmware::parse))]
    pub firmware: Option<Firmware>,
}
