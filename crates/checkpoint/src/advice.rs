//! What a process asks for a mapping, by the names that smaps has (`VmFlags`), and the advice of madvise(2) for it.

/// Name, and advice; none for those that have a flag of mmap(2).
pub(crate) const ADVICE: [(&str, Option<i32>); 11] = [
    ("gd", None),
    ("lo", None),
    ("nr", None),
    ("dp", None),
    ("dc", Some(libc::MADV_DONTFORK)),
    ("dd", Some(libc::MADV_DONTDUMP)),
    ("wf", Some(libc::MADV_WIPEONFORK)),
    ("hg", Some(libc::MADV_HUGEPAGE)),
    ("nh", Some(libc::MADV_NOHUGEPAGE)),
    ("sr", Some(libc::MADV_SEQUENTIAL)),
    ("rr", Some(libc::MADV_RANDOM)),
];
