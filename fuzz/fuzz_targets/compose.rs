//! A compose file: it is read or refused, and what its services come to is shown so that a shell reads the same.

#![no_main]

use std::path::Path;

use compose::Project;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let variable = |name: &str| name.len().is_multiple_of(2).then(|| format!("${{{name}}} '\"\\"));
    let Ok(project) = Project::parse(text, &variable) else { return };
    let name = "project".parse().expect("it is one");
    for (service, it) in &project.services {
        let Ok(machine) = it.machine(&name, service, Path::new("/home")) else { continue };
        if machine.options.iter().any(|word| word.contains('\0')) {
            continue;
        }
        let words = shlex::split(&machine.to_string()).expect("no quotation is without end");
        assert_eq!(words[..3], ["biv", "run", "-d"]);
        assert_eq!(words[3..], machine.options);
    }
});
