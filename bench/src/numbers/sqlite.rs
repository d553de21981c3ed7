//! SQLite on a file on a tmpfs: inserts in transactions and one by one, indexes, joins, patterns, updates, deletions,
//! and a vacuum.

use crate::number::{Number, Program, Unit, Work};

/// See the head of this file.
pub const NUMBER: Number = Number {
    name: "sqlite",
    title: "SQLite, a mixed script",
    unit: Unit::SECONDS,
    work: Work::Program(Program { needs: &["sqlite3"], prepare: PREPARE, run: RUN, processors: 1 }),
};

const PREPARE: &str = r#"
mkdir /tmp/sqlite
cat >/tmp/sqlite/script <<END
CREATE TABLE person(id INTEGER PRIMARY KEY, name TEXT, town INTEGER, born INTEGER);
CREATE TABLE town(id INTEGER PRIMARY KEY, name TEXT);
BEGIN;
WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i + 1 FROM n WHERE i < $((6000 * bench_scale)))
    INSERT INTO person
    SELECT i, 'name ' || (i * 7919 % 100003), i * 31 % 5003, 1900 + i % 120 FROM n;
WITH RECURSIVE n(i) AS (VALUES(0) UNION ALL SELECT i + 1 FROM n WHERE i < 5002)
    INSERT INTO town SELECT i, 'town ' || i FROM n;
COMMIT;
CREATE INDEX by_name ON person(name);
CREATE INDEX by_town ON person(town, born);
SELECT count(*), sum(length(town.name)) FROM person JOIN town ON town.id = person.town;
SELECT town.name, count(*) FROM town JOIN person ON person.town = town.id
    WHERE person.born > 1990 GROUP BY town.id ORDER BY 2 DESC, 1 LIMIT 5;
SELECT count(*) FROM person a JOIN person b ON a.name = b.name WHERE a.id < b.id AND a.id < 20000;
SELECT count(*) FROM person WHERE name LIKE '%77%';
UPDATE person SET born = born + 1 WHERE town % 7 = 0;
DELETE FROM person WHERE id % 5 = 0;
END
i=0
while [ $i -lt $((20 * bench_scale)) ]; do
    i=$((i + 1))
    echo "INSERT INTO person(name, town, born) VALUES('late $i', $i, 2000);"
done >>/tmp/sqlite/script
echo "VACUUM; PRAGMA integrity_check; SELECT count(*) FROM person;" >>/tmp/sqlite/script
"#;

const RUN: &str = r#"
cd /tmp/sqlite
sqlite3 database <script >output 2>&1
[ "$(tail -n 2 output | tr '\n' ' ')" = "ok $((4820 * bench_scale)) " ]
"#;
