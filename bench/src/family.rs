//! The families of systems that are compared.

/// Systems that are one for the reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// This project.
    Biv,
    /// No machine at all.
    Host,
    /// QEMU's translator.
    Tcg,
    /// Linux as a process.
    Uml,
    /// Google's kernel in Go.
    Gvisor,
}

impl Family {
    /// Whom we are compared with.
    pub const PEERS: [Family; 4] = [Family::Host, Family::Tcg, Family::Uml, Family::Gvisor];

    /// For the command line and the tables.
    pub fn name(self) -> &'static str {
        match self {
            Family::Biv => "biv",
            Family::Host => "host",
            Family::Tcg => "tcg",
            Family::Uml => "uml",
            Family::Gvisor => "gvisor",
        }
    }

    /// Whether there is something to launch, with memory of its own.
    pub fn boots(self) -> bool {
        self != Family::Host
    }

    /// Whether its processes stay on one CPU while they are given one: the host, because it is what
    /// one virtual CPU is compared with; User-Mode Linux and gVisor, because they are faster so. (The
    /// former has one CPU, and stays on one, whatever it is given.) A machine has threads beside its
    /// virtual CPU's, which are its own affair.
    pub fn is_pinned(self) -> bool {
        matches!(self, Family::Host | Family::Uml | Family::Gvisor)
    }
}
