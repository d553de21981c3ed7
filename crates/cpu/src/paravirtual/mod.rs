//! The mode of a vCPU whose kernel is paravirtual, by Xen's interface.

/// What a paravirtual vCPU has beside its registers.
#[derive(Debug, Default)]
pub(crate) struct Paravirtual {}
