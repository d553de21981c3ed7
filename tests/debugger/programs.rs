//! A program of the guest's is debugged with its symbols, in each way of executing it.

use crate::{EXECUTIONS, Machine, check, is_possible};

/// Rounds of the program: some seconds.
const ROUNDS: &str = "2000";

/// What it says in the end, if nothing of its own went wrong.
const COUNTED: &str = "counter 2000 traps 2000 own 20";

fn each_way(check: impl Fn(&Machine) -> String, seen: &str) {
    if !is_possible() {
        return;
    }
    for execution in EXECUTIONS {
        let machine =
            Machine::start(&["--user-exec", execution], &["/t/program", ROUNDS, "/t/attached"]);
        machine.wait_for("up");
        let said = check(&machine);
        println!("{execution}: {said}");
        let end = machine.end();
        assert!(end.contains(COUNTED) && end.contains(seen), "{execution}: {end}\n{said}");
    }
}

#[test]
fn breakpoints_by_name_and_steps_in_a_program() {
    let session = |machine: &Machine| {
        let said = machine.debug(&[
            "break work",
            "continue",
            "print $rip == (unsigned long)&work",
            "bt 2",
            "print counter > 0",
            "stepi",
            "print $rip > (unsigned long)&work && $rip < (unsigned long)&marker",
            "continue",
            "print $rip == (unsigned long)&work",
            "finish",
            "info threads",
            "delete",
            "tbreak work if counter % 50 == 49",
            "continue",
            "print counter % 50",
            "detach",
        ]);
        check(
            &said,
            &[
                "Breakpoint 1, work (amount=",
                "$1 = 1",
                "in main (argc=",
                "$2 = 1",
                "$3 = 1",
                "Breakpoint 1, work (amount=",
                "$4 = 1",
                "Value returned is",
                "processor 0",
                "processor 1",
                "Temporary breakpoint 2, work (amount=",
                "$6 = 49",
                "detached",
            ],
        );
        said
    };
    each_way(session, "seen 1111 2222 3333 4444");
}

#[test]
fn vector_registers_are_read_and_set() {
    let session = |machine: &Machine| {
        let said = machine.debug(&[
            "hbreak marker",
            "continue",
            "print/x $ymm7.v4_int64",
            "set var $ymm7.v4_int64[3] = 0x5555",
            "set var $xmm7.v2_int64[0] = 0x6666",
            "print/x $ymm7.v4_int64",
            "python",
            "try:",
            "    gdb.execute('set var $mxcsr = 0xffffffff')",
            "except gdb.error as error:",
            "    print(error)",
            "end",
            "print/x $mxcsr",
            "print $cr0 & 1",
            "detach",
        ]);
        check(
            &said,
            &[
                "Breakpoint 1, marker ()",
                "$1 = {0x1111, 0x2222, 0x3333, 0x4444}",
                "$2 = {0x6666, 0x2222, 0x3333, 0x5555}",
                "Could not write register",
                "$3 = 0x1f80",
                "$4 = 1",
                "detached",
            ],
        );
        said
    };
    each_way(session, "seen 6666 2222 3333 5555");
}

#[test]
fn watchpoints_stop_where_a_variable_changes() {
    let session = |machine: &Machine| {
        let said = machine.debug(&[
            "tbreak work",
            "continue",
            "watch counter",
            "continue",
            "print $rip > (unsigned long)&work && $rip < (unsigned long)&marker",
            "continue",
            "delete",
            "rwatch pattern",
            "set var $before = counter",
            "tbreak work",
            "continue",
            "print counter - $before",
            "detach",
        ]);
        check(
            &said,
            &[
                "Temporary breakpoint 1, work",
                "Hardware watchpoint 2: counter",
                "Old value = ",
                "New value = ",
                "$1 = 1",
                "New value = ",
                "Hardware read watchpoint 3: pattern",
                "Temporary breakpoint 4, work",
                "$2 = 0",
                "detached",
            ],
        );
        said
    };
    each_way(session, "seen 1111 2222 3333 4444");
}

#[test]
fn physical_memory_is_what_it_is_mapped_to() {
    let session = |machine: &Machine| {
        let said = machine.debug(&[
            "tbreak work",
            "continue",
            "eval \"monitor translate %lu\", (unsigned long)&pattern",
            "python p = gdb.execute('monitor translate ' + str(int(gdb.parse_and_eval(\
             '(unsigned long)&pattern'))), to_string=True).strip()",
            "python gdb.execute('monitor xp ' + p + ' 8')",
            "monitor physical on",
            "python print('physical', gdb.execute('x/gx ' + p, to_string=True))",
            "python gdb.execute('set var *(unsigned long *)' + p + ' = 0x1234')",
            "monitor physical off",
            "maintenance flush dcache",
            "print/x pattern",
            "monitor translate 0x10",
            "monitor processors",
            "monitor nonsense",
            "detach",
        ]);
        check(
            &said,
            &[
                "11 ba dd e0 b1 1a ca 05",
                "guest-physical from here on",
                "0x05ca1ab1e0ddba11",
                "linear from here on",
                "$1 = 0x1234",
                "no memory is at 0x10",
                "0: rip 0x",
                "1: rip 0x",
                "no such command",
                "detached",
            ],
        );
        said
    };
    each_way(session, "seen 1111 2222 3333 4444");
}
