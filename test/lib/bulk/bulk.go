// Package bulk has what specs about many resources share: how many, and making them in parallel.
package bulk

import (
	"os"
	"strconv"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/bergctf/berg-operator/test/lib/inprocess"
)

// Number is the integer of an environment variable, or usual where it is not set. make sets such variables
// to measure with more resources than `make test` uses.
func Number(variable string, usual int) int {
	GinkgoHelper()
	text := os.Getenv(variable)
	if text == "" {
		return usual
	}
	n, err := strconv.Atoi(text)
	Expect(err).NotTo(HaveOccurred(), variable)
	return n
}

// Workers is the default of MAX_CONCURRENT_RECONCILES: as many requests in parallel as the operator makes.
func Workers() int {
	GinkgoHelper()
	process, _ := inprocess.Load(inprocess.With(nil))
	return process.MaxConcurrentReconciles
}

// Each calls do with 0 to n-1, in Workers goroutines, and returns when all calls have returned.
func Each(n int, do func(n int)) {
	GinkgoHelper()
	next := make(chan int)
	var workers sync.WaitGroup
	for range Workers() {
		workers.Go(func() {
			defer GinkgoRecover()
			for i := range next {
				do(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	workers.Wait()
}
