//! Finds the device that is the channel to the host: a virtio port, a hypervisor's console, or a serial line.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use service::line::open_device;

/// The name that stands for the first virtio port in a list of devices.
const ANY_PORT: &str = "vport";

/// How consoles of a hypervisor are called. Their files are there before they are.
const HYPERVISOR_CONSOLE: &str = "hvc";

/// How `/proc/devices` calls the driver of a virtio device that has ports, or may have.
const PORTS_DRIVER: &str = "virtio-portsdev";

/// How long a driver may take to learn from the host which ports or consoles there are.
const PORT_PATIENCE: Duration = Duration::from_secs(2);

/// How long it is left alone between two looks.
const PORT_PAUSE: Duration = Duration::from_millis(1);

/// The first device of a list, separated by commas, that there is: a name in `/dev`, or `vport`.
pub fn find(devices: &str) -> io::Result<OwnedFd> {
    let device = |device| match device {
        ANY_PORT => first_port(),
        name if name.starts_with(HYPERVISOR_CONSOLE) => hypervisor_console(name),
        name => open_device(&Path::new("/dev").join(name)).ok(),
    };
    let none = || io::Error::new(io::ErrorKind::NotFound, format!("there is no device {devices}"));
    devices.split(',').find_map(device).ok_or_else(none)
}

/// The first virtio port, for which is waited if the kernel has a driver that may still make it. A console's
/// port cannot be opened (ENXIO).
fn first_port() -> Option<OwnedFd> {
    let deadline = Instant::now() + PORT_PATIENCE;
    let is_port = |path: &PathBuf| {
        path.file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(ANY_PORT.as_bytes()))
    };
    loop {
        let devices = std::fs::read_dir("/dev").ok()?.filter_map(|entry| Some(entry.ok()?.path()));
        if let Some(port) = devices.filter(is_port).find_map(|path| open_device(&path).ok()) {
            return Some(port);
        }
        let drivers = std::fs::read_to_string("/proc/devices").ok()?;
        let has_driver = drivers.lines().any(|line| line.ends_with(PORTS_DRIVER));
        if !has_driver || Instant::now() >= deadline {
            return None;
        }
        std::thread::sleep(PORT_PAUSE);
    }
}

/// A hypervisor's console, which cannot be opened before it is connected (ENODEV).
fn hypervisor_console(name: &str) -> Option<OwnedFd> {
    let (path, deadline) = (Path::new("/dev").join(name), Instant::now() + PORT_PATIENCE);
    loop {
        match open_device(&path) {
            Ok(device) => return Some(device),
            Err(rustix::io::Errno::NODEV) if Instant::now() < deadline => {
                std::thread::sleep(PORT_PAUSE);
            }
            Err(_) => return None,
        }
    }
}
