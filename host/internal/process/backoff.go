package process

import "time"

// Backoff computes how long to wait before a process that has ended is started again:
// First after the first failure in a row, then twice as long each time up to Max,
// minus a random part so that stages that fail together do not start together.
type Backoff struct {
	First, Max time.Duration
	// Jitter is the largest part of a delay that is taken off at random, from 0 to 1.
	Jitter float64
	// Healthy is how long a process must have run for its end to count as a first failure.
	Healthy time.Duration
}

// DefaultBackoff returns the Backoff of stages: from 50 ms to half a minute.
func DefaultBackoff() Backoff {
	return Backoff{First: 50 * time.Millisecond, Max: 30 * time.Second, Jitter: 0.25, Healthy: 10 * time.Second}
}

// Next takes the number of failures in a row before this one, how long the process
// has run (0 if it could not be started) and a random number from 0 to below 1. It
// returns the delay and the number of failures including this one.
func (b Backoff) Next(failures int, ran time.Duration, random float64) (time.Duration, int) {
	if ran >= b.Healthy {
		failures = 0
	}
	delay := b.First
	for i := 0; i < failures && delay < b.Max; i++ {
		delay *= 2
	}
	delay = min(delay, b.Max)
	return delay - time.Duration(float64(delay)*b.Jitter*random), failures + 1
}
