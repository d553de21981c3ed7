//! Kinds of file systems, and which of them a guest may see.
//!
//! A list has the kinds that hold files. A kind that is a window into the host's kernel is never
//! shown (`/proc` has the environment of every process of the user, `/sys` controls devices). An
//! unknown kind is shown only if the user allows it for a share: it may be such a window in a
//! kernel that is newer than the list.

use std::os::fd::AsFd;

use rustix::fs::fstatfs;
use rustix::io::Errno;

/// What is known of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It holds files.
    Ordinary,
    /// It shows or controls the host's kernel; its name.
    OfTheKernel(&'static str),
    /// Its number (`f_type` of statfs(2)) is on no list.
    Unknown(u32),
}

impl Kind {
    /// That of the file system in which a file is.
    ///
    /// # Errors
    ///
    /// The host's.
    pub fn of(file: impl AsFd) -> Result<Self, Errno> {
        // The numbers have 32 bits, and some architectures extend their sign.
        Ok(Self::of_number(fstatfs(file)?.f_type as u32))
    }

    fn of_number(number: u32) -> Self {
        if ORDINARY.contains(&number) {
            return Self::Ordinary;
        }
        match OF_THE_KERNEL.iter().find(|(of_kernel, _)| *of_kernel == number) {
            Some((_, name)) => Self::OfTheKernel(name),
            None => Self::Unknown(number),
        }
    }

    /// Whether a share may show it, where the user has allowed unknown kinds or not.
    #[must_use]
    pub fn may_be_shown(self, allows_unknown: bool) -> bool {
        match self {
            Self::Ordinary => true,
            Self::OfTheKernel(_) => false,
            Self::Unknown(_) => allows_unknown,
        }
    }
}

/// Numbers of file systems that hold files (linux/magic.h, and the sources of each).
const ORDINARY: [u32; 47] = [
    0x0000_ef53, // ext2, ext3, ext4
    0x5846_5342, // XFS
    0x9123_683e, // Btrfs
    0xf2f5_2010, // F2FS
    0x2fc1_2fc1, // ZFS
    0xca45_1a4e, // bcachefs
    0x3153_464a, // JFS
    0x5265_4973, // ReiserFS
    0x0000_3434, // NILFS2
    0x0116_1970, // GFS2
    0x7461_636f, // OCFS2
    0x0000_f15f, // eCryptfs
    0x0102_1994, // tmpfs
    0x8584_58f6, // ramfs
    0x794c_7630, // overlay
    0x6175_6673, // aufs
    0x7371_7368, // SquashFS
    0xe0f5_e1e2, // EROFS
    0x28cd_3d45, // cramfs
    0x0000_7275, // romfs
    0x0000_72b6, // JFFS2
    0x2405_1905, // UBIFS
    0x0000_4d44, // FAT
    0x2011_bab0, // exFAT
    0x7366_746e, // NTFS (ntfs3)
    0x5346_544e, // NTFS (ntfs)
    0x0000_4244, // HFS
    0x0000_482b, // HFS+
    0x0000_9660, // ISO 9660
    0x1501_3346, // UDF
    0x6573_5546, // FUSE, virtio-fs
    0x0102_1997, // 9P
    0x0000_6969, // NFS
    0xff53_4d42, // CIFS
    0xfe53_4d42, // SMB 2 and 3
    0x0000_517b, // SMB 1
    0x00c3_6400, // Ceph
    0x5346_414f, // AFS
    0x6b41_4653, // AFS (kAFS)
    0x7375_7245, // Coda
    0x0bd0_0bd0, // Lustre
    0x4750_4653, // GPFS
    0x1983_0326, // BeeGFS
    0x2003_0528, // OrangeFS
    0x786f_4256, // VirtualBox's shared folders
    0xbacb_acbc, // VMware's shared folders
    0x00c0_ffee, // hostfs of User-Mode Linux
];

/// Numbers and names of windows into the host's kernel (linux/magic.h).
const OF_THE_KERNEL: [(u32, &str); 24] = [
    (0x0000_9fa0, "proc"),
    (0x6265_6572, "sysfs"),
    (0x0027_e0eb, "cgroup"),
    (0x6367_7270, "cgroup2"),
    (0x0000_1cd1, "devpts"),
    (0x6462_6720, "debugfs"),
    (0x7472_6163, "tracefs"),
    (0x7363_6673, "securityfs"),
    (0xcafe_4a11, "bpf"),
    (0x6165_676c, "pstore"),
    (0xde5e_81e4, "efivarfs"),
    (0x6265_6570, "configfs"),
    (0x1980_0202, "mqueue"),
    (0x9584_58f6, "hugetlbfs"),
    (0x4249_4e4d, "binfmt_misc"),
    (0xf97c_ff8c, "selinuxfs"),
    (0x4341_5d53, "smackfs"),
    (0x6573_5543, "fusectl"),
    (0x6e73_6673, "nsfs"),
    (0x6e66_7364, "nfsd"),
    (0x6759_6969, "rpc_pipefs"),
    (0x0765_5821, "resctrl"),
    (0x0000_0187, "autofs"),
    (0x6c6f_6f70, "binder"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_holds_files_is_shown_and_windows_into_the_kernel_are_not() {
        let of = |path| Kind::of(std::fs::File::open(path).unwrap()).unwrap();
        assert_eq!(of("/proc"), Kind::OfTheKernel("proc"));
        assert_eq!(of("/sys"), Kind::OfTheKernel("sysfs"));
        assert!(of(env!("CARGO_MANIFEST_DIR")).may_be_shown(false));
        for allows_unknown in [false, true] {
            assert!(!of("/proc").may_be_shown(allows_unknown));
            assert_eq!(Kind::of_number(0x1234).may_be_shown(allows_unknown), allows_unknown);
        }
    }

    #[test]
    fn no_number_is_on_both_lists() {
        let mut numbers: Vec<_> = OF_THE_KERNEL.iter().map(|(number, _)| *number).collect();
        numbers.extend(ORDINARY);
        let count = numbers.len();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), count);
    }
}
