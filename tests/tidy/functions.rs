//! Functions fit on a screen.

use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Block, Signature};

/// Lines that a function may have, its signature included.
const MAX_LINES: usize = 70;

/// Functions that are longer: `file function`. The list may only shrink.
const LONGER: [&str; 6] = [
    "crates/cpu/src/context.rs new",
    "crates/cpu/src/interpret/suppression.rs rearranges",
    "crates/cpu/src/translate/generate.rs generate",
    "crates/cpu/src/translate/generate.rs instruction",
    "crates/direct/tests/attacks.rs a_forged_stop_is_what_the_program_could_have_had",
    "crates/domain/src/run/guest.rs find",
];

/// The functions of a file that are too long.
#[derive(Default)]
struct Long {
    found: Vec<(String, usize)>,
}

impl Long {
    fn look(&mut self, signature: &Signature, block: &Block) {
        let line = |span: Span| (span.start().line, span.end().line);
        let lines = line(block.span()).1 + 1 - line(signature.span()).0;
        if lines > MAX_LINES {
            self.found.push((signature.ident.to_string(), lines));
        }
    }
}

impl<'ast> Visit<'ast> for Long {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.look(&function.sig, &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.look(&function.sig, &function.block);
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let Some(block) = &function.default {
            self.look(&function.sig, block);
        }
        visit::visit_trait_item_fn(self, function);
    }
}

#[test]
fn functions_fit_on_a_screen() {
    let mut longer: Vec<String> = Vec::new();
    for (name, source) in super::sources() {
        let file = syn::parse_file(&source).unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut long = Long::default();
        long.visit_file(&file);
        longer.extend(long.found.into_iter().map(|(function, lines)| {
            println!("{name} {function} has {lines} lines");
            format!("{name} {function}")
        }));
    }
    longer.sort();
    assert_eq!(longer, LONGER, "functions of more than {MAX_LINES} lines");
}
