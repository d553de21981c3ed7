//! Starts a paravirtual kernel, for a look at how far it comes: KERNEL INITRD COMMAND-LINE [MEBIBYTES].

use vmm::devices::Serial;
use vmm::{Configuration, Contents, Machine, Module, SerialBackend};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let read = |path: &String| Contents::new(std::fs::read(path).expect("a file"));
    let output: Option<Box<dyn std::io::Write + Send>> = Some(Box::new(std::io::stdout()));
    let backend = SerialBackend { output, ..SerialBackend::default() };
    let mebibytes: u64 = arguments.get(3).map_or(256, |text| text.parse().expect("a number"));
    let configuration = Configuration {
        kernel: read(&arguments[0]),
        modules: vec![Module { data: read(&arguments[1]), command_line: String::new() }],
        command_line: arguments[2].clone(),
        memory: mebibytes << 20,
        processors: std::env::var("CPUS").map_or(1, |text| text.parse().expect("a number")),
        devices: vec![Box::new(Serial::first(backend))],
        interpret: std::env::var("INTERPRET").is_ok(),
        ..Configuration::default()
    };
    let mut machine = Machine::<xen::Board>::on_board(configuration).expect("a machine");
    let outcome = machine.run();
    for cpu in machine.processors() {
        eprintln!("{:?} {:?}\n{}", cpu.domain_crash(), cpu.registers(), cpu.history());
    }
    eprintln!("{outcome:?}");
}
