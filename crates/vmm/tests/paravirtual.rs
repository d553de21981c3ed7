//! Paravirtual kernels on the engine and our own hypervisor: the tiny kernel finds what it finds under real Xen, and
//! Debian's kernels come to the point where they want a root file system.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use vmm::devices::Serial;
use vmm::{Configuration, Contents, Machine, Outcome, SerialBackend};
use whole_machine::kernels;

/// Longer than any of them takes on a busy host: two seconds on an idle one.
const PATIENCE: Duration = Duration::from_secs(120);

/// What a kernel says.
#[derive(Clone, Default)]
struct Said(Arc<Mutex<Vec<u8>>>);

impl Said {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().expect("nobody panics")).into_owned()
    }
}

impl Write for Said {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("nobody panics").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A paravirtual machine, and what it will say.
fn machine(configuration: Configuration) -> (Machine<xen::Board>, Said) {
    let said = Said::default();
    let output: Option<Box<dyn Write + Send>> = Some(Box::new(said.clone()));
    let devices: vmm::Devices =
        vec![Box::new(Serial::first(SerialBackend { output, input: None }))];
    let configuration = Configuration { memory: 256 << 20, devices, ..configuration };
    (Machine::on_board(configuration).expect("a machine"), said)
}

/// Run a kernel until it resets its machine; what it has said.
fn said_by(kernel: Contents, processors: usize, interpret: bool, command_line: &str) -> String {
    let command_line = command_line.into();
    let configuration =
        Configuration { kernel, command_line, processors, interpret, ..Configuration::default() };
    let (mut machine, said) = machine(configuration);
    let stop = machine.stop_handle();
    let (ended, waits) = std::sync::mpsc::channel::<()>();
    let guard = std::thread::spawn(move || {
        if waits.recv_timeout(PATIENCE) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            stop.stop();
        }
    });
    let outcome = machine.run();
    drop(ended);
    guard.join().expect("it only waits");
    let text = said.text();
    assert!(matches!(outcome, Ok(Outcome::Reset)), "{outcome:?}\n{text}");
    text
}

/// The lines of the tiny kernel in what was said.
fn lines(text: &str) -> String {
    let lines = text.lines().filter_map(|line| line.trim_end().strip_prefix("pv: "));
    lines.collect::<Vec<_>>().join("\n")
}

fn the_tiny_kernel(interpret: bool) {
    let text = said_by(Contents::new(paravirtual::KERNEL), 1, interpret, "");
    assert_eq!(lines(&text), paravirtual::SAID_UNDER_XEN, "{text}");
}

#[test]
fn the_tiny_kernel_finds_what_it_finds_under_xen() {
    the_tiny_kernel(false);
    the_tiny_kernel(true);
}

/// The one that goes to its users and back, several times each way.
#[test]
fn users_and_their_kernel_find_each_other_as_under_xen() {
    for interpret in [false, true] {
        let text = said_by(Contents::new(paravirtual::USERS), 1, interpret, "");
        assert_eq!(lines(&text), paravirtual::USERS_SAID_UNDER_XEN.trim_end(), "{text}");
    }
}

#[test]
fn a_domain_that_reboots_finds_the_same_again() {
    let kernel = Contents::new(paravirtual::KERNEL);
    let (mut machine, said) =
        machine(Configuration { kernel, reboot: true, ..Configuration::default() });
    let (stop, heard) = (machine.stop_handle(), said.clone());
    let watcher = std::thread::spawn(move || {
        let deadline = Instant::now() + PATIENCE;
        while heard.text().matches("pv: end").count() < 2 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        stop.stop();
    });
    let outcome = machine.run();
    watcher.join().expect("it only waits");
    let twice = [paravirtual::SAID_UNDER_XEN; 2].join("\n");
    assert!(lines(&said.text()).starts_with(&twice), "{outcome:?}\n{}", said.text());
}

/// A domain's control thread has the remote until its process ends, and the session waits for the end of the line.
#[test]
fn what_a_domain_says_ends_with_the_machine_though_its_remote_is_there() {
    let kernel = Contents::new(paravirtual::KERNEL);
    let (mut machine, said) = machine(Configuration { kernel, ..Configuration::default() });
    let remote = machine.remote();
    assert!(matches!(machine.run(), Ok(Outcome::Reset)), "{}", said.text());
    assert!(Arc::strong_count(&said.0) > 1, "the machine has where its lines go");
    drop(machine);
    assert_eq!(Arc::strong_count(&said.0), 1, "{remote:?}");
}

/// Debian's kernel of a suite, without a root file system: it panics, and has its machine reset.
fn debian(suite: &str, processors: usize) {
    let file = std::fs::read(kernels::debian(suite, "linux-image-cloud-amd64"));
    let file = Contents::new(file.expect("it is there"));
    let parameters = "earlyprintk=xen console=hvc0 panic=-1 cryptomgr.notests";
    let text = said_by(file, processors, false, parameters);
    let found = |words: &str| assert!(text.contains(words), "{words}\n{text}");
    found("Hypervisor detected: Xen PV");
    found("Switched to clocksource xen");
    found("VFS: Unable to mount root fs");
    if processors > 1 {
        found(&format!("smp: Brought up 1 node, {processors} CPUs"));
    }
    for trouble in ["WARNING:", "BUG:", "Oops"] {
        assert!(!text.contains(trouble), "{trouble}\n{text}");
    }
}

#[test]
fn debians_stable_kernel_boots() {
    debian("bookworm", 1);
    debian("bookworm", 4);
}

#[test]
fn debians_backported_kernel_boots() {
    debian("bookworm-backports", 1);
    debian("bookworm-backports", 4);
}
