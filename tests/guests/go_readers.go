// trap: a Go program whose goroutines read many cold files at once: its threads come and go
// build: -buildmode=pie
// data: many/{1500} 3K
// run: 1
// run: 8
// timeout: 120

package main

// static int seven(void) { return 7; }
import "C"

import (
	"fmt"
	"hash/fnv"
	"os"
	"strconv"
	"sync"
)

func main() {
	readers, err := strconv.Atoi(os.Args[1])
	if err != nil {
		panic(err)
	}
	files, err := os.ReadDir("many")
	if err != nil {
		panic(err)
	}
	sums := make([]uint64, len(files))
	var all sync.WaitGroup
	for which := 0; which < readers; which++ {
		all.Add(1)
		go func(which int) {
			defer all.Done()
			for at := which; at < len(files); at += readers {
				content, err := os.ReadFile("many/" + files[at].Name())
				if err != nil {
					panic(err)
				}
				own := fnv.New64a()
				own.Write(content)
				sums[at] = own.Sum64()
			}
		}(which)
	}
	all.Wait()
	total := uint64(C.seven())
	for _, sum := range sums {
		total = total*31 + sum
	}
	fmt.Printf("%d files, sum %016x\n", len(files), total)
}
