//! The program `biv`: reads the command line and calls the verb.

#![forbid(unsafe_code)]

use std::ffi::CStr;
use std::fmt::Display;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;

use api::status;
use biv::cli::{Cli, LaunchProcess, Run, ServeFiles, Verb};
use biv::print::{self, unless_closed};
use biv::{completions, debug, doctor, image, kernel, life, man};
use domain::detach::Child;
use domain::layout;
use domain::run::launch::Launch;
use spec::shown::harmless;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::prelude::*;

fn main() -> ExitCode {
    layout::settle_further();
    if let Err(error) = host::standard_streams::keep_closed() {
        let _ = writeln!(io::stderr(), "biv: cannot prepare the standard streams: {error}");
        return ExitCode::from(status::FAILURE);
    }
    let cli = Cli::of_process();
    // One that was started as /proc/self/exe would be called that. It cannot fail for such a name.
    let _ = rustix::thread::set_name(process_name(&cli.verb));
    // What was left open by chance is for nobody.
    host::inherited::mark(&passed(&cli.verb));
    let result = match cli.verb {
        Verb::Run(arguments) => return run(*arguments),
        Verb::Launch(arguments) => {
            layout::settle();
            return carry_out(&arguments);
        }
        Verb::Kernel(arguments) => kernel::kernel(&arguments.action),
        Verb::Image(arguments) => image::image(&arguments.action),
        Verb::Doctor(arguments) => return ended(doctor::doctor(&arguments)),
        Verb::Debug(arguments) => return ended(debug::debug(&arguments.tool)),
        Verb::ServeFiles(arguments) => serve_files(&arguments),
        Verb::Network(arguments) => {
            start_log(0);
            domain::network::serve(&arguments.into())
                .map_err(|error| format!("the network: {error}"))
        }
        Verb::Sockets(arguments) => domain::vsock::serve(&arguments.into())
            .map_err(|error| format!("the guest's sockets: {error}")),
        Verb::Seal(arguments) => {
            domain::seal::seal_warm_start(&arguments.into()).map_err(|error| error.to_string())
        }
        Verb::Unpack(arguments) => {
            domain::unpack::serve(!arguments.no_seccomp).map_err(|error| error.to_string())
        }
        Verb::Restore(arguments) => {
            layout::settle();
            match arguments.into_order() {
                Ok(order) => return launch(&Launch::GoOn(Box::new(order))),
                Err(reason) => Cli::refuse(&reason),
            }
        }
        Verb::Snapshot(arguments) => told(life::snapshot(&arguments)),
        Verb::Ps(arguments) => told(life::ps(&arguments)),
        Verb::Logs(arguments) => told(life::logs(&arguments)),
        Verb::Inspect(arguments) => told(life::inspect(&arguments)),
        Verb::Stop(arguments) => told(life::stop(&arguments)),
        Verb::Kill(arguments) => told(life::kill(&arguments)),
        Verb::Exec(arguments) => return ended(life::exec(&arguments)),
        Verb::Cp(arguments) => return ended(life::cp(&arguments)),
        Verb::Console(arguments) => return ended(life::console(&arguments)),
        Verb::Attach(arguments) => return ended(life::attach(&arguments)),
        Verb::Balloon(arguments) => told(life::balloon(&arguments)),
        Verb::Pause(arguments) => told(life::pause(&arguments)),
        Verb::Resume(arguments) => told(life::resume(&arguments)),
        Verb::Stats(arguments) => told(life::stats(&arguments)),
        Verb::Wait(arguments) => told(life::wait(&arguments)),
        Verb::Rm(arguments) => told(life::rm(&arguments)),
        Verb::Completions(arguments) => unless_closed(completions::completions(&arguments)),
        Verb::Man(arguments) => unless_closed(man::man(&arguments)),
    };
    match result {
        Ok(()) => ExitCode::from(status::SUCCESS),
        Err(message) => fail(&message),
    }
}

