//! Signatures of the translator tell addresses apart: of host code, linear and guest-physical.

use proc_macro2::Ident;
use syn::visit::{self, Visit};
use syn::{FnArg, PatIdent, ReturnType, Signature, Type};

/// Where the rule holds.
const FOLDER: &str = "crates/cpu/src/translate/";

/// Words in the names of parameters, and of functions with a result, that mean an address.
const ADDRESSES: [&str; 24] = [
    "address",
    "at",
    "back",
    "base",
    "canonical",
    "code",
    "cold",
    "end",
    "entry",
    "from",
    "here",
    "host",
    "linear",
    "live",
    "next",
    "page",
    "physical",
    "place",
    "rip",
    "start",
    "target",
    "thunk",
    "to",
    "warm",
];

/// Numbers for addresses that are left: `file function name`. The list may only shrink.
const LEFT: [&str; 1] = [
    // One of the two views of the code cache, only one of which is executed.
    "crates/cpu/src/translate/views.rs unmap start",
];

fn means_address(name: &str) -> bool {
    name.split('_').any(|word| ADDRESSES.contains(&word))
}

/// The identifiers in a piece of syntax.
#[derive(Default)]
struct Identifiers(Vec<String>);

impl<'ast> Visit<'ast> for Identifiers {
    fn visit_ident(&mut self, ident: &'ast Ident) {
        self.0.push(ident.to_string());
    }
}

/// Whether `u64` is a part of a type.
fn has_number(ty: &Type) -> bool {
    let mut identifiers = Identifiers::default();
    identifiers.visit_type(ty);
    identifiers.0.iter().any(|ident| ident == "u64")
}

/// The names that a pattern binds.
#[derive(Default)]
struct Bound(Vec<String>);

impl<'ast> Visit<'ast> for Bound {
    fn visit_pat_ident(&mut self, pattern: &'ast PatIdent) {
        self.0.push(pattern.ident.to_string());
        visit::visit_pat_ident(self, pattern);
    }
}

/// Numbers for addresses in the signatures of a file: the function, and the parameter or "result".
#[derive(Default)]
struct Numbers(Vec<(String, String)>);

impl<'ast> Visit<'ast> for Numbers {
    fn visit_signature(&mut self, signature: &'ast Signature) {
        let function = signature.ident.to_string();
        for input in &signature.inputs {
            let FnArg::Typed(parameter) = input else { continue };
            let mut bound = Bound::default();
            bound.visit_pat(&parameter.pat);
            let addresses = bound.0.into_iter().filter(|name| means_address(name));
            if has_number(&parameter.ty) {
                self.0.extend(addresses.map(|name| (function.clone(), name)));
            }
        }
        if let ReturnType::Type(_, ty) = &signature.output
            && means_address(&function)
            && has_number(ty)
        {
            self.0.push((function, "result".to_owned()));
        }
        visit::visit_signature(self, signature);
    }
}

fn numbers_in(name: &str, source: &str) -> Vec<(String, String)> {
    let file = syn::parse_file(source).unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut numbers = Numbers::default();
    numbers.visit_file(&file);
    numbers.0
}

#[test]
fn addresses_have_types_in_the_translator() {
    let sources: Vec<_> = super::sources();
    let sources: Vec<_> = sources.iter().filter(|(name, _)| name.starts_with(FOLDER)).collect();
    assert!(sources.len() > 20, "only {} files in {FOLDER}", sources.len());
    let mut left: Vec<String> = Vec::new();
    for (name, source) in sources {
        let found = numbers_in(name, source).into_iter();
        left.extend(found.map(|(function, what)| format!("{name} {function} {what}")));
    }
    left.sort();
    assert_eq!(left, LEFT, "addresses that are u64: use HostCode, Linear or Physical");
}

#[test]
fn numbers_for_addresses_are_found_and_nothing_else() {
    let sample = "
        impl Emitter {
            fn here(&self) -> u64 { 0 }
            fn next_entry(&self) -> Result<Option<u64>, Trap> { Ok(None) }
            fn patch(&mut self, at: u64, target: HostCode) {}
            fn unmap(((start, bytes), list): ((u64, u64), &[u64])) {}
            fn host_length(&self, size: u64) -> usize { 0 }
            fn constant(&mut self, register: Register, value: u64) -> u64 { 0 }
            fn link(&mut self, page: Option<Physical>, target: HostCode) -> Linear { todo }
        }
        trait Watches { fn tell(&self, guest_physical: &mut u64); }
    ";
    let expected = [
        ("here", "result"),
        ("next_entry", "result"),
        ("patch", "at"),
        ("unmap", "start"),
        ("tell", "guest_physical"),
    ];
    let expected = expected.map(|(function, what)| (function.to_owned(), what.to_owned()));
    assert_eq!(numbers_in("the sample", sample), expected);
}
