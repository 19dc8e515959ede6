// trap: goroutines' stacks begin at 2 KB, have no guard page, and end in other objects
// data: cold.bin 4M

// Reads at every depth of a stack that has little room left: a goroutine's own checks leave some
// hundred bytes below a system call, and what lies below those is another object's.
package main

// static int seven(void) { return 7; }
import "C"

import (
	"fmt"
	"hash/fnv"
	"os"
	"sync"
)

func deeper(depth int, file *os.File, block []byte, place int64) int {
	if depth == 0 {
		got, err := file.ReadAt(block, place)
		if err != nil {
			panic(err)
		}
		return got
	}
	return deeper(depth-1, file, block, place)
}

func main() {
	file, err := os.Open("cold.bin")
	if err != nil {
		panic(err)
	}
	sum := fnv.New64a()
	for number := 0; number < 6000; number++ {
		done := make(chan []byte, 1)
		go func(number int) {
			block := make([]byte, 64)
			place := int64(number*7919%8000) * 512
			deeper(number%60, file, block, place)
			done <- block
		}(number)
		sum.Write(<-done)
	}
	// Many at once: their stacks are each other's neighbours.
	sums := make([]uint64, 8)
	var all sync.WaitGroup
	for which := range sums {
		all.Add(1)
		go func(which int) {
			defer all.Done()
			for round := 0; round < 400; round++ {
				done := make(chan uint64)
				go func(round int) {
					block := make([]byte, 32)
					deeper(round%60, file, block, int64((round*37+which*101)%8000)*512)
					own := fnv.New64a()
					own.Write(block)
					done <- own.Sum64()
				}(round)
				sums[which] = sums[which]*31 + <-done
			}
		}(which)
	}
	all.Wait()
	fmt.Printf("%d, sum %016x, sums %x\n", C.seven(), sum.Sum64(), sums)
}
