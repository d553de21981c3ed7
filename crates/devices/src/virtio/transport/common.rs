//! The common configuration: features, queues and status, as driver and device agree on them
//! (virtio 1.2, 3.1.1 and 4.1.4.3).
//!
//! What makes no sense is ignored, as the specification allows: a register is then as before, and the
//! driver sees that when it reads it again.

use machine::bus::Size;
use machine::saved::{self, Busy, Unfit};
use serde::{Deserialize, Serialize};

use super::bits::{Features, Status, common};
use super::shared::Shared;
use crate::virtio::queue::Settings;

/// What has been agreed on.
pub(super) struct Negotiation {
    offered: u64,
    accepted: u64,
    device_select: u32,
    driver_select: u32,
    queue_select: u16,
    most: Vec<u16>,
    queues: Vec<Settings>,
    /// The driver has asked for a reset, which is not done yet.
    stopping: bool,
}

/// What has been agreed on, to be kept.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Agreement {
    offered: u64,
    accepted: u64,
    device_select: u32,
    driver_select: u32,
    queue_select: u16,
    queues: Vec<Settings>,
}

impl Negotiation {
    pub fn new(features: u64, sizes: &[u16]) -> Self {
        let mut it = Self {
            offered: features | Features::all().bits(),
            accepted: 0,
            device_select: 0,
            driver_select: 0,
            queue_select: 0,
            most: sizes.to_vec(),
            queues: Vec::new(),
            stopping: false,
        };
        it.reset();
        it
    }

    /// What one that goes on from here has to know.
    pub fn save(&mut self, shared: &Shared) -> Result<Agreement, Busy> {
        if self.is_stopping(shared) {
            return Err(Busy);
        }
        Ok(Agreement {
            offered: self.offered,
            accepted: self.accepted,
            device_select: self.device_select,
            driver_select: self.driver_select,
            queue_select: self.queue_select,
            queues: self.queues.clone(),
        })
    }

    /// Go on from there.
    pub fn restore(&mut self, saved: Agreement) -> Result<(), Unfit> {
        let fits = |(queue, most): (&Settings, &u16)| {
            queue.size.is_power_of_two()
                && queue.size <= *most
                && (queue.are_aligned() || !queue.enabled)
        };
        let same = saved.offered == self.offered && saved.queues.len() == self.most.len();
        let all_fit = saved.queues.iter().zip(&self.most).all(fits);
        saved::check(same && all_fit && saved.accepted & !saved.offered == 0, "a virtio device")?;
        self.accepted = saved.accepted;
        self.device_select = saved.device_select;
        self.driver_select = saved.driver_select;
        self.queue_select = saved.queue_select;
        self.queues = saved.queues;
        Ok(())
    }

    /// What the driver has accepted, and said of the queues.
    pub fn agreed(&self) -> (u64, &[Settings]) {
        (self.accepted, &self.queues)
    }

    pub fn reset(&mut self) {
        self.stopping = false;
        self.accepted = 0;
        self.device_select = 0;
        self.driver_select = 0;
        self.queue_select = 0;
        let fresh = |&size: &u16| Settings { size, ..Settings::default() };
        self.queues = self.most.iter().map(fresh).collect();
    }

    /// How many queues there are.
    pub fn queues(&self) -> usize {
        self.queues.len()
    }

    pub fn read(&mut self, at: u64, size: Size, shared: &Shared) -> u64 {
        let queue = self.queues.get(usize::from(self.queue_select)).copied();
        let queue = queue.unwrap_or_default();
        match (at, size) {
            (common::DEVICE_FEATURE_SELECT, Size::Dword) => self.device_select.into(),
            (common::DEVICE_FEATURE, Size::Dword) => part(self.offered, self.device_select),
            (common::DRIVER_FEATURE_SELECT, Size::Dword) => self.driver_select.into(),
            (common::DRIVER_FEATURE, Size::Dword) => part(self.accepted, self.driver_select),
            (common::CONFIGURATION_VECTOR, Size::Word) => shared.configuration_vector().into(),
            (common::QUEUES, Size::Word) => self.queues.len() as u64,
            (common::STATUS, Size::Byte) => self.status(shared),
            (common::GENERATION, Size::Byte) => shared.generation().into(),
            (common::QUEUE_SELECT, Size::Word) => self.queue_select.into(),
            (common::QUEUE_SIZE, Size::Word) => queue.size.into(),
            (common::QUEUE_VECTOR, Size::Word) => {
                shared.queue_vector(self.queue_select.into()).into()
            }
            (common::QUEUE_ENABLE, Size::Word) => queue.enabled.into(),
            (common::QUEUE_NOTIFY, Size::Word) => self.queue_select.into(),
            (common::QUEUE_DESCRIPTORS..common::END, Size::Dword | Size::Qword) => {
                let address = match at & !7 {
                    common::QUEUE_DESCRIPTORS => queue.descriptors,
                    common::QUEUE_AVAILABLE => queue.available,
                    common::QUEUE_USED => queue.used,
                    _ => 0,
                };
                if at & 4 == 0 { address } else { address >> 32 }
            }
            _ => 0,
        }
    }

