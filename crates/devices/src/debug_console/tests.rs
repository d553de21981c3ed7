use std::io::Write;
use std::sync::{Arc, Mutex};

use machine::bus::{PortDevice, Size};

use super::DebugConsole;

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn characters_come_out_and_the_port_knows_its_number() {
    let output = Shared::default();
    let mut console = DebugConsole::new(Box::new(output.clone()));
    for byte in *b"hi" {
        console.write(0, Size::Byte, byte.into());
    }
    assert_eq!(console.read(0, Size::Byte), 0xe9);
    assert_eq!(*output.0.lock().unwrap(), b"hi");
}
