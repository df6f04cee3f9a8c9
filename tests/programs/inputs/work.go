// Goroutines on many threads allocate blocks with C's malloc. Other goroutines free them.
package main

/*
#include <stdlib.h>
#include <string.h>

static char *fill(size_t bytes, int value)
{
    char *block = malloc(bytes);
    memset(block, value, bytes);
    return block;
}

static unsigned long sum(const unsigned char *block, size_t bytes)
{
    unsigned long total = 0;
    for (size_t i = 0; i < bytes; i++)
        total += block[i];
    return total;
}
*/
import "C"

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"unsafe"
)

type message struct {
	block *C.char
	bytes C.size_t
}

func main() {
	const makers, each = 8, 20000
	passed := make(chan message, 1000)
	var making, freeing sync.WaitGroup
	for maker := 0; maker < makers; maker++ {
		making.Add(1)
		go func(maker int) {
			defer making.Done()
			runtime.LockOSThread()
			for i := 0; i < each; i++ {
				bytes := C.size_t(16 + (i*7919+maker)%(1+i%5000))
				passed <- message{C.fill(bytes, C.int(i&127)), bytes}
			}
		}(maker)
	}
	sums := make([]uint64, 4)
	for place := range sums {
		freeing.Add(1)
		go func(place int) {
			defer freeing.Done()
			for got := range passed {
				sums[place] += uint64(C.sum((*C.uchar)(unsafe.Pointer(got.block)), got.bytes))
				C.free(unsafe.Pointer(got.block))
			}
		}(place)
	}
	making.Wait()
	close(passed)
	freeing.Wait()
	fmt.Println(sums[0] + sums[1] + sums[2] + sums[3])

	total := 0
	for i := 0; i < 3000; i++ {
		text := C.CString(strings.Repeat("x", i))
		total += len(C.GoString(text))
		C.free(unsafe.Pointer(text))
	}
	fmt.Println(total)
}
