// trap: a program without a loader and without a C library, whose threads, stacks and signals are its own run-time's
// data: many/{200} 4K
// data: cold.bin 1M
// run: readers
// run: children
// run: profiled
package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"runtime/pprof"
	"sync"
)

// What all of the files hold, read by as many goroutines as there are processors and some more.
func readers() {
	sums := make([][32]byte, 200)
	var waits sync.WaitGroup
	for worker := 0; worker < 6; worker++ {
		waits.Add(1)
		go func(worker int) {
			defer waits.Done()
			for at := worker; at < len(sums); at += 6 {
				content, err := os.ReadFile(fmt.Sprintf("many/%d", at))
				if err != nil {
					panic(err)
				}
				sums[at] = sha256.Sum256(content)
			}
		}(worker)
	}
	waits.Wait()
	whole := sha256.New()
	for _, sum := range sums {
		whole.Write(sum[:])
	}
	fmt.Printf("%x\n", whole.Sum(nil))
}

func main() {
	switch os.Args[1] {
	case "readers":
		readers()
	case "children":
		// Without our variables as well, and one that is not there.
		for at := 0; at < 8; at++ {
			child := exec.Command(os.Args[0], "readers")
			if at%2 == 1 {
				child.Env = []string{"A=1"}
			}
			told, err := child.CombinedOutput()
			fmt.Printf("%s%v\n", told, err)
		}
		fmt.Println(exec.Command("./nowhere").Run())
	case "profiled":
		var profile bytes.Buffer
		if err := pprof.StartCPUProfile(&profile); err != nil {
			panic(err)
		}
		for round := 0; round < 5; round++ {
			readers()
		}
		pprof.StopCPUProfile()
		fmt.Println(profile.Len() > 0)
	}
}
