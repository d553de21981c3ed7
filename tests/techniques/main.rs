//! Machines without what makes them fast (`biv run --without`): they do the same, in another way. With
//! `BIVOUAC_TECHNIQUES=all` each technique is left out by itself as well, in half a minute.

#![forbid(unsafe_code)]

use vmm::{Technique, UserExecution};
use whole_machine::modes::Mode;
use whole_machine::{counted, text};

/// Processes, pipes, memory, a signal, strings and computing.
const SCRIPT: &str = "
    trap 'echo caught' USR1
    kill -USR1 $$
    i=0
    while [ $i -lt 60 ]; do /bin/true || exit 1; i=$((i + 1)); done
    seq 1 20000 | sort -r | sort -n | sha256sum";

/// What that says anywhere.
const SAID: &str = "caught\nf6351f5ead9a700e34275480b3856ea738122a7c57bdeb744a631251c069587a  -\n";

/// What the engine did in a machine without `list`, or with everything, which did all that it should.
fn statistics(mode: Mode, list: Option<&str>) -> String {
    let without = list.into_iter().flat_map(|list| ["--without", list]);
    let options: Vec<&str> = ["--stats"].into_iter().chain(without).collect();
    let output = mode.in_machine(&options, &["sh", "-c", SCRIPT]);
    let stats = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{mode:?} without {list:?}: {stats}");
    assert_eq!(text(&output.stdout), SAID, "{mode:?} without {list:?}");
    stats
}

#[test]
fn a_machine_without_any_technique_does_the_same() {
    let modes = [(UserExecution::Auto, 1), (UserExecution::Direct, 4)];
    for (execution, processors) in modes {
        let stats = statistics(Mode { execution, processors }, Some("all"));
        assert_eq!(counted(&stats, "links"), 0, "{stats}");
        assert_eq!(counted(&stats, "mirror faults"), 0, "{stats}");
        let (misses, pages) =
            (counted(&stats, "ended at a missing page"), counted(&stats, "pages mapped"));
        assert!(pages <= misses, "{misses} misses, {pages} pages: {stats}");
        assert!(counted(&stats, "pushfq") > 10_000, "{stats}");
    }
}

/// Linux leaves pages that are not global in its direct map (where modules' initialization was), which belong to
/// whatever has this memory next. What a process may cost: with several processors Linux maps a new kernel stack for
/// many of them, which is touched at both ends and whose memory is touched once more when it is zeroed.
#[test]
fn switches_of_address_space_leave_the_mirror_alone() {
    const PROCESSES: u64 = 600;
    for processors in [1, 2] {
        let mode = Mode { execution: UserExecution::Translate, processors };
        let faults = |processes: u64| {
            let script =
                format!("i=0; while [ $i -lt {processes} ]; do /bin/true; i=$((i + 1)); done");
            let output = mode.in_machine(&["--stats"], &["sh", "-c", &script]);
            let stats = text(&output.stderr);
            assert_eq!(output.status.code(), Some(0), "{mode:?}: {stats}");
            counted(&stats, "mirror faults")
        };
        let (few, many) = (faults(1), faults(PROCESSES));
        assert!(few > 0, "the mirror was not used");
        assert!(many < few + 4 * PROCESSES, "{mode:?}: {few} faults, {many} with processes");
    }
}

#[test]
fn each_technique_can_be_left_out() {
    if std::env::var("BIVOUAC_TECHNIQUES").as_deref() != Ok("all") {
        println!("left out; BIVOUAC_TECHNIQUES=all runs it");
        return;
    }
    let of_mode = |execution| Mode { execution, processors: 1 };
    let (translate, direct) = (of_mode(UserExecution::Translate), of_mode(UserExecution::Direct));
    let (translated, run_directly) = (statistics(translate, None), statistics(direct, None));
    for (technique, name) in Technique::ALL {
        // What shows that it is gone: a counter, and whether that grows.
        let (mode, sign) = match technique {
            Technique::Mirror => (translate, Some(("mirror faults", false))),
            // Between what is left of links there are those to blocks without coalesced accesses.
            Technique::Links => (translate, Some(("links", false))),
            Technique::CrossPageLinks => (translate, Some(("links", false))),
            // Programs of the default guest have one address each, but are found by another way.
            Technique::Relocation | Technique::PhysicalJumps => {
                (translate, Some(("jump look-ups", true)))
            }
            Technique::Crossings => (translate, Some(("crossings interpreted", true))),
            Technique::Strings | Technique::Inline | Technique::Entries | Technique::Assists => {
                (translate, Some(("interpreted instructions", true)))
            }
            Technique::ExtendedState => (translate, Some(("xsavec64", true))),
            Technique::Batches => (direct, Some(("pages mapped", false))),
            Technique::Premap => (direct, Some(("ended at a missing page", true))),
            // Nothing is counted that changes by much.
            Technique::Handover | Technique::Coalescing | Technique::Returns => (translate, None),
            Technique::Copies => (direct, None),
        };
        let without = statistics(mode, Some(name));
        let Some((counter, grows)) = sign else { continue };
        let with = if mode == direct { &run_directly } else { &translated };
        let count = |stats| counted(stats, counter) as f64;
        let factor = count(&without) / count(with);
        println!("{name}: {counter}, {factor:.2} times as many");
        let gone = if grows { factor > 1.2 } else { factor < 0.8 };
        assert!(gone, "{name}: {counter}: {with}\n{without}");
    }
}
