//! A clone of a local repository of some thousand files, its status, and a log of one file: inflating and hashing, and
//! many small files on a tmpfs.

use crate::number::{Number, Program, Unit, Work};

/// See the head of this file.
pub const NUMBER: Number = Number {
    name: "git",
    title: "git clone and status",
    unit: Unit::SECONDS,
    work: Work::Program(Program { needs: &["git"], prepare: PREPARE, run: RUN, processors: 1 }),
};

const PREPARE: &str = r#"
mkdir /tmp/git
export HOME=/tmp/git
git config --global safe.directory '*'
git config --global advice.detachedHead false
"#;

const RUN: &str = r#"
export HOME=/tmp/git
cd /tmp/git
git clone -q --no-hardlinks /usr/src/library.git clone
cd clone
[ -z "$(git status --porcelain)" ]
[ "$(git ls-files | wc -l)" -gt 3000 ]
echo changed >>bytes/bytes.go
[ "$(git status --porcelain)" = " M bytes/bytes.go" ]
"#;
