//! Lua, as Debian's source package has it, built by gcc and make: short-lived processes that
//! compute, fault pages in, and read and write files. With `--quick`, some of its files.

use crate::number::{Number, Program, Unit, Work};

/// `$jobs` is how many of them make is told to do at once.
macro_rules! run {
    ($jobs:literal) => {
        concat!(
            r#"
cd /tmp/build/src
targets=all
[ "$bench_scale" -ge 100 ] || targets="lapi.o lcode.o ldo.o lgc.o lparser.o lstrlib.o lvm.o"
make -s "#,
            $jobs,
            r#" MYCFLAGS='-std=gnu99 -DLUA_USE_LINUX' MYLIBS='-Wl,-E -ldl' $targets >../log 2>&1 ||
    { tail -5 ../log; exit 1; }
[ "$bench_scale" -lt 100 ] || [ "$(./lua -e 'print(6 * 7)')" = 42 ]
"#
        )
    };
}
pub(super) use run;

/// See the head of this file.
pub const NUMBER: Number = Number {
    name: "build",
    title: "building Lua with gcc and make",
    unit: Unit::SECONDS,
    work: Work::Program(Program {
        needs: &["gcc", "make"],
        prepare: PREPARE,
        run: run!(""),
        processors: 1,
    }),
};

/// Lua's sources where they can be written to.
pub const PREPARE: &str = r#"
mkdir /tmp/build
cp -r /usr/src/lua/src /tmp/build/
"#;
