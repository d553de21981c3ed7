//! The saved state of a paravirtual vCPU, beside that of every vCPU ([`crate::Saved`]): what the guest has registered,
//! its two roots, its descriptor frames, and a write that waits for the hypervisor.
//!
//! It is as untrusted as the rest. Addresses in it are the guest's: whoever follows one looks whether there is RAM.

use serde::{Deserialize, Serialize};

use super::write::Before;
use super::{CALLBACKS, GDT_FRAMES, Gate};
use crate::exception::Exception;
use crate::memory::{PAGE_SIZE, Physical};
use crate::saved::{Unfit, makes_sense};
use crate::state::Registers;
use crate::vcpu::Vcpu;

/// Bytes of a `vcpu_info`.
const INFO_BYTES: u64 = 64;

/// See above.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SavedParavirtual {
    /// Those that are registered, by vector.
    traps: Vec<(u8, Gate)>,
    callbacks: [Gate; CALLBACKS],
    kernel_stack: (u16, u64),
    kernel_root: u64,
    user_root: u64,
    io_privilege: u8,
    assists: u64,
    info: Option<u64>,
    gdt: [u64; GDT_FRAMES],
    before: Option<(Registers, Exception)>,
}

impl Vcpu {
    /// What a paravirtual vCPU that goes on from here has to know beside [`Vcpu::save`]; none of another.
    pub fn save_paravirtual(&self) -> Option<SavedParavirtual> {
        let state = self.arch.paravirtual.as_deref()?;
        let traps = (0..).zip(state.traps.iter().copied());
        Some(SavedParavirtual {
            traps: traps.filter(|(_, gate)| *gate != Gate::default()).collect(),
            callbacks: state.callbacks,
            kernel_stack: state.kernel_stack,
            kernel_root: state.kernel_root,
            user_root: state.user_root,
            io_privilege: state.io_privilege,
            assists: state.assists,
            info: state.info.map(|at| at.0),
            gdt: state.gdt,
            before: state.before.map(|before| before.undone(self.arch.context.regs)),
        })
    }

    /// Restore it, after [`Vcpu::restore`].
    ///
    /// # Errors
    ///
    /// [`Unfit::Nonsense`].
    pub fn restore_paravirtual(&mut self, saved: SavedParavirtual) -> Result<(), Unfit> {
        let components = self.arch.system.components();
        let fits = |at: u64| at.is_multiple_of(8) && at % PAGE_SIZE <= PAGE_SIZE - INFO_BYTES;
        let is_sane = saved.info.is_none_or(fits)
            && saved.before.as_ref().is_none_or(|before| makes_sense(&before.0, components));
        let state = self.arch.paravirtual.as_deref_mut().filter(|_| is_sane);
        let state = state.ok_or(Unfit::Nonsense)?;
        state.traps.fill(Gate::default());
        for (vector, gate) in saved.traps {
            state.traps[usize::from(vector)] = gate;
        }
        state.callbacks = saved.callbacks;
        state.kernel_stack = saved.kernel_stack;
        (state.kernel_root, state.user_root) = (saved.kernel_root, saved.user_root);
        state.io_privilege = saved.io_privilege & 3;
        state.assists = saved.assists;
        state.info = saved.info.map(Physical);
        let before = |(registers, fault)| Before::new(&registers, registers.rip, fault);
        state.before = saved.before.map(before);
        state.crash = None;
        self.set_gdt(&saved.gdt);
        self.arch.begin_spaces();
        Ok(())
    }
}
