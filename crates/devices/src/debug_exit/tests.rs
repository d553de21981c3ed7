use machine::bus::{PortDevice, Size};
use machine::{Request, Requests};

use super::DebugExit;

#[test]
fn the_first_value_is_asked_for() {
    let requests = Requests::default();
    let mut device = DebugExit::new(requests.clone());
    assert_eq!(device.read(0, Size::Dword), 0);
    assert_eq!(requests.take(), None);
    device.write(0, Size::Dword, 0x10);
    device.write(3, Size::Byte, 0x11);
    assert_eq!(requests.take(), Some(Request::DebugExit(0x10)));
}