    fn status(&mut self, shared: &Shared) -> u64 {
        self.is_stopping(shared);
        shared.status().bits().into()
    }

    /// Whether a reset has to wait for the device's thread; if not, it is carried out.
    fn is_stopping(&mut self, shared: &Shared) -> bool {
        if self.stopping && !shared.goes_on_stopping() {
            self.reset();
        }
        self.stopping
    }

    pub fn write(&mut self, at: u64, size: Size, value: u64, shared: &Shared) {
        if self.is_stopping(shared) {
            return;
        }
        let select = usize::from(self.queue_select);
        match (at, size) {
            (common::DEVICE_FEATURE_SELECT, Size::Dword) => self.device_select = value as u32,
            (common::DRIVER_FEATURE_SELECT, Size::Dword) => self.driver_select = value as u32,
            (common::DRIVER_FEATURE, Size::Dword) => self.accept(value as u32, shared),
            (common::CONFIGURATION_VECTOR, Size::Word) => {
                shared.set_configuration_vector(value as u16);
            }
            (common::STATUS, Size::Byte) => self.set_status(value as u8, shared),
            (common::QUEUE_SELECT, Size::Word) => self.queue_select = value as u16,
            (common::QUEUE_VECTOR, Size::Word) => shared.set_queue_vector(select, value as u16),
            _ if !shared.status().contains(Status::DRIVER_OK) => {
                self.set_queue(select, at, size, value);
            }
            _ => {}
        }
    }

    fn accept(&mut self, value: u32, shared: &Shared) {
        let shift = match self.driver_select {
            0 => 0,
            1 => 32,
            _ => return,
        };
        if !shared.status().contains(Status::FEATURES_OK) {
            self.accepted = self.accepted & !(0xffff_ffff << shift) | u64::from(value) << shift;
        }
    }

    fn set_status(&mut self, value: u8, shared: &Shared) {
        if value == 0 {
            self.stopping = true;
            if shared.stop() {
                self.reset();
            }
            return;
        }
        let (old, wanted) = (shared.status(), Status::from_bits_truncate(value));
        shared.add_status(wanted & (Status::ACKNOWLEDGE | Status::DRIVER | Status::FAILED));
        let makes_sense =
            self.accepted & !self.offered == 0 && self.accepted & Features::VERSION_1.bits() != 0;
        if wanted.contains(Status::FEATURES_OK) && makes_sense {
            shared.add_status(Status::FEATURES_OK);
        }
        let agreed = shared.status().contains(Status::FEATURES_OK);
        if wanted.contains(Status::DRIVER_OK) && agreed && !old.contains(Status::DRIVER_OK) {
            shared.activate(&self.queues, self.accepted);
        }
    }

    fn set_queue(&mut self, select: usize, at: u64, size: Size, value: u64) {
        let Some(queue) = self.queues.get_mut(select).filter(|queue| !queue.enabled) else {
            return;
        };
        match (at, size) {
            (common::QUEUE_SIZE, Size::Word) => {
                let size = value as u16;
                if size.is_power_of_two() && size <= self.most[select] {
                    queue.size = size;
                }
            }
            (common::QUEUE_ENABLE, Size::Word) => {
                queue.enabled = value == 1 && queue.are_aligned();
            }
            (common::QUEUE_DESCRIPTORS..common::END, Size::Dword | Size::Qword) => {
                let address = match at & !7 {
                    common::QUEUE_DESCRIPTORS => &mut queue.descriptors,
                    common::QUEUE_AVAILABLE => &mut queue.available,
                    _ => &mut queue.used,
                };
                *address = match (at & 7, size) {
                    (0, Size::Qword) => value,
                    (0, _) => *address & !0xffff_ffff | value,
                    (4, Size::Dword) => *address & 0xffff_ffff | value << 32,
                    _ => *address,
                };
            }
            _ => {}
        }
    }
}

/// 32 of the feature bits.
fn part(features: u64, select: u32) -> u64 {
    match select {
        0 => features & 0xffff_ffff,
        1 => features >> 32,
        _ => 0,
    }
}
