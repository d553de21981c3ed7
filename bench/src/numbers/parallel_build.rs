//! Lua built with `make -j4` by a machine with 4 virtual CPUs, on as many real ones as the host
//! has.

use crate::number::{Number, Program, Unit, Work};

/// See the head of this file.
pub const NUMBER: Number = Number {
    name: "parallel-build",
    title: "building Lua with -j4 on 4 CPUs",
    unit: Unit::SECONDS,
    work: Work::Program(Program {
        needs: &["gcc", "make"],
        prepare: PREPARE,
        run: RUN,
        processors: 4,
    }),
};

const PREPARE: &str = r#"
mkdir /tmp/parallel
cp -r /usr/src/lua/src /tmp/parallel/
"#;

const RUN: &str = r#"
cd /tmp/parallel/src
targets=all
[ "$bench_scale" -ge 100 ] || targets="lapi.o lcode.o ldo.o lgc.o lparser.o lstrlib.o lvm.o"
make -s -j4 MYCFLAGS='-std=gnu99 -DLUA_USE_LINUX' MYLIBS='-Wl,-E -ldl' $targets >../log 2>&1 ||
    { tail -5 ../log; exit 1; }
"#;
