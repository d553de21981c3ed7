//! The guest's kernel is debugged.

use crate::{EXECUTIONS, Machine, check, is_possible};

/// Says where a function of the kernel's is, and opens files until there is one of that name.
const SCRIPT: &str = "grep ' do_sys_openat2$' /proc/kallsyms; echo up
    while ! [ -e /t/stop ]; do read line </proc/uptime; done; echo finished";

fn openers(execution: &str) -> (Machine, String) {
    let machine = Machine::start(&["--user-exec", execution], &["sh", "-c", SCRIPT]);
    machine.wait_for("up");
    let said = machine.said();
    let line = said.lines().find(|line| line.ends_with("do_sys_openat2"));
    let address = line.and_then(|line| line.split(' ').next()).expect("the kernel has it");
    (machine, format!("0x{address}"))
}

/// What such a machine has said in the end.
fn stop(machine: Machine) -> String {
    std::fs::write(machine.place.path("stop"), "").expect("there is room");
    machine.end()
}

#[test]
fn it_breaks_in_the_kernel_steps_and_goes_on() {
    if !is_possible() {
        return;
    }
    for execution in EXECUTIONS {
        let (machine, at) = openers(execution);
        let said = machine.debug(&[
            &format!("set var $at = {at}"),
            "break *$at",
            "continue",
            "print $rip == $at",
            "print $cs & 3",
            "x/2i $rip",
            "stepi",
            "print $rip > $at && $rip < $at + 16",
            "stepi",
            "stepi",
            "continue",
            "print $rip == $at",
            "print/x *(unsigned char *)$at == 0xcc",
            "delete",
            "detach",
        ]);
        check(&said, &["$1 = 1", "$2 = 0", "$3 = 1", "$4 = 1", "$5 = 0x0", "detached"]);
        assert!(stop(machine).contains("finished"), "{execution}");
    }
}

#[test]
fn one_processor_steps_while_the_other_stands_still() {
    if !is_possible() {
        return;
    }
    let (machine, at) = openers("auto");
    let said = machine.debug(&[
        &format!("tbreak *{at}"),
        "continue",
        "set scheduler-locking on",
        "python me = gdb.selected_thread().num",
        "python other = 3 - me",
        "python gdb.execute('thread ' + str(other))",
        "set var $there = $rip",
        "python gdb.execute('thread ' + str(me))",
        "stepi 20",
        "python gdb.execute('thread ' + str(other))",
        "print $rip == $there",
        "python gdb.execute('thread ' + str(me))",
        "set scheduler-locking off",
        "set var $here = $rip",
        "stepi",
        "print $rip != $here",
        "detach",
    ]);
    check(&said, &["Temporary breakpoint 1", "$1 = 1", "$2 = 1", "detached"]);
    assert!(stop(machine).contains("finished"));
}

#[test]
fn a_frozen_machine_has_executed_nothing_before_a_debugger_lets_it_go_on() {
    if !is_possible() {
        return;
    }
    let machine = Machine::start(&["--freeze"], &["echo", "up"]);
    let said = machine.debug(&[
        "set var $start = $rip",
        "info registers cr3 rip",
        "stepi",
        "print $rip != $start",
        "info threads",
        "print $fs_base",
    ]);
    check(&said, &["rip", "$1 = 1", "processor 0", "processor 1", "$2 = 0"]);
    // The client has left.
    assert!(machine.end().contains("up"));
}
