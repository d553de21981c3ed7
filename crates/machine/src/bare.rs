//! The bare board: memory, one vCPU and I/O ports. There is no interrupt controller, no timer, no bus for devices and
//! no hypervisor; what a test kernel needs is a debug console and debug exit, which are plugged in.
//!
//! It proves that the run loop knows of a board only what [`Board`] says, and it runs test kernels that are about the
//! processor alone.

use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard};

use locks::Unpoisoned;

use crate::board::{Backplane, Board, BoardVcpu, Config, Error, Hypervisor, Surroundings};
use crate::bus::{self, Decoder, Plugged, PortBus, PortDevice, Ports, Route, Size, Width};
use crate::interrupts::{Inputs, InterruptLine, LineStates};
use crate::request::Requests;
use crate::saved::{Busy, CounterShift, Parts, Unfit};

/// See above.
pub struct BareBoard {
    bus: Mutex<Bus>,
    /// Nothing reads them.
    lines: Arc<LineStates>,
    requests: Requests,
}

/// There is nothing but what is plugged in.
type Bus = PortBus<Plugged>;

impl Decoder for Bus {
    type Target = Plugged;

    fn ports(&self) -> &Ports<Plugged> {
        &self.ports
    }

    fn read_target(&mut self, route: &Route<Plugged>, port: u16, size: Size) -> u32 {
        self.read(route.target, port - route.first, size)
    }

    fn write_target(&mut self, route: &Route<Plugged>, port: u16, size: Size, value: u32) {
        self.write(route.target, port - route.first, size, value);
    }
}

impl BareBoard {
    fn bus(&self) -> MutexGuard<'_, Bus> {
        self.bus.lock().unpoisoned()
    }
}

impl Backplane for BareBoard {
    fn processors(&self) -> usize {
        1
    }

    fn add_port_device(
        &mut self,
        name: &'static str,
        first: u16,
        count: u16,
        width: Width,
        device: Box<dyn PortDevice>,
    ) -> Result<(), bus::Error> {
        self.bus().add(name, first, count, width, device)
    }

    fn line(&self, input: u8) -> InterruptLine {
        InterruptLine::new(&self.lines, input)
    }

    fn requests(&self) -> Requests {
        self.requests.clone()
    }
}

impl Board for BareBoard {
    type Vcpu<'a> = BareVcpu<'a>;

    const HAS_FIRMWARE: bool = false;
    const MSRS: &'static [RangeInclusive<u32>] = &[];
    const HYPERVISOR: Option<Hypervisor> = None;

    fn new(config: Config, surroundings: Surroundings) -> Result<Self, Error> {
        if config.processors != 1 {
            return Err(Error::OneProcessor(config.processors));
        }
        let lines = Arc::clone(Inputs::new(surroundings.wake).states());
        Ok(Self { bus: Mutex::default(), lines, requests: Requests::default() })
    }

    fn vcpu(&self, number: usize) -> BareVcpu<'_> {
        assert_eq!(number, 0, "the bare board has one vCPU");
        BareVcpu { board: self, task_priority: 0 }
    }

    fn reset(&self) {
        self.bus().reset();
        self.requests.take();
    }

    fn restore(&self, shared: &[u8], _: &[Vec<u8>], _: CounterShift) -> Result<(), Unfit> {
        let mut parts = Parts::from_bytes(shared, "the board")?;
        self.bus().restore(&mut parts)?;
        parts.finish()
    }
}

/// The one vCPU's side.
pub struct BareVcpu<'a> {
    board: &'a BareBoard,
    /// CR8 is a register of the processor's, though nothing looks at it.
    task_priority: u8,
}

impl BoardVcpu for BareVcpu<'_> {
    fn number(&self) -> usize {
        0
    }

    fn tpr_read(&mut self) -> u8 {
        self.task_priority
    }

    fn tpr_write(&mut self, class: u8) {
        self.task_priority = class & 0xf;
    }

    fn port_read(&mut self, port: u16, size: u8) -> u32 {
        self.board.bus().port_read(port, size)
    }

    fn port_write(&mut self, port: u16, size: u8, value: u32) {
        self.board.bus().port_write(port, size, value);
    }

    fn save_shared(&mut self) -> Result<Vec<u8>, Busy> {
        let mut parts = Parts::default();
        self.board.bus().save(&mut parts);
        Ok(parts.to_bytes())
    }

    fn save_own(&mut self) -> Vec<u8> {
        Parts::default().to_bytes()
    }
}

#[cfg(test)]
mod tests {
    use vm_memory::GuestAddress;

    use super::*;
    use crate::request::Request;
    use crate::time::Hertz;

    /// Remembers the last byte that was written, and asks for a reset when that is 0xff.
    struct Latch(u32, Requests);

    impl PortDevice for Latch {
        fn kind(&self) -> &'static str {
            "latch"
        }

        fn read(&mut self, offset: u16, _: Size) -> u32 {
            self.0 + u32::from(offset)
        }

        fn write(&mut self, _: u16, _: Size, value: u32) {
            self.0 = value;
            if value == 0xff {
                self.1.make(Request::Reset);
            }
        }

        fn reset(&mut self) {
            self.0 = 0;
        }

        fn save(&self) -> Vec<u8> {
            vec![self.0 as u8]
        }

        fn restore(&mut self, _: u32, state: &[u8]) -> Result<(), Unfit> {
            self.0 = state.first().copied().unwrap_or(0).into();
            Ok(())
        }
    }

    fn board(processors: usize) -> Result<BareBoard, Error> {
        let config = Config {
            processors,
            tsc: Hertz(1_000_000_000),
            memory_bytes: 1 << 20,
            maximum_bytes: 1 << 20,
            firmware_bytes: 0,
        };
        let mut board = BareBoard::new(config, crate::tests::surroundings())?;
        let requests = board.requests();
        let device = Box::new(Latch(0, requests));
        board.add_port_device("latch", 0x10, 2, Width::Byte, device)?;
        Ok(board)
    }

    #[test]
    fn ports_are_all_that_is_there() {
        let board = board(1).unwrap();
        let mut vcpu = board.vcpu(0);
        vcpu.port_write(0x10, 1, 0x41);
        assert_eq!(vcpu.port_read(0x10, 2), 0x4241, "a byte at a time");
        assert_eq!(vcpu.port_read(0x11, 2), 0xff42, "nobody is at the second");
        assert_eq!(
            vcpu.port_read(0x0f, 2),
            0xffff,
            "an access belongs to the device at its first port"
        );
        assert_eq!(vcpu.mmio_read(GuestAddress(0xfee0_0030), 4), 0xffff_ffff);
        assert!(vcpu.msr_read(0x1b).is_err() && !vcpu.has_interrupt());
        vcpu.tpr_write(0x19);
        assert_eq!(vcpu.tpr_read(), 9);
        vcpu.port_write(0x10, 1, 0xff);
        assert_eq!(board.requests().take(), Some(Request::Reset));
    }

    #[test]
    fn it_has_one_vcpu() {
        assert!(matches!(board(2), Err(Error::OneProcessor(2))));
    }

    #[test]
    fn it_goes_on_where_another_was() {
        let (first, second) = (board(1).unwrap(), board(1).unwrap());
        first.vcpu(0).port_write(0x10, 1, 0x55);
        let shared = first.vcpu(0).save_shared().unwrap();
        second.restore(&shared, &[], CounterShift::new(0, 0, false)).unwrap();
        assert_eq!(second.vcpu(0).port_read(0x10, 1), 0x55);
    }
}
