//! Lua built with `make -j2` by a machine with 2 virtual CPUs.

use crate::number::{Number, Program, Unit, Work};

/// See the head of this file.
pub const NUMBER: Number = Number {
    name: "build-2",
    title: "building Lua with -j2 on 2 CPUs",
    unit: Unit::SECONDS,
    work: Work::Program(Program {
        needs: &["gcc", "make"],
        prepare: PREPARE,
        run: RUN,
        processors: 2,
    }),
};

const PREPARE: &str = r#"
mkdir /tmp/build
cp -r /usr/src/lua/src /tmp/build/
"#;

const RUN: &str = r#"
cd /tmp/build/src
targets=all
[ "$bench_scale" -ge 100 ] || targets="lapi.o lcode.o ldo.o lgc.o lparser.o lstrlib.o lvm.o"
make -s -j2 MYCFLAGS='-std=gnu99 -DLUA_USE_LINUX' MYLIBS='-Wl,-E -ldl' $targets >../log 2>&1 ||
    { tail -5 ../log; exit 1; }
[ "$bench_scale" -lt 100 ] || [ "$(./lua -e 'print(6 * 7)')" = 42 ]
"#;
