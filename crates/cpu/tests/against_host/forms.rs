//! One instruction at a time: every form.

use std::collections::BTreeMap;

use iced_x86::Code;

use super::case::Case;
use super::compare;
use super::conditions;
use super::engine::Engine;
use super::form::{Freedom, Maker, encode};
use super::known;
use super::layout;
use super::native::Native;
use super::random::Random;

/// Cases of each form, unless `BIVOUAC_INSTRUCTION_ROUNDS` says otherwise.
const ROUNDS: u64 = 6;
/// Disagreements that are printed in full.
const SHOWN: usize = 40;

/// Code, and how often it disagrees, and the first time that it did.
type Failures = BTreeMap<String, (usize, String)>;

fn rounds() -> u64 {
    let text = std::env::var("BIVOUAC_INSTRUCTION_ROUNDS").ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(ROUNDS)
}

/// Try to make a case of the form for slot `index`.
fn make(random: &mut Random, code: Code, bits: u32, index: usize) -> Option<Case> {
    for _ in 0..20 {
        let mut case = conditions::case(random, bits);
        let at = layout::slot(index);
        let target = at + 20 + random.below(90);
        let freedom = Freedom { bases: u16::MAX, values: true };
        let instruction = Maker { random, case: &mut case, freedom, target }.make(code);
        if let Some(bytes) = encode(&instruction, bits, at) {
            case.code[..bytes.len()].copy_from_slice(&bytes);
            case.length = bytes.len() as u32;
            return Some(case);
        }
    }
    None
}

fn compare_forms(bits: u32, interpret_only: bool) {
    let mut random = Random::new(u64::from(bits));
    let data = conditions::data(&mut random);
    let mut native = Native::new(&data);
    let mut engine = Engine::new(&data, interpret_only);
    let (mut cases, mut codes) = (Vec::new(), Vec::new());
    let mut failures = Failures::new();
    let mut unmade: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut count = (0, 0);
    let only = std::env::var("BIVOUAC_INSTRUCTION").unwrap_or_default();
    for code in Code::values() {
        let info = code.op_code();
        let in_mode = if bits == 64 { info.mode64() } else { info.mode32() };
        let name = format!("{code:?}");
        if !info.is_instruction() || !in_mode || !name.contains(&only) {
            continue;
        }
        if let Some(reason) = known::exempt(code, bits) {
            unmade.entry(reason).or_default().push(name);
            continue;
        }
        let mut made = 0;
        for _ in 0..rounds() {
            if let Some(case) = make(&mut random, code, bits, cases.len()) {
                cases.push(case);
                codes.push(code);
                made += 1;
            }
            if cases.len() == layout::BATCH {
                run(&mut native, &mut engine, &cases, &codes, &mut failures);
                cases.clear();
                codes.clear();
            }
        }
        count = (count.0 + made, count.1 + usize::from(made != 0));
        if made == 0 {
            unmade.entry("no encoding of its own").or_default().push(name);
        }
    }
    run(&mut native, &mut engine, &cases, &codes, &mut failures);
    report(&unmade, &failures, count);
}

fn run(
    native: &mut Native,
    engine: &mut Engine,
    cases: &[Case],
    codes: &[Code],
    failures: &mut Failures,
) {
    let expected = native.run(cases);
    engine.run(cases, |index, outcome| {
        let difference = {
            let allowed = known::leniency(codes[index], &expected[index], outcome);
            compare::differences(&expected[index], outcome, &allowed)
        };
        if !difference.is_empty() {
            let entry = failures.entry(format!("{:?}", codes[index]));
            let entry = entry.or_insert_with(|| {
                let case = compare::describe(&cases[index], layout::slot(index));
                let vector = expected[index].vector;
                (0, format!("{case}    the host ended with vector {vector}\n{difference}"))
            });
            entry.0 += 1;
        }
    });
}

fn report(unmade: &BTreeMap<&str, Vec<String>>, failures: &Failures, count: (usize, usize)) {
    for (reason, names) in unmade {
        println!("not compared, {reason}: {}", names.join(" "));
    }
    println!("{} cases of {} forms", count.0, count.1);
    for (name, (times, text)) in failures.iter().take(SHOWN) {
        println!("{name} disagrees {times} times, first:\n{text}");
    }
    let names: Vec<_> = failures.iter().map(|(name, row)| format!("{name}({})", row.0)).collect();
    assert!(failures.is_empty(), "{} forms disagree: {}", failures.len(), names.join(" "));
}

#[test]
fn forms_of_64_bit_mode_translated() {
    compare_forms(64, false);
}

#[test]
fn forms_of_64_bit_mode_interpreted() {
    compare_forms(64, true);
}

#[test]
fn forms_of_compatibility_mode() {
    compare_forms(32, false);
}
