//! The tables of `--stats`: what the engine and the vCPU threads did, with a column for each vCPU
//! and, if there are several, one for the sum; then what the interpreter was used for, and the
//! requests for each of the host's directories.

use std::collections::BTreeSet;

use vmm::{Activity, Age, DirectoryRequests, Statistics, Vcpu};

/// The most common instructions that were interpreted.
const MAX_FORMS: usize = 20;

/// A row of the table: its name and its counter.
type Row<T> = (&'static str, fn(&T) -> u64);

/// The rows, under their headings.
const GROUPS: [(&str, &[Row<Statistics>]); 4] = [
    (
        "events",
        &[
            ("system calls", |s| s.system_calls),
            ("exceptions", |s| s.exceptions),
            ("interrupts", |s| s.interrupts),
            ("interpreted instructions", |s| s.interpreted),
            ("assisted instructions", |s| s.assisted),
            ("cpuid answered in place", |s| s.answered),
        ],
    ),
    (
        "translated code",
        &[
            ("blocks", |s| s.blocks),
            ("instructions in them", |s| s.block_instructions),
            ("blocks dropped (written)", |s| s.invalidated_blocks),
            ("times the cache was full", |s| s.cache_drops),
            ("entries", |s| s.entries),
            ("links", |s| s.links),
            ("jump look-ups", |s| s.lookups),
        ],
    ),
    (
        "memory",
        &[
            ("TLB misses", |s| s.misses),
            ("TLB fills", |s| s.tlb_fills),
            ("crossings split", |s| s.crossings),
            ("crossings interpreted", |s| s.crossings_interpreted),
            ("TLB flushes", |s| s.tlb_flushes),
            ("mirror faults", |s| s.mirror_faults),
            ("mirror exceptions", |s| s.mirror_exceptions),
        ],
    ),
    (
        "user code run directly",
        &[
            ("cycles", |s| s.direct_cycles),
            ("runs", |s| s.direct_runs),
            ("ended in the kernel", |s| s.direct_entries),
            ("ended at a missing page", |s| s.direct_misses),
            ("ended at a forbidden page", |s| s.direct_suspensions),
            ("looks by the timer", |s| s.direct_timer_looks),
            ("looks that told something", |s| s.direct_looks),
            ("threads promoted", |s| s.direct_promotions),
            ("threads that began so", |s| s.direct_begun),
            ("threads demoted", |s| s.direct_demotions),
            ("threads that kept to forbidden pages", |s| s.direct_barred),
            ("address spaces made", |s| s.direct_spaces),
            ("pages mapped", |s| s.direct_pages),
            ("flushes", |s| s.direct_flushes),
        ],
    ),
];

/// The same of the processors' threads.
const THREADS: (&str, &[Row<Activity>]) = (
    "threads",
    &[
        ("exits", |a| a.exits),
        ("kicks", |a| a.kicks),
        ("interrupts injected", |a| a.interrupts),
        ("halts", |a| a.halts),
        ("halts watched away", |a| a.watched_halts),
        ("calls to end a halt", |a| a.calls_to_end_halts),
        ("calls to interrupt many", |a| a.calls_to_interrupt),
        ("calls to yield", |a| a.calls_to_yield),
        ("flushes on waking", |a| a.flushes_on_waking),
        ("disk jobs", |a| a.disk_jobs),
        ("disk jobs in halts", |a| a.disk_jobs_in_halts),
        ("waits at its gate", |a| a.waits_at_gate),
        ("stolen milliseconds", |a| a.stolen.as_millis() as u64),
    ],
);

/// Everything, after a machine that has lived for so long.
pub fn describe(processors: &[Vcpu], activity: &[Activity], age: Age) -> String {
    let all: Vec<Statistics> = processors.iter().map(Vcpu::statistics).collect();
    let mut text = table(&all, age);
    text.push_str(&group(&THREADS, activity));
    for (number, processor) in processors.iter().enumerate() {
        text.push_str(&forms("interpreted", number, &processor.most_interpreted()));
        text.push_str(&forms("assisted", number, &processor.most_assisted()));
    }
    text
}

/// What Rust did for a processor's translated code, by instruction.
fn forms(what: &str, number: usize, forms: &[(String, u64)]) -> String {
    let heading = format!("{what} by processor {number}\n");
    let rows = forms.iter().take(MAX_FORMS);
    let rows: String = rows.map(|(form, count)| line(form, &[grouped(*count)])).collect();
    if rows.is_empty() { rows } else { heading + &rows }
}

/// What was asked of directories, those asked for most often in all first; nothing without directories.
pub fn describe_requests(directories: &[DirectoryRequests]) -> String {
    let of = |directory: &DirectoryRequests, opcode| {
        let found = directory.counts.iter().find(|(number, _)| *number == opcode);
        found.map_or(0, |(_, count)| *count)
    };
    let sum = |opcode| directories.iter().map(|directory| of(directory, opcode)).sum::<u64>();
    let counts = directories.iter().flat_map(|directory| &directory.counts);
    let asked: BTreeSet<u32> = counts.map(|(opcode, _)| *opcode).collect();
    let mut asked: Vec<u32> = asked.into_iter().collect();
    asked.sort_by_key(|opcode| std::cmp::Reverse(sum(*opcode)));
    if asked.is_empty() {
        return String::new();
    }
    let tags: Vec<String> = directories.iter().map(|directory| directory.tag.clone()).collect();
    let mut text = format!("requests to directories\n{}", line("", &tags));
    for opcode in asked {
        let unnamed = || format!("request {opcode}");
        let name = files::request_name(opcode).map_or_else(unnamed, str::to_owned);
        let cells: Vec<String> =
            directories.iter().map(|directory| grouped(of(directory, opcode))).collect();
        text.push_str(&line(&name, &cells));
    }
    text
}

fn table(all: &[Statistics], age: Age) -> String {
    let with_sum = all.len() > 1;
    let mut heads: Vec<String> = (0..all.len()).map(|number| format!("cpu {number}")).collect();
    heads.extend(with_sum.then(|| "sum".to_owned()));
    let mut text = line("", &heads);
    for (number, rows) in GROUPS.iter().enumerate() {
        text.push_str(&group(rows, all));
        if number == 0 {
            text.push_str(&interpreted_for_a_call(all));
        }
    }
    let direct = all.iter().map(|statistics| statistics.direct_cycles);
    let lived = age.cycles.saturating_mul(all.len() as u64);
    let sum = with_sum.then(|| share(direct.clone().sum(), lived));
    let cells: Vec<String> = direct.map(|cycles| share(cycles, age.cycles)).chain(sum).collect();
    text.push_str(&line("share of all time", &cells));
    let cache = all.iter().map(|statistics| statistics.cache_bytes).max().unwrap_or_default();
    text.push_str("in a second\n");
    let faults = all.iter().map(|statistics| statistics.mirror_faults);
    let sum = with_sum.then(|| faults.clone().sum());
    let cells: Vec<String> = faults.chain(sum).map(|count| rate(count, age)).collect();
    text.push_str(&line("mirror faults (rate)", &cells));
    text.push_str(&format!("code cache, of all processors\n{}", line("bytes", &[grouped(cache)])));
    text
}

/// How many instructions were interpreted for each system call.
fn interpreted_for_a_call(all: &[Statistics]) -> String {
    let ratio =
        |interpreted: u64, calls: u64| format!("{:.3}", interpreted as f64 / calls.max(1) as f64);
    let each = all.iter().map(|it| ratio(it.interpreted, it.system_calls));
    let sum = |counter: fn(&Statistics) -> u64| all.iter().map(counter).sum();
    let of_all = ratio(sum(|it| it.interpreted), sum(|it| it.system_calls));
    let cells: Vec<String> = each.chain((all.len() > 1).then_some(of_all)).collect();
    line("interpreted/system call", &cells)
}

fn group<T>((heading, rows): &(&str, &[Row<T>]), all: &[T]) -> String {
    let mut text = format!("{heading}\n");
    for (name, counter) in *rows {
        let values = all.iter().map(counter);
        let sum = (all.len() > 1).then(|| all.iter().map(counter).sum());
        let cells: Vec<String> = values.chain(sum).map(grouped).collect();
        text.push_str(&line(name, &cells));
    }
    text
}

fn line(name: &str, cells: &[String]) -> String {
    let cells: String = cells.iter().map(|cell| format!(" {cell:>18}")).collect();
    format!("  {name:<26}{cells}\n")
}

/// A number as people read it: 1,234,567.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Events in a second.
fn rate(count: u64, age: Age) -> String {
    grouped((count as f64 / age.seconds.max(f64::MIN_POSITIVE)) as u64)
}

fn share(part: u64, whole: u64) -> String {
    format!("{:.1}%", part as f64 * 100.0 / whole.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_a_column_for_each_directory() {
        let directory = |tag: &str, counts: &[(u32, u64)]| DirectoryRequests {
            tag: tag.to_owned(),
            counts: counts.to_vec(),
        };
        let all = [directory("biv0", &[(1, 7), (3, 1200)]), directory("biv1", &[(1, 2), (63, 1)])];
        let text = describe_requests(&all);
        let rows: Vec<Vec<&str>> =
            text.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(
            rows,
            [
                vec!["biv0", "biv1"],
                vec!["GETATTR", "1,200", "0"],
                vec!["LOOKUP", "7", "2"],
                vec!["request", "63", "0", "1"]
            ]
        );
        assert_eq!(describe_requests(&[]), "");
    }

    #[test]
    fn numbers_are_grouped() {
        let check = |number, expected: &str| assert_eq!(grouped(number), expected);
        check(0, "0");
        check(999, "999");
        check(1000, "1,000");
        check(u64::MAX, "18,446,744,073,709,551,615");
    }

    #[test]
    fn several_processors_are_added_up() {
        let calls = Statistics { interpreted: 3, system_calls: 4, ..Statistics::default() };
        let one = Statistics { direct_cycles: 500, direct_runs: 3, mirror_faults: 7000, ..calls };
        let other = Statistics { direct_cycles: 250, direct_runs: 2000, interpreted: 0, ..calls };
        let age = Age { cycles: 1000, seconds: 2.0 };
        let text = table(&[one, other], age);
        let row = |name: &str| {
            let line = text.lines().find(|line| line.trim_start().starts_with(name));
            line.unwrap_or_else(|| panic!("no {name}: {text}")).split_whitespace().rev().take(3)
        };
        assert_eq!(row("runs").collect::<Vec<_>>(), ["2,003", "2,000", "3"]);
        assert_eq!(row("share of all time").collect::<Vec<_>>(), ["37.5%", "25.0%", "50.0%"]);
        assert_eq!(row("mirror faults (rate)").collect::<Vec<_>>(), ["3,500", "0", "3,500"]);
        assert_eq!(row("interpreted/system call").collect::<Vec<_>>(), ["0.375", "0.000", "0.750"]);
        assert!(!table(&[one], age).contains("sum"));
    }
}
