// The rival `goroutines` of `touchline-lab waiting`: each goroutine sends a request to another goroutine and waits for
// its answer.
// Usage: waiting COUNT SECONDS. Prints `ready`, `waiting COUNT` and `done`.
package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"
)

type call struct {
	data   int
	answer chan int
}

func main() {
	count, _ := strconv.Atoi(os.Args[1])
	seconds, _ := strconv.Atoi(os.Args[2])
	fmt.Println("ready")
	names := make([]chan call, 100)
	var called, answered sync.WaitGroup
	called.Add(count)
	answered.Add(count)
	for n := range names {
		names[n] = make(chan call)
		go func(calls chan call) {
			for one := range calls {
				data, answer := one.data, one.answer
				called.Done()
				time.AfterFunc(time.Duration(seconds)*time.Second, func() { answer <- data })
			}
		}(names[n])
	}
	for n := 0; n < count; n++ {
		go func(n int) {
			answer := make(chan int)
			names[n%len(names)] <- call{n, answer}
			<-answer
			answered.Done()
		}(n)
	}
	called.Wait()
	fmt.Println("waiting", count)
	answered.Wait()
	fmt.Println("done")
	io.ReadAll(os.Stdin) // The kernel's figures of this process can be read while the process runs.
}
