//! One instruction at a time: every form, in every setting.
//!
//! What a case is made of follows from the seed, the form, and the number of the case of that form,
//! so that a case that disagrees can be named in `regressions.txt` and made again.

use std::collections::BTreeMap;

use iced_x86::{Code, Instruction, Mnemonic, OpKind};

use super::case::{self, Case, Outcome};
use super::compare;
use super::conditions;
use super::engine::{self, Engine, Setting};
use super::form::{Freedom, Maker, encode};
use super::known;
use super::layout;
use super::native::Native;
use super::random::{Random, seed};

/// Cases of each form, unless `BIVOUAC_INSTRUCTION_ROUNDS` says otherwise.
const ROUNDS: u64 = 6;
/// Disagreements that are printed in full.
const SHOWN: usize = 40;
/// Cases that once disagreed.
const REGRESSIONS: &str = include_str!("regressions.txt");

/// Code, and how often it disagrees, and the first time that it did.
type Failures = BTreeMap<String, (usize, String)>;

/// What a case is made from.
#[derive(Debug, Clone, Copy)]
struct Recipe {
    code: Code,
    /// Its operand crosses a page.
    crossing: bool,
    seed: u64,
    round: u64,
}

fn rounds() -> u64 {
    let text = std::env::var("BIVOUAC_INSTRUCTION_ROUNDS").ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(ROUNDS)
}

/// Try to make a case of the form for slot `index`.
fn make(recipe: Recipe, bits: u32, index: usize) -> Option<Case> {
    let number = recipe.round * 64 + u64::from(bits);
    let random = &mut Random::new(recipe.seed, &format!("{:?}", recipe.code), number);
    for _ in 0..20 {
        let mut case = conditions::case(random, bits);
        let at = layout::slot(index);
        let target = at + 20 + random.below(90);
        let crossing = recipe.crossing;
        let freedom = Freedom { bases: u16::MAX, values: true, crossing };
        let instruction = Maker { random, case: &mut case, freedom, target }.make(recipe.code);
        if names_components(recipe.code) {
            leave_out_further_components(&mut case);
        }
        if crossing && !has_memory(&instruction) {
            continue;
        }
        if let Some(bytes) = encode(&instruction, bits, at) {
            case.code[..bytes.len()].copy_from_slice(&bytes);
            case.length = bytes.len() as u32;
            return Some(case);
        }
    }
    None
}

/// Whether EDX:EAX names components of extended state.
fn names_components(code: Code) -> bool {
    use Mnemonic as M;
    let saves = matches!(code.mnemonic(), M::Xsave | M::Xsavec | M::Xsaveopt | M::Xrstor);
    saves || matches!(code.mnemonic(), M::Xsave64 | M::Xsavec64 | M::Xsaveopt64 | M::Xrstor64)
}

/// Leave out of EAX what this host would save or load (SDM 1 13.3) and guests do not have.
fn leave_out_further_components(case: &mut Case) {
    case.gpr[0] &= !case::further();
}

fn has_memory(instruction: &Instruction) -> bool {
    (0..instruction.op_count()).any(|operand| instruction.op_kind(operand) == OpKind::Memory)
}

/// How the engine's outcome differs from what it ought to be.
fn difference(
    (code, setting): (Code, Setting),
    (case, at): (&Case, u64),
    native: &Outcome,
    engine: &Outcome,
) -> String {
    if !known::is_never_announced(code) {
        return compare::differences(native, engine, &known::leniency(code, native, engine));
    }
    match setting {
        // The host may execute it, and as the engine sets the host's state up.
        Setting::UserDirect => String::new(),
        _ => compare::differences_from_invalid(case, at, engine),
    }
}

/// Both sides, what is to be run on them, and what came of it.
struct Bench {
    setting: Setting,
    native: Native,
    engine: Engine,
    cases: Vec<Case>,
    recipes: Vec<Recipe>,
    failures: Failures,
}

impl Bench {
    fn new(setting: Setting, seed: u64) -> Self {
        let data = conditions::data(&mut Random::new(seed, "data", 0));
        Self {
            setting,
            native: Native::new(&data),
            engine: Engine::new(&data, setting),
            cases: Vec::new(),
            recipes: Vec::new(),
            failures: Failures::new(),
        }
    }

    /// Whether there is such a case; it is run when the batch is full.
    fn add(&mut self, recipe: Recipe, bits: u32) -> bool {
        let Some(case) = make(recipe, bits, self.cases.len()) else { return false };
        self.cases.push(case);
        self.recipes.push(recipe);
        if self.cases.len() == layout::BATCH {
            self.run();
        }
        true
    }

