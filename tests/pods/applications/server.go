// Counts its answers, beside goroutines that do not yield (the runtime interrupts them by signals), timers, and
// collections of garbage.
package main

import (
	"fmt"
	"math/big"
	"net/http"
	"runtime"
	"sync/atomic"
	"time"
)

var answered, turns, ticks atomic.Int64

func spin() {
	for {
		for begun := time.Now(); ; {
			busy := 0
			for busy < 10_000_000 {
				busy++
			}
			if time.Since(begun) > 30*time.Millisecond {
				break
			}
		}
		turns.Add(1)
		time.Sleep(30 * time.Millisecond)
	}
}

func collect() {
	for {
		product, kept := big.NewInt(1), make([][]byte, 0)
		for factor := int64(1); factor < 500; factor++ {
			product.Mul(product, big.NewInt(factor))
			kept = append(kept, product.Bytes())
		}
		runtime.GC()
		if len(kept) != 499 || product.BitLen() != 3759 {
			fmt.Println("wrong", product.BitLen())
		}
		fmt.Println("garbage", product.BitLen())
		time.Sleep(50 * time.Millisecond)
	}
}

func say() {
	for range time.Tick(100 * time.Millisecond) {
		fmt.Println("turns", turns.Load())
		fmt.Println("ticks", ticks.Load())
	}
}

func main() {
	runtime.GOMAXPROCS(4)
	for range 2 {
		go spin()
	}
	for range 100 {
		go func() {
			for range time.Tick(50 * time.Millisecond) {
				ticks.Add(1)
			}
		}()
	}
	go collect()
	go say()
	http.HandleFunc("/", func(answer http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(answer, "%d", answered.Add(1))
	})
	panic(http.ListenAndServe(":80", nil))
}
