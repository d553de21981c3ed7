//! An interpreter that calls functions, sorts a table, and builds and searches strings.

use crate::number::{Number, Program, Unit, Work};

/// See the head of this file.
pub const NUMBER: Number = Number {
    name: "lua",
    title: "Lua, a script",
    unit: Unit::SECONDS,
    work: Work::Program(Program { needs: &["lua5.4"], prepare: PREPARE, run: RUN, processors: 1 }),
};

const PREPARE: &str = r#"
cat >/tmp/script.lua <<'END'
local scale = tonumber(arg[1])
local function fib(n) if n < 2 then return n end return fib(n - 1) + fib(n - 2) end
local sum = 0
for _ = 1, scale do sum = sum + fib(20) end
local numbers = {}
for i = 1, 3000 * scale do numbers[i] = i * 7919 % 1000003 end
table.sort(numbers)
for i = 2, #numbers do assert(numbers[i - 1] <= numbers[i]) end
local parts = {}
for i = 1, 1000 * scale do parts[i] = string.format("%d:%s", numbers[i], ("x"):rep(i % 7)) end
local text, words = table.concat(parts, ","), 0
for _ in text:gmatch("%d+:") do words = words + 1 end
print(sum == 6765 * scale and words == 1000 * scale and "ok" or "wrong")
END
"#;

const RUN: &str = r#"
[ "$(lua5.4 /tmp/script.lua "$bench_scale")" = ok ]
"#;
