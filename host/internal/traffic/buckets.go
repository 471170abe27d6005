package traffic

import (
	"math/bits"
	"time"
)

// Durations are counted in buckets of microseconds: four for each power of two, up to 2^maxExponent.
const (
	maxExponent = 26
	buckets     = 4 * maxExponent
)

// bucketOf returns the bucket of a duration. The last one has all that are longer.
func bucketOf(d time.Duration) int {
	us := uint64(max(d.Microseconds(), 0))
	if us < 4 {
		return int(us)
	}
	e := bits.Len64(us) - 1
	return min(4*(e-1)+int(us>>(e-2)&3), buckets-1)
}

// middle returns the middle of a bucket.
func middle(bucket int) time.Duration {
	if bucket < 4 {
		return time.Duration(bucket) * time.Microsecond
	}
	e, quarter := bucket/4+1, bucket%4
	width := time.Microsecond << (e - 2)
	return time.Duration(4+quarter)*width + width/2
}

// quantile returns the duration that a share of those that were counted did not exceed; 0 if none was.
func quantile(counted *[buckets]uint64, share float64) time.Duration {
	total := uint64(0)
	for _, n := range counted {
		total += n
	}
	rank, seen := uint64(share*float64(total)), uint64(0)
	for i, n := range counted {
		if seen += n; seen > rank {
			return middle(i)
		}
	}
	return 0
}
