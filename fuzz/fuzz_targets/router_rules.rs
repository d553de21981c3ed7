//! Rules of the firewall-router as a text: it is read or refused, and what is read is printed so that it is read again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use router::Rules;

fuzz_target!(|text: &str| {
    match text.parse::<Rules>() {
        Ok(rules) => {
            // Bursts are written out, so that the text may be longer than it may be.
            let printed = rules.to_string();
            if printed.len() <= router::limits::RULES_BYTES {
                assert_eq!(printed.parse::<Rules>().as_ref(), Ok(&rules), "{printed}");
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
