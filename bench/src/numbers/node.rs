//! A compiler that writes machine code as its program runs, with threads for that and for collecting garbage.

use crate::number::{Number, Program, Unit, Work};

/// See the head of this file.
pub const NUMBER: Number = Number {
    name: "node",
    title: "Node.js, a script",
    unit: Unit::SECONDS,
    work: Work::Program(Program { needs: &["node"], prepare: PREPARE, run: RUN, processors: 1 }),
};

const PREPARE: &str = r#"
cat >/tmp/script.js <<'END'
const scale = Number(process.argv[2]);
const numbers = Array.from({ length: 4000 * scale }, (_, i) => (i * 7919) % 1000003);
const sorted = [...numbers].sort((a, b) => a - b);
const counts = new Map();
for (const n of numbers) counts.set("key" + (n % 5000), (counts.get("key" + (n % 5000)) || 0) + 1);
const text = JSON.stringify([...counts].map(([key, count]) => ({ key, count })));
const back = JSON.parse(text).reduce((sum, entry) => sum + entry.count, 0);
let x = 0;
for (let i = 0; i < 1e6 * scale; i++) x = (x * 31 + i) | 0;
const digest = require("crypto").createHash("sha256").update(text.repeat(scale)).digest("hex");
const ordered = sorted.every((n, i) => i === 0 || sorted[i - 1] <= n);
const later = Array.from({ length: 100 * scale }, (_, i) =>
    new Promise((done) => setImmediate(done, i)));
Promise.all(later).then((all) => {
    const fine = ordered && back === 4000 * scale && all.length === 100 * scale &&
        digest.length === 64;
    console.log(fine && Number.isInteger(x) ? "ok" : "wrong");
});
END
"#;

const RUN: &str = r#"
[ "$(node /tmp/script.js "$bench_scale")" = ok ]
"#;
