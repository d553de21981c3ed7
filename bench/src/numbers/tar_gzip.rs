//! Two programs with a pipe between them, which read many small files and compute; and the other way round.

use crate::number::{Number, Program, Unit, Work};

/// See the head of this file.
pub const NUMBER: Number = Number {
    name: "tar-gzip",
    title: "tar and gzip of /usr/include",
    unit: Unit::SECONDS,
    work: Work::Program(Program {
        needs: &["tar", "gzip"],
        prepare: PREPARE,
        run: RUN,
        processors: 1,
    }),
};

const PREPARE: &str = r#"

"#;

const RUN: &str = r#"
directory=include
[ "$bench_scale" -ge 100 ] || directory=include/linux
tar -C /usr -c -f - $directory | gzip >/tmp/include.tar.gz
[ "$(gzip -dc /tmp/include.tar.gz | tar -t | wc -l)" = "$(find /usr/$directory | wc -l)" ]
"#;
