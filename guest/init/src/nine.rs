//! How directories of the host's are mounted by 9p. The guest's kernel checks permissions, and each message has 128 KiB
//! of data.

use std::ffi::CString;

use protocol::mounts::Kind;

/// In any case.
const OPTIONS: &str = "trans=virtio,version=9p2000.L,msize=135168,access=client";

/// What the host may change is looked at when it is opened, and by Linux from 6.8 on when it is read: releases, and the
/// trees that they attach (the file server's trees say how the kernels differ).
const SHARED: [((u32, u32), &str); 3] =
    [((6, 8), ",aname=unkept"), ((6, 4), ""), ((0, 0), ",aname=appending")];

/// The options by which one of this kind is mounted by the kernel that runs.
pub fn options(kind: Kind) -> CString {
    match kind {
        // What is only read is kept.
        Kind::OverlaidRoot | Kind::Modules | Kind::OwnModules => with("cache=loose", ""),
        _ => shared(rustix::system::uname().release().to_bytes()),
    }
}

/// Those of what the host may change, for a kernel of this release. One that does not say what it is, is a new one.
fn shared(release: &[u8]) -> CString {
    let mut numbers = release.split(|byte| !byte.is_ascii_digit()).map(|digits| {
        std::str::from_utf8(digits).ok().and_then(|digits| digits.parse::<u32>().ok())
    });
    let own = numbers.next().flatten().zip(numbers.next().flatten()).unwrap_or((u32::MAX, 0));
    let found = SHARED.iter().find(|(first, _)| own >= *first);
    with("cache=mmap", found.map_or("", |(_, tree)| tree))
}

fn with(cache: &str, tree: &str) -> CString {
    CString::new(format!("{OPTIONS},{cache}{tree}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_have_the_tree_that_they_need() {
        let check = |release: &str, tree: &str| {
            let options = shared(release.as_bytes()).into_string().unwrap();
            let found = options.rsplit_once("aname=").map_or("", |(_, tree)| tree);
            assert_eq!(found, tree, "{release}");
            assert!(options.contains("cache=mmap"), "{release}");
        };
        check("6.1.0-56-amd64", "appending");
        check("5.15.0", "appending");
        check("6.3.13+", "appending");
        check("4.19", "appending");
        check("6.4.0-rc1", "");
        check("6.6.30", "");
        check("6.8.0-31-generic", "unkept");
        check("6.12.95+deb12-amd64", "unkept");
        check("7.0.1", "unkept");
        check("10.0", "unkept");
        check("mine", "unkept");
        check("", "unkept");
    }
}