    fn run(&mut self) {
        let Self { setting, native, engine, cases, recipes, failures } = self;
        let expected = native.run(cases);
        engine.run(cases, |index, outcome| {
            let Recipe { code, crossing, seed, round } = recipes[index];
            let difference = difference(
                (code, *setting),
                (&cases[index], layout::slot(index)),
                &expected[index],
                outcome,
            );
            if difference.is_empty() {
                return;
            }
            let entry = failures.entry(format!("{code:?}")).or_insert_with(|| {
                let case = compare::describe(&cases[index], layout::slot(index));
                let (bits, vector) = (cases[index].bits, expected[index].vector);
                let place = if crossing { " crossing" } else { "" };
                let name =
                    format!("    regressions.txt: {bits} {code:?} {seed:#x} {round}{place}\n");
                let end = format!("    {setting:?}; the host ended with vector {vector}\n");
                (0, format!("{case}{name}{end}{difference}"))
            });
            entry.0 += 1;
        });
        cases.clear();
        recipes.clear();
    }

    fn report(&self) {
        for (name, (times, text)) in self.failures.iter().take(SHOWN) {
            println!("{name} disagrees {times} times, first:\n{text}");
        }
        let names: Vec<_> =
            self.failures.iter().map(|(name, row)| format!("{name}({})", row.0)).collect();
        assert!(names.is_empty(), "{} forms disagree: {}", names.len(), names.join(" "));
    }
}

/// The cases of `regressions.txt` for this size of code.
fn regressions(bits: u32) -> impl Iterator<Item = Recipe> {
    let rows = REGRESSIONS.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    rows.filter_map(move |row| {
        let fields: Vec<&str> = row.split_whitespace().collect();
        let (fields, crossing) = match &fields[..] {
            [fields @ .., "crossing"] => (fields, true),
            fields => (fields, false),
        };
        let [size, name, seed, round] = fields[..] else { panic!("regressions.txt: `{row}`") };
        let code = Code::values().find(|code| format!("{code:?}") == name);
        let code = code.unwrap_or_else(|| panic!("regressions.txt: there is no {name}"));
        let seed = u64::from_str_radix(seed.trim_start_matches("0x"), 16);
        let seed = seed.expect("regressions.txt: a seed is hexadecimal");
        let round = round.parse().expect("regressions.txt: the fourth field is a number");
        (size.parse() == Ok(bits)).then_some(Recipe { code, crossing, seed, round })
    })
}

/// Run what has failed before. Each case needs the memory that its seed makes.
fn compare_regressions(bits: u32, setting: Setting) {
    let mut by_seed: BTreeMap<u64, Vec<Recipe>> = BTreeMap::new();
    let wanted = regressions(bits).filter(|recipe| known::exempt(recipe.code, setting).is_none());
    wanted.for_each(|recipe| by_seed.entry(recipe.seed).or_default().push(recipe));
    for (seed, recipes) in by_seed {
        let mut bench = Bench::new(setting, seed);
        for recipe in recipes {
            assert!(bench.add(recipe, bits), "regressions.txt: {recipe:?} cannot be made");
        }
        bench.run();
        bench.report();
    }
}

fn compare_forms(bits: u32, setting: Setting) {
    compare_regressions(bits, setting);
    compare_operands(bits, setting, false);
}

/// All forms, or those with an operand in memory, which crosses a page then.
fn compare_operands(bits: u32, setting: Setting, crossing: bool) {
    let seed = seed();
    let mut bench = Bench::new(setting, seed);
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
        if let Some(reason) = known::exempt(code, setting) {
            unmade.entry(reason).or_default().push(name);
            continue;
        }
        let recipe = |round| Recipe { code, crossing, seed, round };
        let rounds = if crossing { rounds().div_ceil(2) } else { rounds() };
        let made = (0..rounds).filter(|&round| bench.add(recipe(round), bits)).count();
        count = (count.0 + made, count.1 + usize::from(made != 0));
        if made == 0 {
            unmade.entry("no encoding of its own").or_default().push(name);
        }
    }
    bench.run();
    bench.engine.check_way(crossing && only.is_empty());
    for (reason, names) in unmade {
        println!("not compared, {reason}: {}", names.join(" "));
    }
    println!("{} cases of {} forms", count.0, count.1);
    bench.report();
}

#[test]
fn forms_of_64_bit_mode_translated() {
    compare_forms(64, Setting::User);
}

#[test]
fn forms_of_64_bit_mode_interpreted() {
    compare_forms(64, Setting::UserInterpreted);
}

#[test]
fn forms_of_64_bit_mode_run_directly() {
    if engine::has_helpers() {
        compare_forms(64, Setting::UserDirect);
    }
}

#[test]
fn forms_in_the_kernel() {
    compare_forms(64, Setting::Kernel);
}

#[test]
fn forms_in_the_kernel_on_user_memory() {
    compare_forms(64, Setting::KernelOnUser);
}

#[test]
fn forms_with_operands_that_cross_a_page() {
    compare_operands(64, Setting::User, true);
}

#[test]
fn forms_in_the_kernel_with_users_operands_that_cross_a_page() {
    compare_operands(64, Setting::KernelOnUser, true);
}

#[test]
fn forms_of_compatibility_mode_with_operands_that_cross_a_page() {
    compare_operands(32, Setting::User, true);
}

#[test]
fn forms_of_compatibility_mode_translated() {
    compare_forms(32, Setting::User);
}

#[test]
fn forms_of_compatibility_mode_interpreted() {
    compare_forms(32, Setting::UserInterpreted);
}
