// Package limits bounds how long tests wait. A limit that a busy machine can break is scaled by the environment
// variable TEST_TIME_SCALE: make test sets it, since it runs suites in parallel. Alone, suites are strict.
package limits

import (
	"fmt"
	"os"
	"strconv"
	"time"
)

// Wait bounds every wait that has no limit of its own. It costs nothing where things go well.
var Wait = Scaled(3 * time.Minute)

// Immediately is a second, and what a machine with two cores may add. How long it took is in the report.
var Immediately = Scaled(6 * time.Second)

// Scaled is a limit multiplied by TEST_TIME_SCALE. Durations for which something must not happen are not scaled.
func Scaled(limit time.Duration) time.Duration {
	text := os.Getenv("TEST_TIME_SCALE")
	if text == "" {
		return limit
	}
	scale, err := strconv.ParseFloat(text, 64)
	if err != nil || scale < 1 {
		panic(fmt.Sprintf("TEST_TIME_SCALE=%q is not a number of 1 or more", text))
	}
	return time.Duration(float64(limit) * scale)
}
