//! Serial lines.
use crate::alarm::Waker;
use crate::configuration::{Configuration, Error};
use machine::Platform;
use machine::bus::{PortDevice, Size, Width};

pub(crate) struct Reader;
impl Reader {
    pub(crate) fn stop(&mut self) {}
}
struct Tx(Option<Box<dyn std::io::Write + Send>>);
impl PortDevice for Tx {
    fn read(&mut self, offset: u16, _: Size) -> u32 {
        match offset { 5 => 0x60, 6 => 0xb0, 2 => 1, _ => 0 }
    }
    fn write(&mut self, offset: u16, _: Size, value: u32) {
        if offset == 0 && let Some(out) = &mut self.0 {
            let _ = out.write_all(&[value as u8]);
            let _ = out.flush();
        }
    }
    fn reset(&mut self) {}
}
pub(crate) fn plug_in(platform: &mut Platform, c: &mut Configuration, _: &Waker) -> Result<Vec<Reader>, Error> {
    platform.add_port_device("COM1", 0x3f8, 8, Width::Byte, Box::new(Tx(c.console.output.take()))).unwrap();
    Ok(Vec::new())
}
