// read NAMES: reads the files named in a list, one after the other.
package main

import (
	"fmt"
	"hash/crc32"
	"os"
	"strings"
)

func main() {
	names, err := os.ReadFile(os.Args[1])
	if err != nil {
		panic(err)
	}
	sum := uint32(0)
	for _, name := range strings.Fields(string(names)) {
		text, err := os.ReadFile(name)
		if err != nil {
			panic(err)
		}
		sum = crc32.Update(sum, crc32.IEEETable, text)
	}
	fmt.Printf("%08x\n", sum)
}
