//! The program `biv`: reads the command line and calls the verb.

#![forbid(unsafe_code)]

use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;

use api::{Record, status};
use biv::cli::{Cli, Pull, Run, Verb};
use biv::print::{self, unless_closed};
use biv::{cache, completions, debug, doctor, image, kernel, life, man, pod, project, serve, xen};
use spec::shown::harmless;

fn main() -> ExitCode {
    domain::begin(pod::PROCESSES);
    completions::complete_if_asked();
    let cli = Cli::of_process();
    // Whatever the file is called. It cannot fail for such a name.
    let _ = rustix::thread::set_name(c"biv");
    let result = match cli.verb {
        Verb::Run(arguments) => return run(*arguments),
        Verb::Kernel(arguments) => kernel::kernel(&arguments.action),
        Verb::Image(arguments) => image::image(&arguments.action),
        Verb::Cache(arguments) => cache::cache(&arguments.action),
        Verb::Doctor(arguments) => return ended(doctor::doctor(&arguments)),
        Verb::Debug(arguments) => return ended(debug::debug(&arguments.tool)),
        Verb::Restore(arguments) => {
            domain::settle();
            match arguments.into_order() {
                Ok(order) => return ended(domain::go_on(order)),
                Err(reason) => Cli::refuse(&reason),
            }
        }
        Verb::Snapshot(arguments) => told(life::snapshot(&arguments)),
        Verb::Ps(arguments) => told(life::ps(&arguments)),
        Verb::Logs(arguments) => told(life::logs::<Record>(&arguments)),
        Verb::Inspect(arguments) => told(life::inspect::<Record>(&arguments)),
        Verb::Stop(arguments) => told(life::stop::<Record>(&arguments)),
        Verb::Start(arguments) => {
            domain::settle();
            told(life::start(&arguments))
        }
        Verb::Restart(arguments) => {
            domain::settle();
            told(life::restart(&arguments))
        }
        Verb::Rename(arguments) => told(life::rename(&arguments)),
        Verb::Top(arguments) => return ended(life::top(&arguments)),
        Verb::Kill(arguments) => told(life::kill::<Record>(&arguments)),
        Verb::Exec(arguments) => return ended(life::exec::<Record>(&arguments)),
        Verb::Cp(arguments) => return ended(life::cp(&arguments)),
        Verb::Console(arguments) => return ended(life::console(&arguments)),
        Verb::Attach(arguments) => return ended(life::attach::<Record>(&arguments)),
        Verb::Balloon(arguments) => told(life::balloon(&arguments)),
        Verb::Pause(arguments) => told(life::pause(&arguments)),
        Verb::Resume(arguments) => told(life::resume(&arguments)),
        Verb::Stats(arguments) => told(life::stats(&arguments)),
        Verb::Wait(arguments) => told(life::wait::<Record>(&arguments)),
        Verb::Rm(arguments) => told(life::rm::<Record>(&arguments)),
        Verb::Up(arguments) => project::up(&arguments).map_err(|error| error.to_string()),
        Verb::Down(arguments) => project::down(&arguments).map_err(|error| error.to_string()),
        Verb::Pod(arguments) => return of_pods(pod::pod(arguments)),
        Verb::Network(arguments) => {
            pod::network(arguments.action).map_err(|error| error.to_string())
        }
        Verb::Xen(arguments) => told(xen::xen(&arguments.action)),
        Verb::Serve(arguments) => serve::serve(&arguments).map_err(|error| error.to_string()),
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
fn run(mut arguments: Run) -> ExitCode {
    // Before its input is read, which may be a description.
    domain::settle();
    let (prints, is_a_file) = (arguments.print_spec, arguments.spec.is_some());
    let pull = if is_a_file { Pull::Never } else { arguments.pull };
    let insecure = arguments.insecure;
    match arguments.image.as_deref().map(image::source).transpose() {
        Ok(image) => arguments.image = image,
        Err(reason) => return fail(&reason),
    }
    match arguments.into_spec() {
        Ok(spec) if prints => {
            let text = spec.to_json() + "\n";
            ended(unless_closed(print::text(&text)).map(|()| status::SUCCESS))
        }
        Ok(spec) => match image::provide(&spec, pull, insecure) {
            Ok(()) => ended(domain::launch(spec)),
            Err(reason) => fail(&reason),
        },
        Err(reason) if is_a_file => fail(&reason),
        Err(reason) => Cli::refuse(&reason),
    }
}

/// What a verb about domains has come to; a reader that has seen enough is no failure.
fn told(result: Result<(), life::Error>) -> Result<(), String> {
    match result {
        Err(life::Error::Io(error)) => unless_closed(Err(error)),
        other => other.map_err(|error| error.to_string()),
    }
}

/// What a verb about pods has come to; the same.
fn of_pods(result: Result<u8, pod::Error>) -> ExitCode {
    match result {
        Err(pod::Error::Life(error)) => {
            told(Err(error)).map_or_else(|message| fail(&message), |()| ExitCode::SUCCESS)
        }
        Err(pod::Error::Usage(reason)) => Cli::refuse(&reason),
        other => ended(other),
    }
}
