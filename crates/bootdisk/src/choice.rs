//! What a boot loader would start.

/// A choice of a boot loader's menu, with the files where they are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Choice {
    /// What it is called there.
    pub title: String,
    /// The kernel, by its volume and path.
    pub kernel: (usize, String),
    /// The initial RAM disks, likewise.
    pub initrds: Vec<(usize, String)>,
    /// The kernel's command line.
    pub command_line: String,
}
