//! Kernels with another vDSO, and processors that lack something.

use checkpoint::state::{Bytes, Source, State};
use checkpoint::{Error, Given, restart};

use crate::support::{Directory, Namespace, Subject, compile, image_with};

/// Have an image come from a kernel with another vDSO, which differs in a byte that means nothing.
fn change(state: &mut State) {
    let last = state.vdso_code.0.last_mut().expect("it is in the image");
    *last ^= 1;
    state.vdso = Bytes(blake3::hash(&state.vdso_code).as_bytes().to_vec());
}

/// It goes on with another vDSO, from there as usual, and with another one once more.
fn check(program: &str) {
    let directory = Directory::new(&format!("vdso-{program}"));
    let Some(compiled) = compile(&directory, program) else { return };
    let Some(mut subject) = Subject::start(&directory, &compiled) else { return };
    let vdso = |state: &State| {
        let mut mappings = state.processes[0].memory.mappings.iter();
        mappings.find(|mapping| mapping.source == Source::Vdso).map(|vdso| vdso.start)
    };
    let first = subject.transplant_with(change);
    subject.check();
    let second = subject.transplant();
    subject.check();
    assert_ne!(vdso(first.state()), vdso(second.state()));
    subject.transplant_with(change);
    subject.check();
    subject.check_transplant();
    subject.check();
}

#[test]
fn a_process_goes_on_with_another_vdso() {
    check("single");
}

#[test]
fn a_tree_of_processes_goes_on_with_another_vdso() {
    check("tree");
}

#[test]
fn threads_go_on_with_another_vdso() {
    check("threads");
}

/// Threads that are in the vDSO nearly always are led out of it.
#[test]
fn threads_that_use_it_go_on_with_another_vdso() {
    let directory = Directory::new("vdso-clock");
    let Some(compiled) = compile(&directory, "clock") else { return };
    let Some(mut subject) = Subject::start(&directory, &compiled) else { return };
    for _ in 0..4 {
        subject.transplant_with(change);
        subject.check();
        subject.transplant();
        subject.check();
    }
}

#[test]
fn an_image_without_its_vdso_is_refused_elsewhere() {
    let directory = Directory::new("vdso-refused");
    let Some(compiled) = compile(&directory, "still") else { return };
    let Some(subject) = Subject::start(&directory, &compiled) else { return };
    let without = |state: &mut State| {
        change(state);
        state.vdso_code = Bytes::default();
    };
    refused(&subject, without, "another vDSO");
}

#[test]
fn an_image_of_a_better_processor_is_refused() {
    let directory = Directory::new("processor");
    let Some(compiled) = compile(&directory, "still") else { return };
    let Some(subject) = Subject::start(&directory, &compiled) else { return };
    let better = |state: &mut State| state.processor.push("levitation".to_owned());
    refused(&subject, better, "its processor had levitation, which this one has not");
    let larger = |state: &mut State| {
        let extended = &mut state.processes[0].threads[0].extended;
        extended.components = vec![(60, Bytes(vec![1]))];
        extended.in_use = 3 | 1 << 60;
    };
    refused(&subject, larger, "registers of kind 60");
}

/// A restart of a changed image is refused with these words.
fn refused(subject: &Subject, change: impl FnOnce(&mut State), expected: &str) {
    let image = image_with(&mut subject.freeze(), change);
    let namespace = Namespace::new(&[]).expect("the first one could be made");
    match restart(namespace.init, &image, &Given::new()) {
        Err(Error::Host(why)) => assert!(why.contains(expected), "{why}"),
        other => panic!("{other:?}"),
    }
}
