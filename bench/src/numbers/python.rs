//! An interpreter that makes objects, dictionaries and strings, and counts their references.

use crate::number::{Number, Program, Unit, Work};

/// See the head of this file.
pub const NUMBER: Number = Number {
    name: "python",
    title: "Python, a script",
    unit: Unit::SECONDS,
    work: Work::Program(Program { needs: &["python3"], prepare: PREPARE, run: RUN, processors: 1 }),
};

const PREPARE: &str = r#"
cat >/tmp/script.py <<'END'
import json, re, sys
scale = int(sys.argv[1])
class Node:
    def __init__(self, key, next):
        self.key, self.next = key, next
head, words = None, {}
for i in range(4000 * scale):
    head = Node(i * 7919 % 100003, head)
    word = "word%d" % (head.key % 1000)
    words[word] = words.get(word, 0) + 1
keys, node = [], head
while node:
    keys.append(node.key)
    node = node.next
keys.sort(key=lambda key: -key)
text = json.dumps({word: [count, str(count)] for word, count in words.items()}
                  | {"keys": keys[:500 * scale]})
back = json.loads(text)
digits = sum(len(found) for found in re.findall(r"[0-9]+", text))
sieve = bytearray([1]) * (10000 * scale)
for i in range(2, int(len(sieve) ** 0.5) + 1):
    if sieve[i]:
        sieve[i * i :: i] = bytes(len(range(i * i, len(sieve), i)))
fine = (sum(words.values()) == 4000 * scale and back["keys"] == keys[:500 * scale]
        and digits > 500 * scale)
if scale == 100:
    fine = fine and sum(sieve) - 2 == 78498
print("ok" if fine else "wrong")
END
"#;

const RUN: &str = r#"
[ "$(python3 /tmp/script.py "$bench_scale")" = ok ]
"#;
