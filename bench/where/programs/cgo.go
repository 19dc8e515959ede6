//go:build cgo

package main

// #include <stdlib.h>
import "C"

var _ = C.free
