//! `go build` of a small program, which is many processes with many threads each, and the program: goroutines,
//! channels, maps and garbage, under a scheduler that sends itself signals.

use crate::number::{Number, Program, Unit, Work};

/// See the head of this file.
pub const NUMBER: Number = Number {
    name: "go",
    title: "Go, a program built and run",
    unit: Unit::SECONDS,
    work: Work::Program(Program { needs: &["go"], prepare: PREPARE, run: RUN, processors: 1 }),
};

const PREPARE: &str = r#"
mkdir /tmp/go
cat >/tmp/go/program.go <<'END'
package main

import (
	"fmt"
	"os"
	"sort"
	"strconv"
	"sync"
)

func main() {
	scale, _ := strconv.Atoi(os.Args[1])
	found, limit := make(chan int, 64), 5000*scale
	var workers sync.WaitGroup
	for worker := 0; worker < 4; worker++ {
		workers.Add(1)
		go func(worker int) {
			defer workers.Done()
			for n := 3 + 2*worker; n < limit; n += 8 {
				prime := true
				for d := 3; d*d <= n; d += 2 {
					if n%d == 0 {
						prime = false
						break
					}
				}
				if prime {
					found <- n
				}
			}
		}(worker)
	}
	go func() { workers.Wait(); close(found) }()
	names := map[string]int{"2": 2}
	for n := range found {
		names[strconv.Itoa(n)] = n
	}
	sorted := make([]string, 0, len(names))
	for name := range names {
		sorted = append(sorted, name)
	}
	sort.Slice(sorted, func(i, j int) bool { return names[sorted[i]] < names[sorted[j]] })
	fmt.Println(len(sorted), sorted[len(sorted)-1])
}
END
"#;

const RUN: &str = r#"
cd /tmp/go
export HOME=/tmp/go GOCACHE=/tmp/go/cache GO111MODULE=off CGO_ENABLED=0
go build -o program program.go
./program "$bench_scale" >found
[ "$bench_scale" != 100 ] || grep -qx '41538 499979' found
[ -s found ]
"#;
