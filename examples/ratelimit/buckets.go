package main

import (
	"sync"
	"time"
)

// buckets are the token buckets of the users: each holds most tokens, and gets rate more a
// second.
type buckets struct {
	rate, most float64
	now        func() time.Time

	mu    sync.Mutex
	users map[string]bucket
	swept time.Time
}

type bucket struct {
	tokens float64
	at     time.Time
}

func newBuckets(rate float64, most int, now func() time.Time) *buckets {
	return &buckets{rate: rate, most: float64(most), now: now, users: map[string]bucket{}, swept: now()}
}

// take takes a token of the user, or returns how long to wait for one.
func (b *buckets) take(user string) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	b.sweep(now)
	u, ok := b.users[user]
	if !ok {
		u = bucket{tokens: b.most, at: now}
	}
	u.tokens, u.at = b.filled(u, now), now
	wait := time.Duration(0)
	if u.tokens >= 1 {
		u.tokens--
	} else {
		wait = time.Duration((1 - u.tokens) / b.rate * float64(time.Second))
	}
	b.users[user] = u
	return wait
}

func (b *buckets) filled(u bucket, now time.Time) float64 {
	return min(b.most, u.tokens+now.Sub(u.at).Seconds()*b.rate)
}

// sweep removes full buckets, which are the same as new ones, once a minute.
func (b *buckets) sweep(now time.Time) {
	if now.Sub(b.swept) < time.Minute {
		return
	}
	b.swept = now
	for name, u := range b.users {
		if b.filled(u, now) == b.most {
			delete(b.users, name)
		}
	}
}

func (b *buckets) size() float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return float64(len(b.users))
}