/// Says why; the status of a failure.
fn fail(message: &str) -> ExitCode {
    // Standard error may be closed; the status still tells.
    let _ = writeln!(io::stderr(), "biv: {}", harmless(message));
    ExitCode::from(status::FAILURE)
}

/// The status of what has one of its own.
fn ended(result: Result<u8, impl Display>) -> ExitCode {
    result.map_or_else(|error| fail(&error.to_string()), ExitCode::from)
}

/// Runs the machine that is meant, or prints what describes it.
fn run(arguments: Run) -> ExitCode {
    // Before its input is read, which may be a description.
    layout::settle();
    let (prints, is_a_file) = (arguments.print_spec, arguments.spec.is_some());
    match arguments.into_spec() {
        Ok(spec) if prints => {
            let text = spec.to_json() + "\n";
            ended(unless_closed(print::text(&text)).map(|()| status::SUCCESS))
        }
        Ok(spec) => launch(&Launch::Run(Box::new(spec))),
        Err(reason) if is_a_file => fail(&reason),
        Err(reason) => Cli::refuse(&reason),
    }
}

/// Runs a machine, here or in a process that goes on by itself. A machine may still have threads that run; nothing of
/// theirs is waited for.
fn launch(launch: &Launch) -> ExitCode {
    start_log(launch.verbosity());
    ended(launch.start())
}

/// The same, as another process of ours has asked for it.
fn carry_out(arguments: &LaunchProcess) -> ExitCode {
    let launch = match Launch::take(arguments.descriptor) {
        Ok(launch) => launch,
        Err(error) => return fail(&format!("cannot launch: {error}")),
    };
    start_log(launch.verbosity());
    let child = arguments.detached.then(Child::of_process).transpose();
    let child = child.map_err(domain::Error::Detach);
    let result = child.map_err(domain::run::Error::from).and_then(|child| launch.carry_out(child));
    ended(result)
}

/// What `ps` and `top` call this process, in at most 15 bytes: machines, and what users start, are found by
/// `pgrep -x biv`, those that serve a machine have names of their own.
fn process_name(verb: &Verb) -> &'static CStr {
    match verb {
        Verb::ServeFiles(_) => c"biv files",
        Verb::Network(_) => c"biv network",
        Verb::Sockets(_) => c"biv sockets",
        Verb::Seal(_) => c"biv seal",
        Verb::Unpack(_) => c"biv unpack",
        _ => c"biv",
    }
}

/// The descriptors that this process was given on purpose, besides its streams.
fn passed(verb: &Verb) -> Vec<i32> {
    match verb {
        Verb::Network(arguments) => {
            let ports = arguments.tcp.iter().chain(&arguments.udp).map(|port| port.descriptor);
            ports.chain([arguments.cable]).collect()
        }
        Verb::Sockets(arguments) => vec![arguments.cable, arguments.listener],
        Verb::Launch(arguments) => vec![arguments.descriptor],
        _ => Vec::new(),
    }
}

fn serve_files(arguments: &ServeFiles) -> Result<(), String> {
    host::inherited::close_marked();
    let homes = domain::run::homes::readable(arguments.home.clone());
    let control = io::stdin().as_fd().try_clone_to_owned().map_err(|error| error.to_string())?;
    files::server::serve(&control, !arguments.no_seccomp, &homes).map_err(|error| error.to_string())
}

/// What a verb about domains has come to; a reader that has seen enough is no failure.
fn told(result: Result<(), life::Error>) -> Result<(), String> {
    match result {
        Err(life::Error::Io(error)) => unless_closed(Err(error)),
        other => other.map_err(|error| error.to_string()),
    }
}

/// What is said on standard error: by `-v`, or part by part as `RUST_LOG` has it.
fn start_log(verbose: u8) {
    let level = match verbose {
        0 => LevelFilter::ERROR,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let parts = std::env::var("RUST_LOG").ok().and_then(|text| text.parse::<Targets>().ok());
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(io::stderr)
        .with_target(false)
        .without_time()
        .with_filter(parts.unwrap_or_else(|| Targets::new().with_default(level)));
    tracing_subscriber::registry().with(lines).init();
}
